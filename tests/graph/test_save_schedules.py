"""A graph that was saved goes on with its schedules."""

import copy

import numpy as np
import pytest
from checks import assert_same
from folders import document_of, sign
from twins import SCHEDULERS

import miniflow as flow
from miniflow import nn, optim
from miniflow.errors import CheckpointError
from miniflow.graph.saved.schedules import SCHEDULES
from miniflow.optim import lr_scheduler as schedules

WITH_FUNCTIONS = {"LambdaLR", "MultiplicativeLR"}
MORE = {
    "momentum": [lambda o: schedules.OneCycleLR(o, 0.1, 12, three_phase=True)],
    "cycles": [lambda o: schedules.CyclicLR(o, [0.01, 0.02], [0.1, 0.2], 2, mode="exp_range", gamma=0.9)],
    "warm-up of a cycle": [lambda o: schedules.WarmupLR(schedules.OneCycleLR(o, 0.1, 12), 0.1, 3, warmup_prefix=True)],
    "schedules of schedules": [
        lambda o: schedules.SequentialLR(
            o,
            [
                schedules.WarmupLR(o, 0.1, 2),
                schedules.ChainedScheduler([schedules.StepLR(o, 2), schedules.ExponentialLR(o, 0.9)]),
            ],
            [3],
        )
    ],
    "cycle after a warm-up": [
        lambda o: schedules.SequentialLR(o, [schedules.LinearLR(o), schedules.CyclicLR(o, 0.01, 0.1, 2)], [4])
    ],
}
CASES = [
    (name, i) for name, cases in (SCHEDULERS | MORE).items() if name not in WITH_FUNCTIONS for i in range(len(cases))
]
RULES = {
    "SGD": {"momentum": 0.9},
    "Adam": {"weight_decay": 0.1},
}


class Train(nn.Graph):
    def __init__(self, make, rule="SGD", scaler=None, **options):
        super().__init__()
        flow.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        first, *rest = self.model.parameters()
        groups = [{"params": [first], "lr": 0.05, "lr_scale": 0.7, **options}, {"params": rest}]
        optimizer = getattr(optim, rule)(groups, lr=0.1, **RULES[rule])
        self.add_optimizer(optimizer, lr_sch=make(optimizer))
        if scaler is not None:
            self.set_grad_scaler(scaler)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


X = [flow.tensor(np.random.default_rng(i).normal(size=(4, 3)).astype(np.float32)) for i in range(8)]


def numbers_of(graph):
    """What a graph reads of its groups."""
    return {name: s.source() for name, s in graph.recorded.scalars().items()}


def go_on(graph, *loaded, steps=7):
    """Compare steps, and return the rates of the last group."""
    rates = {graph._optimizers[-1].param_groups[-1]["lr"]}
    for x in X[:steps]:
        expected = graph(x)
        for other in loaded:
            assert_same(other(x), expected.numpy())
            assert other.numbers == numbers_of(graph)
        rates.add(graph._optimizers[-1].param_groups[-1]["lr"])
    for other in loaded:
        for name, value in graph.model.state_dict().items():
            assert_same(other.state_dict()[f"model.{name}"], value.numpy())
    return rates


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("name", "i"), CASES)
def test_every_schedule_goes_on(name, i, rule, tmp_path):
    graph = Train((SCHEDULERS | MORE)[name][i], rule)
    graph(X[0])
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    flow.save(loaded, tmp_path / "again")
    rates = go_on(graph, loaded, flow.load(tmp_path / "again"))
    assert len(rates) > 1, "the rate is the same in all steps: the comparison shows nothing"


def test_every_schedule_without_functions_is_here():
    assert set(SCHEDULES) - {"WarmUpLR"} - WITH_FUNCTIONS <= set(SCHEDULERS)


def test_rates_and_decays_that_are_set_by_hand(tmp_path):
    graph = Train(lambda o: schedules.StepLR(o, 2, 0.5), "Adam")
    graph(X[0])
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    for group in graph._optimizers[0].param_groups:
        group["lr"] = 0.25 / group.get("lr_scale", 1.0)
        group.update(weight_decay=0.2, betas=(0.5, 0.75))
    loaded.set_lr(0.25)
    for name in loaded.numbers:
        if name.endswith("weight_decay"):
            loaded.numbers[name] = 0.2
        elif "betas" in name:
            loaded.numbers[name] = 0.5 if name.endswith("0") else 0.75
    flow.save(loaded, tmp_path / "set")
    again = flow.load(tmp_path / "set")
    for x in X[:5]:
        expected = graph(x).numpy()
        for other in (loaded, again):
            np.testing.assert_allclose(other(x).numpy(), expected, rtol=1e-6)
            assert other.numbers == pytest.approx(numbers_of(graph), rel=1e-12)
    assert loaded.numbers["optimizer.0.1.lr"] == 0.25 * 0.5**3


def test_a_step_that_is_left_out_does_not_count(tmp_path):
    scaler = flow.amp.GradScaler(init_scale=1024.0)
    graph = Train(lambda o: schedules.ExponentialLR(o, 0.5), scaler=scaler)
    graph(X[0])
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    for x in (X[1], X[1] * float("inf"), X[2]):
        loaded(x), graph(x)
    assert loaded.numbers["optimizer.0.1.lr"] == graph._optimizers[0].param_groups[1]["lr"] == 0.1 * 0.5**3


def test_two_optimizers_one_with_a_schedule(tmp_path):
    class Two(nn.Graph):
        def __init__(self):
            super().__init__()
            flow.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
            self.add_optimizer(optim.SGD(self.model[0].parameters(), lr=0.1))
            second = optim.SGD(self.model[1].parameters(), lr=0.2)
            self.add_optimizer(second, lr_sch=schedules.StepLR(second, 1, 0.5))

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    graph = Two()
    graph(X[0])
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    go_on(graph, loaded, steps=3)
    assert (loaded.numbers["optimizer.0.0.lr"], loaded.numbers["optimizer.1.0.lr"]) == (0.1, 0.2 * 0.5**4)


class Mine(schedules.LRScheduler):
    def get_lr(self, base_lr, step):
        return base_lr / (1 + step)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda o: schedules.LambdaLR(o, lambda t: 0.5),
            "LambdaLR calls a function, lr_lambda, .* set_lr",
        ),
        (lambda o: schedules.CyclicLR(o, 0.1, 0.2, scale_fn=lambda t: 0.5), "CyclicLR calls a function, scale_fn"),
        (lambda o: schedules.WarmupLR(schedules.LambdaLR(o, lambda t: 0.5)), "LambdaLR calls a function, lr_lambda"),
        (Mine, "the schedule Mine is Python code of yours, which a file cannot hold"),
        (lambda o: schedules.SequentialLR(o, [Mine(o), schedules.StepLR(o, 2)], [2]), "Mine is Python code of yours"),
    ],
)
def test_code_is_refused(make, message, tmp_path):
    graph = Train(make)
    graph(X[0])
    with pytest.raises(CheckpointError, match=message):
        flow.save(graph, tmp_path / "g")
    assert not (tmp_path / "g").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schedules") / "g"
    graph = Train(MORE["schedules of schedules"][0])
    graph(X[0])
    flow.save(graph, folder)
    return folder, document_of(folder)


def outer(document):
    """The schedule of the graph."""
    return document["graph"]["schedules"][0]["tuple"][1]["schedule"]


def inner(document):
    """The attributes of the first schedule in the sequence."""
    return outer(document)["state"]["dict"]["schedulers"][0]["schedule"]["state"]["dict"]


def group(document):
    """The first group of the optimizer."""
    return inner(document)["optimizer"]["optimizer"][0]["dict"]


def emptied(document):
    """The sequence has no schedules."""
    outer(document)["state"]["dict"].update(optimizer=inner(document)["optimizer"], schedulers=[])


CYCLE = {"kind": "CosineAnnealingWarmRestarts", "state": {"dict": {
    "optimizer": {"optimizer": [{"dict": {"lr": 1.0}}] * 2},
    "T_0": 0, "T_mult": 2, "eta_min": 0.0, "decay_rate": 1.0, "restart_limit": 0, "last_step": 3,
    "base_lrs": [1.0, 1.0], "_start_lrs": [1.0, 1.0], "_last_lr": [1.0, 1.0]}}}  # fmt: skip
HOSTILE = {
    "no list": (lambda d: d["graph"].update(schedules={"dict": {}}), "schedules: got {}; expected another value"),
    "no number": (
        lambda d: d["graph"]["schedules"][0].update(tuple=["0", 1]),
        "schedules: got .*another value",
    ),
    "no optimizer": (lambda d: outer(d)["state"]["dict"].pop("optimizer"), r"schedules\[0\]\[1\]: "),
    "no class": (lambda d: outer(d).update(kind="Popen"), "kind: got 'Popen'; expected another value"),
    "a base class": (lambda d: outer(d).update(kind="LRScheduler"), "kind: got 'LRScheduler'; expected another"),
    "a method": (lambda d: inner(d).update(step=1), "got 'step'; expected the name of an attribute"),
    "another optimizer": (lambda d: inner(d).update(optimizer=1), "got 1; expected another optimizer"),
    "another step": (lambda d: inner(d).update(last_epoch=1), "got 'last_epoch'; expected the name of an attribute"),
    "an op": (lambda d: inner(d).update(warmup_iters={"op": "Slice"}), "expected another warmup_iters: numbers"),
    "a number that varies": (lambda d: inner(d).update(warmup_iters={"scalar": "lr"}), "got .lr.; expected one of"),
    "too few rates": (lambda d: inner(d).update(base_lrs=[0.1]), r"got \[0.1\]; expected another base_lrs for 2"),
    "a missing attribute": (lambda d: inner(d).pop("warmup_factor"), "AttributeError: .*warmup_factor"),
    "a step that is none": (lambda d: inner(d).update(last_step="3"), "got '3'; expected another last_step"),
    "no schedules": (emptied, r"got \[\]; expected schedules"),
    "a group without a rate": (lambda d: group(d).pop("lr"), "expected numbers .* with the name lr"),
    "a rate that is none": (lambda d: group(d).update(lr="1"), "expected numbers .* with the name lr"),
    "rates in place of one": (lambda d: group(d).update(lr={"tuple": [1, 2]}), "expected numbers .* with the name lr"),
    "a cycle without end": (lambda d: outer(d).update(CYCLE), "got 0; expected another T_0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schedules(name, saved, tmp_path):
    change, message = HOSTILE[name]
    folder, document = tmp_path / "g", copy.deepcopy(saved[1])
    folder.mkdir()
    for path in saved[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(document)
    sign(document, folder)
    with pytest.raises(CheckpointError, match=message):
        flow.load(folder)
