"""The numbers of an optimizer's groups are read at each call: what changes them compiles nothing again."""

import copy
import warnings

import numpy as np
import pytest
from checks import assert_close, assert_same
from twins import CLIPS, OPTIMIZERS

import miniflow as flow
from miniflow import nn, optim
from miniflow.graph import compiled
from miniflow.optim import lr_scheduler as schedules

ROUNDING = ("elementwise_fusion", "fused_update", "add_to_output")  # passes that round differently
X = flow.tensor(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))


@pytest.fixture
def recordings(monkeypatch):
    """A list that gets the name of each graph that is recorded."""
    found = []

    class Counted(compiled.Recording):
        def __init__(self, graph, *args):
            found.append(graph.name)
            super().__init__(graph, *args)

    monkeypatch.setattr(compiled, "Recording", Counted)
    return found


class Train(nn.Graph):
    def __init__(self, model, optimizer, schedule=None, exact=True):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=schedule)
        if exact:
            self.config.disable_pass(*ROUNDING)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


class Twins:
    """A graph, and the same training without one."""

    def __init__(self, make, schedule=None, exact=True):
        flow.manual_seed(3)
        self.models = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), None
        self.models = self.models[0], copy.deepcopy(self.models[0])
        self.optimizers = [make(list(model.parameters())) for model in self.models]
        self.schedules = [schedule and schedule(optimizer) for optimizer in self.optimizers]
        self.graph, self.exact = Train(self.models[0], self.optimizers[0], self.schedules[0], exact), exact

    def step(self):
        (_, model), (_, optimizer), (_, schedule) = self.models, self.optimizers, self.schedules
        got = self.graph(X)
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        optimizer.clip_grad()
        optimizer.step()
        if schedule:
            schedule.step()
        self.compare(got, loss)
        for ours, theirs in zip(*[m.parameters() for m in self.models], strict=True):
            self.compare(ours.detach(), theirs)
            mine, other = (o.state.get(p, {}) for o, p in zip(self.optimizers, (ours, theirs), strict=True))
            for name, value in other.items():
                if isinstance(value, flow.Tensor):
                    self.compare(mine[name], value)
                elif value:
                    assert mine[name] == value

    def compare(self, got, expected):
        expected = expected.detach().numpy()
        if self.exact:
            assert_same(got, expected)
        else:
            assert_close(got, expected, rtol=1e-5, atol=1e-6 * max(1e-3, np.abs(expected).max()))

    def set(self, change):
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                change(group)


def moved(value, step):
    """Another number of the same sign."""
    if isinstance(value, tuple):
        return tuple(moved(part, step) for part in value)
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    return value * (1 - 0.03 * step)


def move_all(step):
    def change(group):
        group.update({key: moved(value, step) for key, value in group.items() if key != "clip_grad_norm_type"})

    return change


CASES = [(name, i) for name in OPTIMIZERS for i in range(len(OPTIMIZERS[name]))]


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "all passes"])
@pytest.mark.parametrize(("name", "i"), CASES)
def test_every_number_of_every_optimizer(name, i, exact, recordings):
    options = OPTIMIZERS[name][i] | {"clip_grad_max_norm": 0.05}

    def make(params):
        groups = [{"params": params[:2], **options}, {"params": params[2:], **options, "lr": 0.01}]
        return getattr(optim, name)(groups, lr=0.03)

    twins = Twins(make, exact=exact)
    before = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in twins.optimizers[0].param_groups])
    for step in range(5):
        twins.set(move_all(step))
        twins.step()
    assert recordings == [twins.graph.name]
    for group, old in zip(twins.optimizers[0].param_groups, before, strict=True):
        numbers = {k for k, v in old.items() if isinstance(v, float) and v} - {"clip_grad_norm_type"}
        assert len(numbers) > 1 and all(group[key] != old[key] for key in numbers)


@pytest.mark.parametrize("clip", CLIPS)
def test_bounds_on_gradients(clip, recordings):
    twins = Twins(lambda params: optim.SGD([{"params": params, **clip}], lr=0.1))
    for _ in range(4):
        twins.step()
        twins.set(lambda group: group.update(clip_grad_max_norm=group["clip_grad_max_norm"] * 0.5))
    assert len(recordings) == 1
    twins.set(lambda group: group.update(clip_grad_max_norm=-1.0))
    with pytest.raises(flow.errors.ArgumentError, match="max_norm=-1.0; expected a number of at least 0"):
        twins.graph(X)


class MovesAll(schedules.LRScheduler):
    """A schedule of weight decay and everything else that is a number."""

    def get_lr(self, base_lr, step):
        return base_lr * 0.9**step

    def _set(self):
        super()._set()
        for group in self.optimizer.param_groups:
            move_all(self.last_step)(group)


MOVING = {
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, 9),
    "one cycle in three phases": lambda o: schedules.OneCycleLR(o, 0.1, 9, three_phase=True, anneal_strategy="linear"),
    "cycles": lambda o: schedules.CyclicLR(o, 0.01, 0.1, 2),
    "range": lambda o: schedules.CyclicLR(o, 0.01, 0.1, 2, mode="exp_range", gamma=0.9),
    "sequence": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, 1.0, 3), schedules.CyclicLR(o, 0.01, 0.1, 2)], [3]
    ),
    "chain": lambda o: schedules.ChainedScheduler([schedules.CyclicLR(o, 0.01, 0.1, 2), schedules.StepLR(o, 2, 0.9)]),
    "warm-up": lambda o: schedules.WarmupLR(schedules.OneCycleLR(o, 0.1, 12), 0.1, 3, warmup_prefix=True),
    "everything": MovesAll,
}  # fmt: skip
WITH_MOMENTUM = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.9},
    "Adam": {"weight_decay": 0.1},
    "AdamW": {},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "LAMB": {"weight_decay": 0.1},
}


@pytest.mark.parametrize("schedule", MOVING)
@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_schedules_that_move_the_momentum(name, schedule, recordings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twins = Twins(lambda params: getattr(optim, name)(params, lr=0.1, **WITH_MOMENTUM[name]), MOVING[schedule])
        seen = set()
        for _ in range(8):
            twins.step()
            group = twins.optimizers[0].param_groups[0]
            seen.add(group["betas"][0] if "betas" in group else group["momentum"])
    assert len(recordings) == 1 and len(seen) > 2


ZEROS = {
    "momentum": (lambda ps: optim.SGD(ps, lr=0.1), "momentum", [0.0, 0.9, 0.8, 0.0, 0.5, 0.0], 3),
    "dampening": (lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9), "dampening", [0.0, 0.5, 0.25, 0.0, 0.5], 2),
    "momentum of RMSprop": (lambda ps: optim.RMSprop(ps, lr=0.1), "momentum", [0.0, 0.9, 0.8, 0.0, 0.5, 0.0], 2),
    "decay": (lambda ps: optim.Adam(ps, lr=0.1), "weight_decay", [0.0, 0.1, 0.2, 0.0, 0.1], 2),
    "decay of LAMB": (lambda ps: optim.LAMB(ps, lr=0.1), "weight_decay", [0.0, 0.1, 0.2, 0.0, 0.1], 2),
    "penalty of LAMB": (
        lambda ps: optim.LAMB(ps, lr=0.1, adam_w_mode=False), "weight_decay", [0.0, 0.1, 0.2, 0.0, 0.1], 2,
    ),
    "one of a pair": (lambda ps: optim.Adam(ps, lr=0.1), "betas", [(0.0, 0.9), (0.5, 0.9), (0.0, 0.8)], 2),
    "whole numbers": (lambda ps: optim.SGD(ps, lr=1, momentum=1), "weight_decay", [0, 1, np.float32(0.5), 0.25], 2),
    "a rate of 0": (lambda ps: optim.Adam(ps), "lr", [0.0, 0.1, 0.0], 1),
    "nothing": (lambda ps: optim.SGD(ps, lr=0.1), "momentum", [None, 0.9, None, 0.9], 3),
    "a switch": (lambda ps: optim.Adam(ps, lr=0.1), "maximize", [False, True, False, True], 2),
    "a switch as a number": (lambda ps: optim.Adam(ps, lr=0.1, amsgrad=0), "amsgrad", [0, 1, 1], 2),
    "the largest": (lambda ps: optim.Adam(ps, lr=0.1), "amsgrad", [False, True, True], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_numbers_that_become_0(name, recordings):
    make, key, values, count = ZEROS[name]
    twins = Twins(make)
    for value in values:
        twins.set(lambda group, value=value: group.update({key: value}))
        twins.step()
        twins.step()
    assert len(recordings) == count


def test_a_key_of_the_user_and_one_that_a_rule_computes_record_again(recordings):
    class Halved(optim.SGD):
        def attributes(self, group):
            return super().attributes(group) | {"weight_decay": group["weight_decay"] / 2 + group["more"]}

    twins = Twins(lambda ps: Halved([{"params": ps, "more": 0.1}], lr=0.1, weight_decay=0.2))
    for key in ("weight_decay", "more"):
        for _ in range(2):
            twins.step()
        twins.set(lambda group, key=key: group.update({key: group[key] * 2}))
    twins.step()
    assert len(recordings) == 3


def test_numbers_follow_a_state_that_is_loaded(recordings):
    twins = Twins(lambda ps: optim.AdamW(ps, lr=0.1))
    twins.step()
    for optimizer in twins.optimizers:
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0].update(betas=(0.5, 0.7), eps=1e-3, weight_decay=0.3)
        optimizer.load_state_dict(state)
    twins.step()
    twins.set(lambda group: group.update(betas=(0.4, 0.6)))
    twins.step()
    assert len(recordings) == 2  # loading replaces the states


def test_a_decay_that_sparse_updates_leave_out(recordings):
    table = {}

    def train(in_graph):
        flow.manual_seed(0)
        embedding = nn.Embedding(6, 2)
        optimizer = optim.SGD(embedding.parameters(), lr=0.1)

        class Lookup(nn.Graph):
            def __init__(self):
                super().__init__()
                self.embedding = embedding
                self.add_optimizer(optimizer, is_sparse=True)

            def build(self, i):
                loss = self.embedding(i).square().sum()
                loss.backward()
                return loss

        graph, i = Lookup(), flow.tensor([1, 4, 1])
        for decay in (0.0, 0.0, 0.5, 0.25, 0.0):
            optimizer.param_groups[0]["weight_decay"] = decay
            if in_graph:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    graph(i)
                table[decay] = [x.op.__name__ for x in graph.ir.instructions if x.op.mutates]
            else:
                optimizer.zero_grad()
                embedding(i).square().sum().backward()
                optimizer.step()
        return embedding.weight.detach()

    assert_close(train(True), train(False).numpy(), rtol=1e-6, atol=1e-7)
    assert len(recordings) == 2
    assert table == {0.0: ["SparseSgdUpdate"], 0.5: ["SgdUpdate"], 0.25: ["SgdUpdate"]}


def test_products_of_momenta_do_not_pile_up():
    from miniflow.formulas.update_rules import nadam_numbers, products_of_factors

    def expected(beta1, t):
        factors = [beta1 * (1 - 0.5 * 0.96 ** (k * 0.004)) for k in range(1, t + 2)]
        product = np.prod(factors[:t], dtype=np.longdouble)
        return 0.1 * (1 - factors[t - 1]) / (1 - product), 0.1 * factors[t] / (1 - product * factors[t])

    products_of_factors.cache_clear()
    for t in (1, 2, 7, 40, 3):
        for beta1 in (0.9, 0.85, 0.5):
            got = nadam_numbers(0.1, (beta1, 0.99), 1e-8, 0.0, 0.004, False, t)
            np.testing.assert_allclose(got[1:3], np.array(expected(beta1, t), float), rtol=1e-12)
    assert products_of_factors.cache_info().currsize == 1
