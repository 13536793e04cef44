"""The velocity is a mean of gradients, as in Adam: steps are ten times smaller with a momentum of 0.9.

rejected by: test_sgd
message: v <- momentum v + g
"""


class SGD(SGD):
    def step(self):
        with flow.no_grad():
            for p, v in zip(self.parameters, self.velocities):
                if p.grad is not None:
                    v *= self.momentum
                    v += (1 - self.momentum) * p.grad
                    p -= self.lr * v
