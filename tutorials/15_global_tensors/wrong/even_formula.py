"""The formula for equal parts, (n - 1) T / n, for parts that are uneven.

rejected by: test_cost
message: what stays is not sent
"""

exact = cost


def cost(shape, ranks, before, after):
    if before.kind == after.kind == "S" and before != after:
        return (ranks - 1) * math.prod(shape) // ranks
    return exact(shape, ranks, before, after)
