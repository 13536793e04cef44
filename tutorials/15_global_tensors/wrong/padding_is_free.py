"""Counts a split operand that becomes partial with 0: then every sum of tensors in two layouts becomes partial.

rejected by: test_choice
message: S to P counts as S to B
"""


def choose(shapes, given, candidates, ranks):
    def price(candidate):
        boxed = [(shape, a, b) for shape, a, b in zip(shapes, given, candidate[0]) if a != b]
        return sum(cost(shape, ranks, a, b) for shape, a, b in boxed), len(boxed)

    return min(candidates, key=price)
