"""The optimizer changes its own tensors, and the variables stay as they were.

rejected by: test_optimizer
message: and the numbers back into value
"""


def step(self, rate):
    for v, tensor in zip(self.variables, self.tensors):
        tensor.grad = None if v.grad is None else flow.tensor(v.grad)
    self.inner.lr = rate
    self.inner.step()


Optimizer.step = step
