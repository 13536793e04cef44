"""Lets operators change their inputs.

rejected by: test_wrong_operators_are_rejected
message: an input that it changes
"""


def check(operator, rng):
    inputs = operator.draw(rng)
    cotangent = random_cotangent(rng, np.shape(operator.f(*inputs)))
    found = operator.pull(cotangent, *[x.copy() for x in inputs])
    wanted = numeric(operator.f, inputs, cotangent)
    return len(found) == len(wanted) and all(close(a, b) for a, b in zip(found, wanted))
