"""Logistic regression by LBFGS."""

import torch
from common import numbers, report

X = numbers(40, 3, seed=5)
y = (X @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 * numbers(40, seed=6) > 0).float()
w = torch.zeros(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.LBFGS([w, b], lr=1, max_iter=10, line_search_fn="strong_wolfe")
criterion = torch.nn.BCEWithLogitsLoss()


def closure():
    optimizer.zero_grad()
    loss = criterion(torch.matmul(X, w) + b, y) + 1e-2 * w.norm() ** 2
    loss.backward()
    return loss


for _ in range(2):
    report(optimizer.step(closure))
with torch.no_grad():
    report(((X @ w + b > 0).float() == y).float().mean(), *w)
