"""Differences to one side.

rejected by: test_central
message: central differences are exact here
"""


def numeric(f, inputs, cotangent, step=1e-5):
    gradients = []
    for k, x in enumerate(inputs):
        gradient = np.zeros(x.shape)
        for index in np.ndindex(x.shape):
            moved = [v.copy() for v in inputs]
            moved[k][index] += step
            gradient[index] = ((f(*moved) - f(*inputs)) * cotangent).sum() / step
        gradients.append(gradient)
    return gradients
