"""Adds the second bias to each summand, so it is added once for each rank.

rejected by: test_two_layers
message: where does b2 have to be added?
"""


def two_layers(x, w1, b1, w2, b2, network):
    hidden = [np.maximum(x[rank] @ w1[rank] + b1[rank], 0) for rank in range(network.ranks)]
    return all_reduce([h @ w + b for h, w, b in zip(hidden, w2, b2)], network)
