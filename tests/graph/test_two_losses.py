"""Several calls of backward in build add their losses, as in eager code that keeps the graph, and as in OneFlow."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from networks import EXACT, check_states, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.nn import functional as F


class Heads(nn.Module):
    """Two heads on one trunk with batch norm and dropout."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3))
        self.first, self.second, self.alone = nn.Linear(6, 3), nn.Linear(6, 2), nn.Linear(4, 2)


def shared_trunk(model, x, y, keep):
    h = model.trunk(x)
    first, second = F.cross_entropy(model.first(h), y), model.second(h).square().mean()
    first.backward(retain_graph=keep)
    second.backward()
    return first, second


def forward_after_backward(model, x, y, keep):
    first = F.cross_entropy(model.first(model.trunk(x)), y)
    first.backward()
    second = model.second(model.trunk(2 * x)).square().mean()
    second.backward()
    return first, second


def nothing_in_common(model, x, y, keep):
    first, second = F.cross_entropy(model.first(model.trunk(x)), y), model.alone(x).square().mean()
    first.backward(), second.backward()
    return first, second


def one_loss_twice(model, x, y, keep):
    loss = F.cross_entropy(model.first(model.trunk(x)), y)
    loss.backward(retain_graph=keep)
    loss.backward()
    return (loss,)


def a_loop(model, x, y, keep):
    h, losses = model.trunk(x), []
    for i in range(3):
        losses.append((model.second(h) * (i + 1)).square().mean())
        losses[-1].backward(retain_graph=keep)
    return losses


def a_gradient_that_is_read_and_changed_in_between(model, x, y, keep):
    first, second, _ = (*nothing_in_common(model, x, y, keep), None)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    third = (model.first(model.trunk(x)) * 0.5).sum()
    third.backward()
    return first, second, third, model.alone.weight.grad.sum()


def a_list_and_one(model, x, y, keep):
    h = model.trunk(x)
    losses = [F.cross_entropy(model.first(h), y), model.second(h).square().mean(), model.alone(x).mean()]
    flow.autograd.backward(losses[:2], retain_graph=keep)
    losses[2].backward()
    return losses


LOSSES = [
    shared_trunk, forward_after_backward, nothing_in_common, one_loss_twice, a_loop,
    a_gradient_that_is_read_and_changed_in_between, a_list_and_one,
]  # fmt: skip


class Several(nn.Graph):
    def __init__(self, model, losses, *optimizers, exact=True):
        super().__init__()
        self.model, self.losses = model, losses
        for optimizer in optimizers:
            self.add_optimizer(optimizer)
        if exact:
            self.config.disable_pass(*EXACT, "add_to_output")

    def build(self, x, y):
        return self.losses(self.model, x, y, None)


def sgd(parameters, **options):
    groups = [{"params": list(parameters), **options}]
    return flow.optim.SGD(groups, lr=0.1, momentum=0.9)


def train_both(losses, steps=3, exact=True, options=None, before=lambda graph: None, make=lambda m: [m.parameters()]):
    mine, theirs = pair(Heads)
    ours, eager = ([sgd(p, **(options or {})) for p in make(model)] for model in (mine, theirs))
    graph = Several(mine, losses, *ours, exact=exact)
    before(graph)
    x, y = normal(6, 4), labels(6)
    for _ in range(steps):
        state = flow.get_rng_state()
        got = graph(x, y)
        flow.set_rng_state(state)
        for optimizer in eager:
            optimizer.zero_grad()
        expected = losses(theirs, x, y, True)
        for optimizer in eager:
            optimizer.clip_grad()
            optimizer.step()
        for a, b in zip(got, expected, strict=True):
            b = b.detach().numpy()
            assert_same(a, b) if exact else assert_close(a, b, rtol=1e-5, atol=1e-6)
    if exact:
        check_states(mine, theirs)
    else:
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert_close(a.detach(), b.detach().numpy(), rtol=1e-4, atol=1e-6)
    changed = [not np.array_equal(a.detach().numpy(), b.detach().numpy()) for a, b in zip(
        mine.parameters(), pair(Heads)[0].parameters(), strict=True)]  # fmt: skip
    assert any(changed)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "all passes"])
@pytest.mark.parametrize("losses", LOSSES)
def test_losses_add_up(losses, exact):
    train_both(losses, exact=exact)


@pytest.mark.parametrize("losses", [shared_trunk, forward_after_backward, a_list_and_one])
@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.set_grad_scaler(flow.amp.GradScaler(init_scale=1024.0, growth_interval=2)),
        lambda graph: setattr(graph.model.trunk.config, "activation_checkpointing", True),
    ],
    ids=["scaler", "checkpointing"],
)
def test_with_other_options(losses, change):
    train_both(losses, exact=False, options={"clip_grad_max_norm": 0.5}, before=change)


def test_two_optimizers_each_of_one_loss():
    train_both(nothing_in_common, make=lambda m: [[*m.trunk.parameters(), *m.first.parameters()], m.alone.parameters()])


def test_micro_batches():
    def losses(model, x, y, keep):
        h = model.trunk[0](x)
        first, second = F.cross_entropy(model.first(h), y), model.second(h).square().mean()
        first.backward(retain_graph=keep), second.backward()
        return first, second

    mine, theirs = pair(Heads)
    graph = Several(mine, losses, sgd(mine.parameters()))
    graph.config.set_gradient_accumulation_steps(2)
    optimizer, x, y = sgd(theirs.parameters()), normal(6, 4), labels(6)
    for _ in range(3):
        first, second = graph(x, y)
        optimizer.zero_grad()
        parts = [losses(theirs, x[i : i + 3], y[i : i + 3], True) for i in (0, 3)]
        for p in theirs.parameters():
            if p.grad is not None:
                p.grad = p.grad / 2
        optimizer.step()
        for got, expected in zip((first, second), zip(*parts, strict=True), strict=True):
            assert_close(got, np.array([e.item() for e in expected], np.float32), rtol=1e-6, atol=1e-7)
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_close(a.detach(), b.detach().numpy(), rtol=1e-6, atol=1e-7)


def test_a_graph_that_was_freed_on_purpose_stays_freed():
    model = Heads()

    def losses(model, x, y, keep):
        loss = model.second(model.trunk(x)).square().mean()
        loss.backward(retain_graph=False)
        loss.backward()

    with pytest.raises(flow.errors.AutogradError, match="Specify retain_graph=True"):
        Several(model, losses, sgd(model.parameters()))(normal(6, 4), labels(6))
