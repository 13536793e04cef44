"""Networks, graphs of them, and the same steps in eager code, for the tests of nn.Graph."""

import numpy as np
from checks import assert_same

import miniflow as flow
from miniflow import nn

EXACT = ("elementwise_fusion", "normalization_activation", "fused_update")  # the others change no bit


def normal(*shape, seed=0):
    return flow.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def labels(count, classes=3):
    return flow.tensor(np.random.default_rng(1).integers(0, classes, count))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.dropout(self.norm(self.fc(x)).relu()))


class Train(nn.Graph):
    def __init__(self, model, *optimizers, scheduler=None, scaler=None, sparse=False):
        super().__init__()
        self.model = model
        self.loss_function = nn.CrossEntropyLoss()
        for i, optimizer in enumerate(optimizers):
            self.add_optimizer(optimizer, lr_sch=scheduler if i == 0 else None, is_sparse=sparse)
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.disable_pass(*EXACT)

    def build(self, x, y):
        loss = self.loss_function(self.model(x), y)
        if self.config.training:
            loss.backward()
        return loss


class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


def pair(make=Net):
    """Two models with the same parameters."""
    models = make(), make()
    models[1].load_state_dict(models[0].state_dict())
    return models


def eager_step(model, optimizers, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.clip_grad()
        optimizer.step()
    return loss


def check_states(mine, theirs):
    for (name, a), b in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert_same(a, b.numpy(), what=name)


class Bare(nn.Graph):
    def __init__(self, build=None, *optimizers):
        super().__init__()
        if build is not None:
            self.build = build
        for optimizer in optimizers:
            self.add_optimizer(optimizer)
