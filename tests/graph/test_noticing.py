"""A compiled graph records again when something that it was recorded with has changed, and only then."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from networks import Predict, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn

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
        self.shape, self.calls, self.activations = None, 0, []

    def forward(self, x):
        self.shape, self.calls, self.last = x.shape, self.calls + 1, x * 1
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
    model.shape, model.activation = (300, 400), flow.ones(2)
    graph(x)
    plan = graph._last
    model.shape, model._p, model.list = tuple([300, 400]), float("2"), [1.0, 2.0]
    model.activation = flow.zeros(3)  # build did not read it
    graph(x)
    assert graph._last is plan


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
