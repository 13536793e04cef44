"""An exponential moving average of the weights, and resuming from a checkpoint."""

import copy
import os
import tempfile

import torch
from common import initialise, numbers, report
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.shadow, self.decay = copy.deepcopy(model).eval(), decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.state_dict().values(), model.state_dict().values()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)


def build():
    model = initialise(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)


def train(model, optimizer, scheduler, ema, steps):
    for _ in range(steps):
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update(model)
        report(loss, ema.shadow(x).sum(), scheduler.get_last_lr()[0])


x, y = numbers(16, 4, seed=70), numbers(16, 1, seed=71)
model, optimizer, scheduler = build()
ema = EMA(model, 0.9)
train(model, optimizer, scheduler, ema, 3)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema.shadow}
    torch.save({"step": 3, **{name: part.state_dict() for name, part in parts.items()}}, path)
    model, optimizer, scheduler = build()
    ema = EMA(model, 0.9)
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    for name, part in {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema.shadow}.items():
        part.load_state_dict(checkpoint[name])
    assert checkpoint["step"] == 3
train(model, optimizer, scheduler, ema, 3)
