"""Shapes that fit by reshaping, not by the transpose.

rejected by: test_matrices
message: matmul: gradient of operand 0
"""


def matmul(a, b):
    return Variable(a.value @ b.value, (a, b), lambda g: (g @ b.value.reshape(b.value.shape[::-1]), a.value.T @ g))
