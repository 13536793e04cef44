"""The slope for a is a.

rejected by: test_sum_and_product
message: the slope for a is b
"""


def mul(a, b):
    return Variable(a.value * b.value, (a, b), lambda g: (g * a.value, g * b.value))
