"""Counts what is sent now alone: then every sum of tensors in two layouts becomes partial, since padding sends nothing.

rejected by: test_choice
message: debts of partial sums included
"""


def choose(shapes, given, result, candidates, ranks):
    def price(candidate):
        boxed = [(shape, a, b) for shape, a, b in zip(shapes, given, candidate[0]) if a != b]
        return boxed != [], sum(cost(shape, ranks, a, b) for shape, a, b in boxed), candidate[1] == P, len(boxed)

    return min(candidates, key=price)
