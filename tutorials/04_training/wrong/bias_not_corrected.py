"""The means start at zero, and are not corrected for it.

rejected by: test_first_step_of_adam
message: lr against the sign, whatever the size
"""


class Adam(Adam):
    def step(self):
        beta1, beta2 = self.betas
        with flow.no_grad():
            for p, m, s in zip(self.parameters, self.means, self.squares):
                if p.grad is not None:
                    m *= beta1
                    m += (1 - beta1) * p.grad
                    s *= beta2
                    s += (1 - beta2) * p.grad * p.grad
                    p -= self.lr * m / (s.sqrt() + self.eps)
