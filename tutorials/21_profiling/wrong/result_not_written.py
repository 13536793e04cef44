"""Counts what is read only.

rejected by: test_cost_of_products
message: each result written once
"""


def cost(name, *shapes):
    if name in ("matmul", "linear"):
        m, k = shapes[0]
        n = shapes[1][1] if name == "matmul" else shapes[1][0]
        return 2 * m * n * k, 4 * sum(map(math.prod, shapes))
    return math.prod(np.broadcast_shapes(*shapes)), 4 * sum(map(math.prod, shapes))
