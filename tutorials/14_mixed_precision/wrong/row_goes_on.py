"""Does not count again from 0 after a skipped step: the factor grows too early.

rejected by: test_factor
message: a skipped step ends the row
"""


class LossScaler(LossScaler):
    def step(self, optimizer, parameters):
        gradients = [p.grad for p in parameters if p.grad is not None]
        for g in gradients:
            g.div_(self.factor)
        finite = all(g.isfinite().all().item() for g in gradients)
        if finite:
            optimizer.step()
            self.good_steps += 1
        else:
            self.factor = max(self.factor / 2, 1.0)
        if self.good_steps == self.interval:
            self.factor, self.good_steps = self.factor * 2, 0
        return finite
