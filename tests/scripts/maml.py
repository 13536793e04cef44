"""Model-agnostic meta-learning: gradients through a step of gradient descent."""

import torch
import torch.nn.functional as F
from common import numbers, report

params = [(0.3 * numbers(*shape, seed=i)).requires_grad_() for i, shape in enumerate([(8, 1), (8,), (1, 8), (1,)])]


def net(x, params):
    x = torch.tanh(F.linear(x, params[0], params[1]))
    return F.linear(x, params[2], params[3])


meta = torch.optim.Adam(params, lr=1e-2)
for step in range(4):
    meta_loss = 0.0
    for task in range(3):
        amplitude, x = 0.5 + task, numbers(10, 1, seed=10 * step + task)
        y = amplitude * torch.sin(x)
        support = F.mse_loss(net(x[:5], params), y[:5])
        grads = torch.autograd.grad(support, params, create_graph=True)
        fast = [p - 0.1 * g for p, g in zip(params, grads)]
        meta_loss = meta_loss + F.mse_loss(net(x[5:], fast), y[5:])
    meta.zero_grad()
    meta_loss.backward()
    meta.step()
    report(meta_loss / 3)
