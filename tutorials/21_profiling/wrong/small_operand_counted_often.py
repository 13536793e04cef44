"""Counts a small operand once for each element of the result.

rejected by: test_cost_of_a_broadcast
message: a small operand is read once
"""


def cost(name, *shapes):
    if name in ("matmul", "linear"):
        m, k = shapes[0]
        n = shapes[1][1] if name == "matmul" else shapes[1][0]
        return 2 * m * n * k, 4 * (sum(map(math.prod, shapes)) + m * n)
    n = math.prod(np.broadcast_shapes(*shapes))
    return n, 4 * n + 4 if name == "sum" else 4 * n * (len(shapes) + 1)
