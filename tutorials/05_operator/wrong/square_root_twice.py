"""The derivative of sqrt(b) is 1 / sqrt(b): its 2 in the denominator is missing.

rejected by: test_gradients_of_squareplus
message: gradient of input 1
"""


def squareplus_grad_b(dy, x, b):
    return dy / (2 * sqrt(x * x + b))
