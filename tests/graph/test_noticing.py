"""A compiled graph records again when something that it was recorded with has changed, and only then."""

import collections
import copy
import dataclasses
import functools
import random
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from networks import Predict, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError, GraphTraceError

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], np.float32)


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


class Chain(nn.Module):
    """All children, parameters of lists and buffers, one after the other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Twice()])
        self.heads = nn.ModuleDict({"a": Twice()})
        self.sequence = nn.Sequential(Twice())
        self.factors = nn.ParameterList([nn.Parameter(flow.tensor(2.0))])

    def forward(self, x):
        for layer in (*self.layers, *self.heads.values(), self.sequence):
            x = layer(x)
        for factor in (*self.factors, *self._buffers.values()):
            x = x * factor
        return x + len(list(self.children()))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.layers.append(Twice()),
        lambda m: m.layers.insert(0, nn.Tanh()),
        lambda m: m.sequence.append(nn.Tanh()),
        lambda m: m.sequence.insert(0, nn.Tanh()),
        lambda m: m.heads.__setitem__("b", Twice()),
        lambda m: m.heads.__delitem__("a"),
        lambda m: m.add_module("more", Twice()),
        lambda m: setattr(m, "more", Twice()),
        lambda m: m.factors.append(nn.Parameter(flow.tensor(5.0))),
        lambda m: m.register_buffer("extra", flow.tensor(3.0)),
    ],
)
def test_new_members_of_modules(change):
    model = Chain()
    graph, x = Predict(model), flow.tensor(X)
    graph(x)
    change(model)
    np.testing.assert_allclose(graph(x).numpy(), model(x).detach().numpy(), rtol=1e-6)


def test_another_order_of_the_same_members():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    graph, x = Predict(model), flow.tensor(X)
    before = graph(x).numpy()
    model._modules["0"] = model._modules.pop("0")
    after = model(x).detach().numpy()
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(graph(x).numpy(), after, rtol=1e-6)


class Scale(nn.Module):
    k = 2.0

    def __init__(self):
        super().__init__()
        self._p = 2.0
        self.function = flow.relu
        self.list = [1.0, 2.0]
        self.dict = {"a": {"b": 2.0}}
        self.config = SimpleNamespace(p=2.0)
        self.number = np.float32(2)
        self.mask = flow.tensor([1.0, 0.0, 1.0])

    def forward(self, x):
        x = self.function(x * self._p) * self.list[0] * self.dict["a"]["b"] * self.mask
        return x * self.number * self.k * self.config.p


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m, "_p", 3.0), "model._p is 3.0, was 2.0"),
        (lambda m: setattr(m, "function", flow.tanh), "model.function is tanh, was relu"),
        (lambda m: setattr(m, "list", [3.0]), "model.list is [3.0], was [1.0, 2.0]"),
        (lambda m: m.list.__setitem__(0, 3.0), "model.list is [3.0, 2.0], was [1.0, 2.0]"),
        (lambda m: m.dict["a"].update(b=3.0), "model.dict is {'a': {'b': 3.0}}, was {'a': {'b': 2.0}}"),
        (lambda m: setattr(m.config, "p", 3.0), "model.config is {'p': 3.0}, was {'p': 2.0}"),
        (lambda m: setattr(m, "number", np.float32(3)), "model.number is "),
        (lambda m: setattr(m, "mask", flow.tensor([0.0, 1.0, 1.0])), "model.mask is another object"),
        (lambda m: setattr(m.mask, "data", flow.tensor([0.0, 1.0, 1.0])), ""),
        (lambda m: setattr(m, "forward", lambda x: x * 3), "model.forward is new"),
        (lambda m: setattr(m, "k", 3.0), "model.k is new"),
    ],
)
def test_attributes_of_modules(change, message, capsys):
    model = Scale()
    graph, x = Predict(model), flow.tensor(X)
    graph(x)
    graph.debug(0)
    change(model)
    for _ in range(2):
        np.testing.assert_allclose(graph(x).numpy(), model(x).numpy(), rtol=1e-6)
    assert message in capsys.readouterr().out
    assert len(graph._compilations) == 1 and sum(graph._compilations.values()) <= 2


class Leaves(nn.Module):
    """What forward leaves behind in attributes."""

    def __init__(self):
        super().__init__()
        self.shape, self.activations = None, []

    def forward(self, x):
        self.shape, self.last = x.shape, x * 1
        self.activations.append(x * 2)
        return x * 3


def test_what_forward_leaves_behind_is_not_a_reason_to_record_again():
    model = Leaves()
    graph = Predict(model)
    counts = []
    for size in (2, 3) * 4:
        graph(normal(size, 3))
        model(normal(size + 2, 3))
        counts.append(sum(graph._compilations.values()))
    assert counts == [1, 2] + 6 * [2]


def test_an_equal_value_is_not_a_reason_to_record_again():
    model = Scale()
    graph, x = Predict(model), flow.tensor(X)
    model.shape, model.activation, model.config = (300, 400), flow.ones(2), SimpleNamespace(p=2.0)
    graph(x)
    plan = graph._last
    model.shape, model._p, model.list = tuple([300, 400]), float("2"), [1.0, 2.0]
    model.config = SimpleNamespace(p=2.0)
    model.activation = flow.zeros(3)  # build did not read it
    graph(x)
    assert graph._last is plan


class Reads(nn.Module):
    """Its forward is a function of the module and x, which reads attributes given by name."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


class Config:
    def __init__(self, **fields):
        vars(self).update(fields)


class Multiplier:
    def __init__(self, scale):
        self.scale = scale

    def apply(self, x):
        return x * self.scale

    def add(self, x):
        return x + self.scale


@dataclasses.dataclass(slots=True)
class Data:
    scale: float


class Slots:
    __slots__ = ("scale", "unset")

    def __init__(self, scale):
        self.scale = scale


def cycle():
    held = [1.0]
    held.append(held)
    return held


def chained(depth=3000):
    held = [1.0]
    for _ in range(depth):
        held = [held]
    return held


def innermost(held):
    while isinstance(held[0], list):
        held = held[0]
    return held


def scales(m):
    return sum(value for name, value in vars(m).items() if name.startswith("scale"))


def nested():
    return {"a": {"b": {"c": {"d": 2.0}}}}


def first(held):
    return ord(next(iter(held)))


@pytest.mark.parametrize(
    ("make", "forward", "change"),
    [
        (lambda: np.float32([1, 2, 3]), lambda m, x: x * flow.tensor(m.held), lambda m: m.held.__setitem__(1, 7)),
        (lambda: np.ones((2, 3)).T, lambda m, x: x * m.held[2, 0], lambda m: m.held.__imul__(2)),
        (lambda: np.array([2.0, None]), lambda m, x: x * m.held[0], lambda m: m.held.__setitem__(0, 5.0)),
        (lambda: [1.0] * 300, lambda m, x: x * sum(m.held), lambda m: m.held.__setitem__(299, 3.0)),
        (lambda: dict.fromkeys("abc" * 99, 1), lambda m, x: x * m.held["c"], lambda m: m.held.update(c=3)),
        (nested, lambda m, x: x * m.held["a"]["b"]["c"]["d"], lambda m: m.held["a"]["b"]["c"].update(d=3.0)),
        (chained, lambda m, x: x * innermost(m.held)[0], lambda m: innermost(m.held).__setitem__(0, 5.0)),
        (cycle, lambda m, x: x * m.held[1][0], lambda m: m.held.__setitem__(0, 5.0)),
        (list, lambda m, x: sum(m.held, x), lambda m: m.held.append(flow.tensor(3.0))),
        (lambda: None, lambda m, x: x if m.held is None else x + m.held, lambda m: setattr(m, "held", flow.ones(3))),
        (lambda: {1.0, 2.0}, lambda m, x: x * sum(m.held), lambda m: (m.held.clear(), m.held.update({3.0, 4.0}))),
        (lambda: collections.deque([1.0, 2.0]), lambda m, x: x * m.held[0], lambda m: m.held.rotate()),
        (lambda: bytearray(b"abc"), lambda m, x: x * m.held[0], lambda m: m.held.__setitem__(0, 3)),
        (lambda: {"a": 1, "b": 1}, lambda m, x: x * first(m.held), lambda m: m.held.update(a=m.held.pop("a"))),
        (lambda: collections.OrderedDict(a=1, b=1), lambda m, x: x * first(m.held), lambda m: m.held.move_to_end("a")),
        (lambda: collections.defaultdict(float, z=2.0), lambda m, x: x * m.held["z"], lambda m: m.held.update(z=3.0)),
        (lambda: Config(scale=2.0), lambda m, x: x * m.held.scale, lambda m: setattr(m.held, "scale", 3.0)),
        (lambda: Config(scales=[2.0]), lambda m, x: x * sum(m.held.scales), lambda m: m.held.scales.append(3.0)),
        (
            lambda: Config(inner=Config(inner=SimpleNamespace(scale=2.0))),
            lambda m, x: x * m.held.inner.inner.scale,
            lambda m: setattr(m.held.inner.inner, "scale", 3.0),
        ),
        (
            lambda: Config(inner=Config(function=flow.relu)),
            lambda m, x: m.held.inner.function(x),
            lambda m: setattr(m.held, "inner", Config(function=flow.tanh)),
        ),
        (lambda: Multiplier(2.0).apply, lambda m, x: m.held(x), lambda m: setattr(m.held.__self__, "scale", 3.0)),
        (lambda: Multiplier(2.0).apply, lambda m, x: m.held(x), lambda m: setattr(m, "held", m.held.__self__.add)),
        (lambda: Data(2.0), lambda m, x: x * m.held.scale, lambda m: setattr(m.held, "scale", 3.0)),
        (lambda: Slots(2.0), lambda m, x: x * m.held.scale, lambda m: setattr(m.held, "scale", 3.0)),
        (lambda: (Config(scale=2.0),), lambda m, x: x * m.held[0].scale, lambda m: setattr(m.held[0], "scale", 3.0)),
        (
            lambda: functools.partial(flow.mul, 2.0),
            lambda m, x: m.held(x),
            lambda m: setattr(m, "held", functools.partial(flow.mul, 3.0)),
        ),
        (lambda: None, lambda m, x: x * getattr(m, "extra", 2.0), lambda m: setattr(m, "extra", 3.0)),
        (lambda: [2.0], lambda m, x: x * vars(m)["held"][0], lambda m: m.held.__setitem__(0, 3.0)),
        (lambda: None, lambda m, x: x * scales(m), lambda m: setattr(m, "scale", 3.0)),
    ],
)  # fmt: skip
def test_what_attributes_hold_is_compared_to_the_last_element(make, forward, change):
    model = Reads(forward, held=make())
    graph, x = Predict(model), flow.tensor(X)
    for _ in range(2):
        np.testing.assert_allclose(graph(x).numpy(), model(x).numpy(), rtol=1e-6)
    before = graph._last
    change(model)
    for _ in range(2):
        np.testing.assert_allclose(graph(x).numpy(), model(x).numpy(), rtol=1e-6)
    assert graph._last is not before and sum(graph._compilations.values()) == 2


def test_what_build_does_not_read_is_not_compared():
    model = Reads(lambda m, x: x * m.scale, scale=2.0, vocabulary=list(range(2_000_000)), meter=Config(count=0))
    graph, x = Predict(model), flow.tensor(X)
    graph(x)
    plan = graph._last
    model.vocabulary[7], model.meter.count, model.other = 3, 1, [1]
    graph(x)
    assert graph._last is plan


def test_more_values_than_can_be_compared_in_each_call():
    graph = Predict(Reads(lambda m, x: x * m.table[0], table=[1.0] * 1_000_001))
    with pytest.raises(GraphTraceError, match=r"model\.table .* more than 1,000,000 values.*register_buffer"):
        graph(flow.tensor(X))


def set_in_training(m, x):
    if m.training:
        m.size = x.shape[0]
        return x * 1
    return x * m.size


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("apart", [False, True])
def test_an_attribute_that_is_set_in_training_and_read_in_evaluation(first, apart):
    ours, eager = (Reads(set_in_training, size=5) for _ in range(2))
    graphs = {True: Predict(ours)}
    graphs[False] = Predict(ours) if apart else graphs[True]
    for training, size in [
        (first, 2),
        (not first, 2),
        (True, 3),
        (False, 2),
        (True, 2),
        (False, 2),
        (True, 3),
        (False, 2),
    ]:
        x = normal(size, 3)
        got, expected = graphs[training](x) if ours.train(training) else None, eager.train(training)(x)
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
        assert ours.size == eager.size


def test_an_attribute_that_every_call_sets_to_what_it_was_in_the_recording():
    def forward(m, x):
        m.sizes = [x.shape[0]]
        m.passing = 0
        del m.passing
        return x * 1

    model = Reads(forward, passing=1)
    graph, x = Predict(model), flow.tensor(X)
    for _ in range(3):
        graph(x)
        assert model.sizes == [2] and not hasattr(model, "passing")
        model.sizes.append(3)
        model.passing = 4


def tensor_of_training(m, x):
    if m.training:
        m.held = x * 2
        return x * 1
    return x + m.held


@pytest.mark.filterwarnings("ignore:.*build left tensors in model.held")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("apart", [False, True])
def test_a_tensor_that_is_set_in_training_and_read_in_evaluation_is_refused(first, apart):
    model = Reads(tensor_of_training, held=flow.zeros(3))
    graphs = {True: Predict(model)}
    graphs[False] = Predict(model) if apart else graphs[True]
    graphs[first](flow.tensor(X)) if model.train(first) else None
    model.train(not first)
    with pytest.raises(GraphTraceError, match=r"the tensor in model\.held is set .*register_buffer\('held'"):
        graphs[not first](flow.tensor(X))
    assert model.held.tolist() == [0.0] * 3


def count(m, x):
    m.calls += 1
    return x * m.calls


def count_in_a_list(m, x):
    m.calls[0] += 1
    return x * m.calls[0]


def count_in_a_dict(m, x):
    m.calls["n"] = m.calls["n"] + 1
    return x * m.calls["n"]


def count_beside_a_tensor(m, x):
    m.calls["n"] += 1
    return x * m.calls["n"] + m.calls["scale"]


def count_entries(m, x):
    m.calls.append(0)
    return x * len(m.calls)


def count_in_an_array(m, x):
    m.calls += 1
    return x * float(m.calls[0])


def count_beside_an_activation(m, x):
    m.last = x * 2
    return count(m, x)


def count_in_vars(m, x):
    vars(m)["calls"] += 1
    return x * m.calls


def toggle(m, x):
    m.calls = not m.calls
    return x * (2.0 if m.calls else 3.0)


@pytest.mark.parametrize(
    ("forward", "calls"),
    [
        (count, 0),
        (count_beside_an_activation, 0),
        (count_in_vars, 0),
        (count_in_a_list, [0]),
        (count_in_a_dict, {"n": 0}),
        (count_beside_a_tensor, {"n": 0, "scale": flow.ones(3)}),
        (count_entries, []),
        (count_in_an_array, np.zeros(1)),
        (toggle, False),
    ],
)
def test_a_counter_in_forward_is_refused(forward, calls):
    model, before = Reads(forward, calls=calls), copy.deepcopy(calls)
    with pytest.raises(
        GraphTraceError, match=r"build reads model\.calls and then changes it.*register_buffer\('calls'"
    ):
        Predict(model)(flow.tensor(X))
    assert model.calls is calls and str(model.calls) == str(before)
    model(flow.tensor(X))


def test_a_counter_of_the_graph_is_refused():
    class Counts(nn.Graph):
        def build(self, x):
            self.calls += 1
            return x * self.calls

    graph = Counts()
    graph.calls = 0
    with pytest.raises(GraphTraceError, match=r"build reads Counts_\d+\.calls and then changes it"):
        graph(flow.tensor(X))
    assert graph.calls == 0


def test_an_object_that_build_changes_is_read_again_in_each_call():
    class Meter:
        count = 0

        def next(self):
            self.count += 1
            return self.count

    ours, eager = (Reads(lambda m, x: x * m.meter.next(), meter=Meter()) for _ in range(2))
    graph, x = Predict(ours), flow.tensor(X)
    with pytest.warns(UserWarning, match=r"compiled for the 4th .*\.meter is {'count': 3}, was {'count': 2}"):
        for _ in range(5):
            np.testing.assert_array_equal(graph(x).numpy(), eager(x).numpy())


def test_properties_that_are_cached():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = 2.0

        @functools.cached_property
        def factor(self):
            return self.base * 2

        def forward(self, x):
            return x * self.factor

    model, x = Cached(), flow.tensor(X)
    graph = Predict(model)
    np.testing.assert_array_equal(graph(x).numpy(), X * 4)
    assert "factor" not in vars(model)
    model.base = 3.0
    np.testing.assert_array_equal(graph(x).numpy(), model(x).numpy())
    np.testing.assert_array_equal(graph(x).numpy(), X * 6)


def test_attributes_that_are_written_past_setattr():
    model = Reads(lambda m, x: x * m.scale, scale=2.0)
    graph, x = Predict(model), flow.tensor(X)
    for value in (2.0, 3.0, 4.0):
        vars(model)["scale"] = value
        np.testing.assert_array_equal(graph(x).numpy(), X * value)


def test_tables_that_are_written_past_the_module():
    model = Chain()
    graph, x = Predict(model), flow.tensor(X)
    for change in (
        lambda: model._buffers.update(extra=flow.tensor(3.0)),
        lambda: model._buffers.__setitem__("extra", flow.tensor(5.0)),
        lambda: model.factors._parameters.update({"0": nn.Parameter(flow.tensor(7.0))}),
        lambda: model.sequence._modules.__setitem__("0", nn.Tanh()),
        lambda: model._buffers.pop("extra"),
    ):
        np.testing.assert_allclose(graph(x).numpy(), model(x).detach().numpy(), rtol=1e-6)
        change()
    np.testing.assert_allclose(graph(x).numpy(), model(x).detach().numpy(), rtol=1e-6)


SCALE = [2.0]


@pytest.mark.parametrize(
    "number",
    [
        lambda m: SCALE[0],
        lambda m: m.function.__defaults__[0],
        lambda m: type(m).k,
        lambda m: np.random.random(),
        lambda m: random.random(),
        lambda m: time.perf_counter() % 1,
    ],
)
def test_what_is_burned_in(number):
    """As the table in docs/architecture.md says."""
    model = type("Own", (Reads,), {"k": 2.0})(lambda m, x, k=2.0: x * number(m))
    graph, x = Predict(model), flow.tensor(X)
    first = graph(x).numpy()
    SCALE[0], type(model).k, model.function.__defaults__ = SCALE[0] + 1, 3.0, (3.0,)
    np.testing.assert_array_equal(graph(x).numpy(), first)
    assert (model(x).numpy() != first).any()


def test_random_numbers_of_the_library_are_drawn_in_each_call():
    graph, x = Predict(Reads(lambda m, x: x * flow.rand(3))), flow.tensor(X)
    assert (graph(x).numpy() != graph(x).numpy()).all()


class Writes(nn.Graph):
    """Writes to an input, and reads the other before or afterwards."""

    def __init__(self, reads_first=False, writes_second=False):
        super().__init__()
        self.reads_first, self.writes_second = reads_first, writes_second

    def build(self, x, y):
        if self.writes_second:
            x, y = y, x
        early = y * 1
        x.mul_(2)
        return x + early if self.reads_first else x + y


@pytest.mark.filterwarnings("ignore:.*build writes to its input")
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("overlap", [lambda x: x, lambda x: x.detach(), lambda x: x[:], lambda x: x.t().t()])
def test_inputs_that_share_memory_of_which_one_is_written(second, overlap, tmp_path):
    for warm in (False, True):
        graph, x = Writes(writes_second=second), flow.tensor(X)
        if warm:
            graph(x, x.clone())
        for _ in range(2):
            with pytest.raises(GraphError, match=r"share memory, and build writes to one.*\.clone\(\)"):
                graph(x, overlap(x))
        np.testing.assert_array_equal(graph(x, x.clone()).numpy(), X * 3)
    flow.save(graph, tmp_path / "graph")
    with pytest.raises(GraphError, match="share memory, and build writes to one"):
        nn.Graph.load(tmp_path / "graph")(x, overlap(x))
    graph = Writes(reads_first=True, writes_second=second)
    np.testing.assert_array_equal(graph(x, x).numpy(), X * 3)
    columns = flow.tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
    np.testing.assert_array_equal(
        Writes()(columns[:, :2], columns[:, 2:]).numpy(), columns[:, :2].numpy() * 2 + columns[:, 2:].numpy()
    )


@pytest.mark.filterwarnings("ignore:.*build writes to its input")
def test_global_inputs_that_share_memory_of_which_one_is_written():
    flow.parallel.simulate(2)
    try:
        where = flow.placement("cpu", [0, 1])
        graph, x, y = Writes(), *(flow.tensor(X).to_global(where, flow.sbp.split(0)) for _ in range(2))
        np.testing.assert_array_equal(graph(x, y).numpy(), np.concatenate([X, X]) * 3)
        with pytest.raises(GraphError, match="share memory, and build writes to one"):
            graph(x, x)
    finally:
        flow.parallel.simulate(1)


class Attributes(nn.Graph):
    def __init__(self):
        super().__init__()
        self.alpha, self.layers, self.aux = 2.0, [Twice()], Twice()

    def build(self, x):
        x = self.layers[0](x) * self.alpha
        return x if self.aux is None else self.aux(x)


@pytest.mark.filterwarnings("ignore:.*compiled for the 4th time")
def test_attributes_of_the_graph(capsys):
    graph, x = Attributes(), flow.tensor(X)
    graph(x)
    graph.debug(0)
    graph.alpha = 3.0
    np.testing.assert_array_equal(graph(x).numpy(), X * 12)
    graph.layers[0] = nn.Identity()
    np.testing.assert_array_equal(graph(x).numpy(), X * 6)
    graph.aux = None
    np.testing.assert_array_equal(graph(x).numpy(), X * 3)
    out = capsys.readouterr().out
    assert f"{graph.name}.alpha is 3.0, was 2.0" in out
    assert "compiles again, since something has changed: its attribute 'aux' is not a module any more." in out


def momentum(model):
    return flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model):
    return flow.optim.Adam(model.parameters(), lr=0.1)


class Training(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def train_both(make, change, steps=2):
    """Parameters after steps of a graph and of eager code, with `change(model, optimizer)` in between."""
    a, b = pair(lambda: nn.Linear(4, 3))
    x, y = normal(8, 4), labels(8)
    first, second = make(a), make(b)
    graph = Training(a, first)
    for part in range(2):
        if part:
            change(a, first)
            change(b, second)
        for _ in range(steps):
            graph(x, y)
            eager_step(b, [second], x, y)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-7)


def replace_states(model, optimizer):
    for entry in optimizer.state.values():
        entry.update({key: flow.zeros(*v.shape) for key, v in entry.items() if isinstance(v, flow.Tensor)})


@pytest.mark.parametrize("make", [momentum, adam])
@pytest.mark.parametrize(
    "change",
    [
        lambda m, o: o.state.clear(),
        lambda m, o: o.state.__setitem__(m.weight, {}),
        replace_states,
        lambda m, o: o.param_groups[0].update(params=[m.bias]),
        lambda m, o: o.param_groups[0]["params"].__setitem__(slice(0, 2), [m.bias]),
    ],
)
def test_states_and_parameters_of_optimizers(make, change):
    train_both(make, change)


@pytest.mark.parametrize("make", [momentum, adam])
def test_a_parameter_of_a_group_is_exchanged_for_an_equal_one(make):
    w, v = (flow.ones(1, requires_grad=True) for _ in range(2))
    optimizer = flow.optim.SGD([w], lr=0.1)

    class Product(nn.Graph):
        def __init__(self):
            super().__init__()
            self.add_optimizer(optimizer)

        def build(self, x):
            (w * v * x).sum().backward()

    graph = Product()
    graph(flow.zeros(1))
    optimizer.param_groups[0]["params"][0] = v
    graph(flow.ones(1))
    assert w.tolist() == [1.0] and v.tolist() == pytest.approx([0.9])


@pytest.mark.filterwarnings("ignore:.*compiled for the 4th time")
def test_hooks_of_tensors_that_come_and_go():
    a, b = pair(lambda: nn.Linear(4, 3))
    first, second = (flow.optim.SGD(m.parameters(), lr=0.1) for m in (a, b))
    graph, x, y = Training(a, first), normal(8, 4), labels(8)
    handles = {m: m.weight.register_hook(lambda g: g) for m in (a, b)}
    for factor in range(1, 8):
        graph(x, y)
        eager_step(b, [second], x, y)
        np.testing.assert_allclose(a.weight.detach().numpy(), b.weight.detach().numpy(), rtol=1e-5)
        for m in (b, a):
            handles.pop(m).remove()  # the new hook may lie where this one was
            handles[m] = m.weight.register_hook(lambda g, factor=factor: g * factor)


def test_hooks_that_come_after_a_gradient():
    a, b = pair(lambda: nn.Linear(4, 3))
    first, second = (flow.optim.SGD(m.parameters(), lr=0.1) for m in (a, b))
    graph, x, y = Training(a, first), normal(8, 4), labels(8)
    for hooked in (False, True):
        for m in (a, b) if hooked else ():
            m.weight.register_post_accumulate_grad_hook(lambda w: setattr(w, "grad", w.grad * 3))
        graph(x, y)
        eager_step(b, [second], x, y)
        np.testing.assert_allclose(a.weight.detach().numpy(), b.weight.detach().numpy(), rtol=1e-5)


def test_hooks_outlive_freezing():
    calls = []
    w = flow.ones(2, requires_grad=True)
    handle = w.register_hook(lambda g: calls.append(1) or g * 10)
    w.requires_grad_(False).requires_grad_(True)
    (w * 2).sum().backward()
    assert w.grad.tolist() == [20.0, 20.0] and calls == [1]
    handle.remove()
    (w * 2).sum().backward()
    assert calls == [1]

    def freeze_and_thaw(model, optimizer):
        model.requires_grad_(False).requires_grad_(True)

    def hooked(model):
        model.weight.register_hook(lambda g: g * 10)
        return momentum(model)

    train_both(hooked, freeze_and_thaw)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(flow.ones(3, 3))

    def forward(self, x):
        return self.w.reshape(-1) * x


def test_other_strides(capsys):
    model = Flat()
    graph, x = Predict(model), normal(9)
    graph(x)
    graph.debug(0)
    model.w.data = normal(3, 3).t()
    np.testing.assert_array_equal(graph(x).numpy(), model(x).detach().numpy())
    assert "model.w has strides of (4, 12) bytes, had (12, 4)" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["other memory", "frozen", "first frozen"])
def test_tensors_that_share_memory(change):
    def make():
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        model[1].weight.data = model[0].weight.data
        return model

    model = make()
    graph, x = Predict(model), normal(2, 3)
    graph(x)
    plan = graph._last
    if change == "other memory":
        model[0].weight.data = normal(3, 3, seed=7)
    else:
        model[change == "frozen"].weight.requires_grad_(False)
    np.testing.assert_allclose(graph(x).numpy(), model(x).detach().numpy(), rtol=1e-6)
    assert graph._last is not plan


def test_the_default_dtype():
    class Half(nn.Graph):
        def build(self, x):
            return x + flow.full((3,), 0.1)

    graph, x = Half(), flow.tensor(X).double()
    graph(x)
    flow.set_default_dtype(flow.float64)
    try:
        np.testing.assert_array_equal(graph(x).numpy(), X.astype(np.float64) + 0.1)
    finally:
        flow.set_default_dtype(flow.float32)


def test_the_default_device():
    class Shifted(nn.Graph):
        def build(self, x):
            return x + flow.full((3,), 2.0).to("cpu"), flow.zeros(2)

    graph, x = Shifted(), flow.tensor(X)
    assert graph(x)[1].device == flow.device("cpu")
    recorded = graph._last
    flow.set_default_device("cuda")
    try:
        y, made = graph(x)
        assert made.device == flow.device("cuda:0") and y.device == x.device
    finally:
        flow.set_default_device("cpu")
    np.testing.assert_array_equal(y.numpy(), X + np.float32(2.0))
    assert graph(x)[1].device == flow.device("cpu") and graph._last is recorded


def test_warnings_at_a_call_of_an_existing_plan():
    graph, x = Predict(nn.Linear(3, 3)), flow.tensor(X)
    graph(x)
    with pytest.warns(UserWarning, match="an input requires grad, but no gradient flows through a graph"):
        graph(flow.tensor(X).requires_grad_())
    with pytest.warns(UserWarning, match="a graph does not see the autocast around its call"), flow.autocast("cpu"):
        graph(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = graph(flow.tensor(X).requires_grad_())
    np.testing.assert_array_equal(y.numpy(), graph(x).numpy())


def test_compiling_again_and_again_is_warned_of_once():
    model = Scale()
    graph, x = Predict(model), flow.tensor(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1.0, 2.0, 3.0, 1.0, 2.0, 3.0):  # plans are found again
            model._p = value
            graph(x)
    model._p = 4.0
    with pytest.warns(UserWarning, match=r"compiled for the 4th time for .*; the last time, model._p is 4.0, was 3.0"):
        graph(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._p = 5.0
        y = graph(x)
    np.testing.assert_allclose(y.numpy(), model(x).numpy(), rtol=1e-6)
