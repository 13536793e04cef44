"""Takes the result of a sum over a split dim for the whole: it is only this rank's summand.

rejected by: test_signatures
message: summed over it is P
"""

right = signatures


def signatures(operands, result, partial=(), fixed=""):
    found = right(operands, result, partial, fixed)
    return [(given, B if out == P and P not in given else out) for given, out in found]
