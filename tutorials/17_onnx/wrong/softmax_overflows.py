"""Does not subtract the largest number first: e^1000 is infinite.

rejected by: test_run_softmax_and_reshape
message: subtract the largest first
"""


def softmax(x, **attributes):
    e = np.exp(x)
    return e / e.sum(attributes.get("axis", -1), keepdims=True)


OPERATORS["Softmax"] = softmax
