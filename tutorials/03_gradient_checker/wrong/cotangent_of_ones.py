"""Adds up all gradients: elements in another order go unseen.

rejected by: test_wrong_operators_are_rejected
message: elements in another order
"""


def random_cotangent(rng, shape):
    return np.ones(shape)
