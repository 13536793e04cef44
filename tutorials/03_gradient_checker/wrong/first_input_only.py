"""Looks at the first gradient alone.

rejected by: test_wrong_operators_are_rejected
message: a wrong second input
"""


def check(operator, rng):
    inputs = operator.draw(rng)
    cotangent = random_cotangent(rng, np.shape(operator.f(*inputs)))
    found = operator.pull(cotangent, *[x.copy() for x in inputs])
    return close(found[0], numeric(operator.f, inputs, cotangent)[0])
