"""Squares the gradient while it is a partial sum, which has to be gathered for that.

rejected by: test_sharded_adam
message: reduce-scatter each gradient, update the own part, all-gather the parameter
"""


class ShardedAdam:
    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8):
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        self.m = [flow.zeros_like(p).to_global(sbp=S(0)) for p in parameters]
        self.v = [flow.zeros_like(p).to_global(sbp=S(0)) for p in parameters]

    def step(self, parameters, gradients):
        self.t += 1
        b1, b2 = self.betas
        new = []
        for k, (p, g) in enumerate(zip(parameters, gradients)):
            square = (g * g).to_global(sbp=S(0))
            p, g = p.to_global(sbp=S(0)), g.to_global(sbp=S(0))
            self.m[k] = b1 * self.m[k] + (1 - b1) * g
            self.v[k] = b2 * self.v[k] + (1 - b2) * square
            root = flow.sqrt(self.v[k] / (1 - b2**self.t)) + self.eps
            new.append((p - self.lr * (self.m[k] / (1 - b1**self.t)) / root).to_global(sbp=B))
        return new
