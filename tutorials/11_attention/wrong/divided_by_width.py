"""Divides by E, not by its root.

rejected by: test_scores
message: divide by the root of E
"""


def scores(q, k, shift=None):
    products = q @ np.swapaxes(k, -1, -2) / q.shape[-1]
    if shift is not None:
        products[..., ~np.tril(np.ones(products.shape[-2:], bool), shift)] = -np.inf
    return products
