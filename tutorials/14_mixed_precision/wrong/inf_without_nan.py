"""Looks for infinities and forgets NaN, such as inf - inf makes.

rejected by: test_factor
message: gradients with nan
"""


class LossScaler(LossScaler):
    def step(self, optimizer, parameters):
        gradients = [p.grad for p in parameters if p.grad is not None]
        for g in gradients:
            g.div_(self.factor)
        if any((abs(g) == float("inf")).any().item() for g in gradients):
            self.factor, self.good_steps = max(self.factor / 2, 1.0), 0
            return False
        optimizer.step()
        self.good_steps += 1
        if self.good_steps == self.interval:
            self.factor, self.good_steps = self.factor * 2, 0
        return True
