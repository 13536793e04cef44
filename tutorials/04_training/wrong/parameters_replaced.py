"""Each step makes new parameters, which the model does not know.

rejected by: test_sgd
message: p is changed in place
"""


class SGD(SGD):
    def step(self):
        for k, p in enumerate(self.parameters):
            if p.grad is not None:
                self.velocities[k] = self.momentum * self.velocities[k] + p.grad
                fresh = p.detach() - self.lr * self.velocities[k]
                fresh.grad = p.grad
                self.parameters[k] = fresh
