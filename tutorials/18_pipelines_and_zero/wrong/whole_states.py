"""Keeps both states whole on every rank, which saves nothing.

rejected by: test_sharded_adam
message: each rank keeps its part only
"""


class ShardedAdam:
    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8):
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        self.m = [flow.zeros_like(p) for p in parameters]
        self.v = [flow.zeros_like(p) for p in parameters]

    def step(self, parameters, gradients):
        self.t += 1
        b1, b2 = self.betas
        new = []
        for k, (p, g) in enumerate(zip(parameters, gradients)):
            g = g.to_global(sbp=S(0)).to_global(sbp=B)
            self.m[k] = b1 * self.m[k] + (1 - b1) * g
            self.v[k] = b2 * self.v[k] + (1 - b2) * g * g
            root = flow.sqrt(self.v[k] / (1 - b2**self.t)) + self.eps
            new.append(p - self.lr * (self.m[k] / (1 - b1**self.t)) / root)
        return new
