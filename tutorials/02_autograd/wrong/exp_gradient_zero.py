"""The gradient of exp is zero.

rejected by: test_functions_of_one_number
message: exp: gradient of operand 0
"""


def exp(a):
    return Variable(np.exp(a.value), (a,), lambda g: (0 * g,))
