"""A discriminator with weight and spectral normalization, and a hinge loss."""

import torch
import torch.nn as nn
from common import initialise, numbers, report
from torch.nn.utils import weight_norm
from torch.nn.utils.parametrizations import spectral_norm

first, last = initialise(nn.Linear(6, 8)), initialise(nn.Linear(8, 1))
model = nn.Sequential(weight_norm(first), nn.LeakyReLU(0.1), spectral_norm(last, n_power_iterations=30))
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2, betas=(0.0, 0.9))
real, fake = numbers(8, 6, seed=40) + 1, numbers(8, 6, seed=41)
for _ in range(4):
    loss = nn.ReLU()(1.0 - model(real)).mean() + nn.ReLU()(1.0 + model(fake)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
model.eval()
report(torch.linalg.matrix_norm(last.weight, 2))
