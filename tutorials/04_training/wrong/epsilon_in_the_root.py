"""Epsilon is added to the mean square, before the root is taken.

rejected by: test_adam
message: add eps after the root
"""


class Adam(Adam):
    def step(self):
        self.steps += 1
        beta1, beta2 = self.betas
        with flow.no_grad():
            for p, m, s in zip(self.parameters, self.means, self.squares):
                if p.grad is not None:
                    m *= beta1
                    m += (1 - beta1) * p.grad
                    s *= beta2
                    s += (1 - beta2) * p.grad * p.grad
                    root = (s / (1 - beta2**self.steps) + self.eps).sqrt()
                    p -= self.lr * (m / (1 - beta1**self.steps)) / root
