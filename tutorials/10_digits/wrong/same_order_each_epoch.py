"""A new generator from the same seed in each epoch.

rejected by: test_orders
message: make the generator once, in __init__
"""


class Shuffle(Shuffle):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __iter__(self):
        return iter(np.random.default_rng(self.seed).permutation(self.count).tolist())
