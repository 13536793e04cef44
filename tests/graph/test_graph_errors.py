"""How graphs refuse, and what they leave behind."""

import copy
import threading
from pathlib import Path

import numpy as np
import pytest
from checks import assert_same
from networks import Bare, Predict, Train, check_states, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, ArgumentTypeError, GraphError, GraphTraceError, IndexRangeError, PickleError

OUTSIDE = flow.ones(2)


def test_build_has_to_be_overridden():
    with pytest.raises(NotImplementedError, match=r"nn.Graph.build\(\) method must be overridden when subclassing the"):
        Bare()(normal(2))


def test_init_of_the_base_class_comes_first():
    class Early(nn.Graph):
        def __init__(self):
            self.model = nn.Linear(2, 2)

    class Never(nn.Graph):
        def __init__(self):
            pass

    words = r"Base class nn.Graph has not been initialized, please call super\(\).__init__\(\) in subclass of nn.Graph"
    with pytest.raises(AttributeError, match=words):
        Early()
    with pytest.raises(AttributeError, match=words):
        Never()(normal(2))
    with pytest.raises(AttributeError, match=words):
        repr(Never())


def test_attributes_that_are_refused():
    graph = Bare()
    with pytest.raises(
        AttributeError,
        match="'Bare' nn.Graph is not allowed to set Optimizer attribute named 'opt'. Please use add_optimizer",
    ):
        graph.opt = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(
        AttributeError,
        match="'Bare' nn.Graph is not allowed to set Tensor attribute named 'w'. Please use nn.Module to hold the",
    ):
        graph.w = flow.zeros(1)
    with pytest.raises(AttributeError, match="'Bare' object has no attribute 'model'"):
        graph.model  # noqa: B018
    for name, value in (("config", {"size": 3}), ("config", nn.Linear(2, 2)), ("load", nn.Linear(2, 2))):
        with pytest.raises(
            AttributeError, match=f"'Bare' nn.Graph has an attribute '{name}' of its own: choose another"
        ):
            setattr(graph, name, value)
    graph.number = 3
    assert graph.number == 3
    del graph.number
    assert not hasattr(graph, "number")


def test_what_add_optimizer_refuses():
    model = nn.Linear(4, 3)
    optimizer, other = (flow.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    graph = Bare()
    with pytest.raises(ArgumentTypeError, match="add_optimizer: got a Linear; expected a flow.optim.Optimizer"):
        graph.add_optimizer(model)
    with pytest.raises(ArgumentError, match="lr_sch.optimizer must be the optimizer that is added"):
        graph.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(other, 2))
    with pytest.raises(ArgumentTypeError, match="got a float as lr_sch"):
        graph.add_optimizer(optimizer, lr_sch=0.5)
    with pytest.raises(ArgumentError, match="ReduceLROnPlateau needs a metric; leave lr_sch out"):
        graph.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.ReduceLROnPlateau(optimizer))

    class Own(flow.optim.Optimizer):
        def update(self, group, params):
            pass

    with pytest.raises(ArgumentTypeError, match="Own computes its update itself; a graph can record optimizers only"):
        graph.add_optimizer(Own(model.parameters(), {"lr": 1.0}))
    with pytest.raises(ArgumentTypeError, match="set_grad_scaler: got a int; expected a flow.amp.GradScaler"):
        graph.set_grad_scaler(3)
    with pytest.raises(ArgumentError, match="Only support 1.0/growth_factor as backoff_factor at the moment, got 0.25"):
        graph.set_grad_scaler(flow.amp.GradScaler(backoff_factor=0.25))
    graph = Predict(model)
    graph(normal(2, 4))
    with pytest.raises(GraphError, match="add_optimizer has to be called before the first call of the graph"):
        graph.add_optimizer(optimizer)
    with pytest.raises(GraphError, match="set_grad_scaler has to be called before the first call"):
        graph.set_grad_scaler(None)


class Decaying(flow.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["lr"] *= 0.5


class DecayingInUpdate(flow.optim.SGD):
    def update(self, group, params):
        super().update(group, params)
        group["lr"] *= 0.5


class Counting(flow.optim.SGD):
    count = 0

    def step(self, closure=None):
        self.count += 1
        if self.count % 2:
            super().step(closure)


class Remembering(flow.optim.Adam):
    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("slow", p.detach().clone())


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (Decaying, "param_groups"),
        (DecayingInUpdate, "param_groups"),
        (Counting, "count"),
        (Remembering, "state"),
    ],
)
def test_steps_that_change_their_optimizer(kind, changed):
    """A graph would do so at its first call alone."""
    model = nn.Linear(4, 3)
    optimizer, before = kind(model.parameters(), lr=0.1), model.weight.numpy().copy()

    def build(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    graph = Bare(build, optimizer)
    graph.model = model
    with pytest.raises(GraphError, match=rf"{kind.__name__}\.step changes {changed} of the optimizer, which calls"):
        graph(normal(2, 4))
    assert optimizer.param_groups[0]["lr"] == 0.1 and "count" not in vars(optimizer)
    assert not any("slow" in entry for entry in optimizer.state.values())
    np.testing.assert_array_equal(model.weight.numpy(), before)


class Bounded(flow.optim.Adam):
    def step(self, closure=None):
        super().step(closure)
        with flow.no_grad():
            for p in self.param_groups[0]["params"]:
                p.clamp_(-0.2, 0.2)


def test_a_step_of_the_user_that_only_computes_is_recorded():
    models = [nn.Linear(4, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    graph_s, eager = (Bounded(model.parameters(), lr=0.1) for model in models)

    def build(x):
        loss = models[0](x).square().sum()
        loss.backward()
        return loss

    graph = Bare(build, graph_s)
    graph.model = models[0]
    for _ in range(3):
        x = normal(2, 4)
        graph(x)
        eager.zero_grad()
        models[1](x).square().sum().backward()
        eager.step()
        np.testing.assert_array_equal(models[0].weight.numpy(), models[1].weight.numpy())


def test_backward_has_to_be_called_on_a_scalar():
    w = flow.ones(3, requires_grad=True)
    unused = flow.ones(3, requires_grad=True)

    def graph(build, p=w):
        return Bare(build, flow.optim.SGD([p], lr=0.1))

    x = normal(3)
    with pytest.raises(GraphError, match="build did not call backward, but the graph has an optimizer"):
        graph(lambda x: (x * w).sum())(x)
    with pytest.raises(
        GraphError, match=r"Grad can be implicitly created only for scalar .* the loss has shape \(3,\)"
    ):
        graph(lambda x: (x * w).backward())(x)
    with pytest.raises(GraphError, match="backward reached no parameter of SGD"):
        graph(lambda x: (x * w).sum().backward(), unused)(x)
    with pytest.raises(GraphError, match="backward was called in build, but the graph has no optimizer"):
        Bare(lambda x: (x * w).sum().backward())(x)
    assert w.grad is None and unused.grad is None and w.tolist() == [1.0, 1.0, 1.0]
    (slope,) = Bare(lambda x: flow.autograd.grad((x * w).sum(), w))(x)
    np.testing.assert_array_equal(slope.numpy(), x.numpy())


def test_a_graph_in_the_build_of_another_is_refused():
    inner = Predict(nn.Linear(4, 3))
    outer = Bare(lambda x: inner(x))
    words = f"{inner.name}: called while {outer.name} is being recorded; a graph cannot be called within the build"
    with pytest.raises(GraphTraceError, match=words):
        outer(normal(2, 4))
    inner(normal(2, 4))
    with pytest.raises(GraphTraceError, match=words):
        outer(normal(2, 4))
    recursive = Bare(lambda x: recursive(x))
    with pytest.raises(GraphTraceError, match="a graph cannot be called within its own build"):
        recursive(normal(2, 4))


def test_an_exception_in_the_first_call_leaves_everything_as_it_was():
    model, other = pair()
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    graph = Train(model, optimizer)
    x, y = normal(8, 4), labels(8)
    flow.manual_seed(4)
    random, before = flow.get_rng_state().tolist(), {k: v.tolist() for k, v in model.state_dict().items()}
    calls = []

    class Failing(nn.CrossEntropyLoss):
        def forward(self, *args):
            calls.append(args)
            if len(calls) == 1:
                raise ZeroDivisionError("in build")
            return super().forward(*args)

    graph.loss_function = Failing()
    with pytest.raises(ZeroDivisionError, match="in build"):
        graph(x, y)
    assert not graph.is_compiled and flow.get_rng_state().tolist() == random
    assert {k: v.tolist() for k, v in model.state_dict().items()} == before
    assert all(s["step"] == 0 for s in optimizer.state.values())
    loss = graph(x, y)
    flow.manual_seed(4)
    assert_same(loss, eager_step(other, [flow.optim.Adam(other.parameters(), lr=0.1)], x, y).detach().numpy())
    check_states(model, other)


def test_an_exception_while_replaying_leaves_the_graph_callable():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 3))
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    graph = Train(model, optimizer)
    good, bad, y = flow.tensor([[0, 1], [2, 3]]), flow.tensor([[0, 1], [2, 7]]), labels(2)
    before = {k: v.tolist() for k, v in model.state_dict().items()}
    with pytest.raises(IndexRangeError, match="7"):
        graph(bad, y)
    assert {k: v.tolist() for k, v in model.state_dict().items()} == before
    assert all(s["step"] == 0 for s in optimizer.state.values()) and graph._train_step == 0
    assert np.isfinite(graph(good, y).item())
    assert {s["step"] for s in optimizer.state.values()} == {1}


def test_threads_take_turns():
    model = nn.Linear(4, 3)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.1))
    predict = Predict(nn.Linear(4, 3))
    inputs = [normal(n % 3 + 1, 4, seed=n) for n in range(12)]
    expected = [predict.model(x).detach().numpy() for x in inputs]
    results, errors = [None] * len(inputs), []

    def work(n):
        try:
            for _ in range(5):
                results[n] = predict(inputs[n]).numpy()
                graph(normal(8, 4), labels(8))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and graph._train_step == 60 and len(graph._plans) == 1 and len(predict._plans) == 3
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_not_seen_is_warned_of():
    graph = Predict(nn.Linear(4, 3))
    with (
        flow.autocast("cpu"),
        pytest.warns(UserWarning, match=r"does not see the autocast .* config.enable_amp\(True\)"),
    ):
        assert graph(normal(2, 4)).dtype is flow.float32
    with pytest.warns(UserWarning, match="an input requires grad, but no gradient flows through a graph to its inputs"):
        assert not graph(normal(3, 4).requires_grad_()).requires_grad
    with flow.no_grad():
        assert graph(normal(4, 4).requires_grad_()).shape == (4, 3)


def test_tensors_left_over_from_a_recording():
    kept = []
    graph = Bare(lambda x: kept.append(x * 2) or x)
    graph(normal(2, 4))
    for call in (lambda: Predict(nn.Linear(4, 3))(kept[0]), lambda: graph(kept[0]), lambda: kept[0] + 1):
        with pytest.raises(GraphTraceError, match="the tensor was made while Bare_.* was being recorded"):
            call()


def test_graphs_are_not_copied():
    graph = Predict(nn.Linear(4, 3))
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(
            PickleError, match="graphs are not copied or pickled; make another graph over a copy of the"
        ):
            copied(graph)


def test_what_is_done_elsewhere():
    graph = Predict(nn.Linear(4, 3))
    with pytest.warns(UserWarning, match=r"share_from\(graph\) has no effect: .* give both the same module"):
        graph.share_from(Predict(nn.Linear(4, 3)))
    with pytest.warns(
        UserWarning, match=r"enable_shared\(\) has no effect: graphs over one module share its parameters"
    ):
        graph.enable_shared()
    assert not graph.is_compiled


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("train", r"a graph is not an nn.Module, and its modules stay as they are; use graph.model.train"),
        ("eval", r"use graph.model.eval"),
        ("parameters", r"use graph.model.parameters"),
        ("to", r"use graph.model.to"),
        ("zero_grad", "every call begins without gradients"),
        ("step", "every call of a graph with an optimizer is a step"),
        ("backward", r"build calls loss.backward\(\)"),
        ("forward", r"call the graph itself, graph\(...\)"),
    ],
)
def test_methods_of_modules_and_loops_are_refused_with_what_to_do(name, remedy):
    with pytest.raises(AttributeError, match=f"'Predict' object has no attribute '{name}': .*{remedy}"):
        getattr(Predict(nn.Linear(2, 2)), name)
    assert not hasattr(Bare(), name)


def test_forward_is_to_be_called_build():
    class Forward(nn.Graph):
        def forward(self, x):
            return x

    with pytest.raises(NotImplementedError, match="as Forward is: rename its forward to build"):
        Forward()(normal(2))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (0, (), "missing a required argument: 'x'"),
        (2, (), "too many positional arguments"),
        (1, ("y",), "got an unexpected keyword argument 'y'"),
    ],
)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_arguments_that_build_does_not_take(args, kwargs, message, is_compiled):
    graph = Predict(nn.Linear(2, 2))
    if is_compiled:
        graph(normal(3, 2))
    expected = rf"{graph.name}.build: {message}; expected {graph.name}.build\(x\), got {args} arguments by position and"
    with pytest.raises(ArgumentTypeError, match=expected):
        graph(*[normal(3, 2)] * args, **dict.fromkeys(kwargs, normal(3, 2)))


@pytest.mark.parametrize("loss", [lambda model, x: x.sum(), lambda model, x: model(x).sum().detach()])
def test_a_loss_that_needs_no_gradient(loss):
    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(2, 2)
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))

        def build(self, x):
            loss(self.model, x).backward()

    with pytest.raises(
        GraphError, match="backward was called on a tensor that needs no gradient; expected a loss comp"
    ):
        Step()(normal(3, 2))


def test_an_optimizer_of_another_model():
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    graph = Train(model, flow.optim.SGD(other.parameters(), lr=0.1))
    message = r"no parameter of SGD: they belong to no module of the graph; .* flow.optim.SGD\(graph.model.parameters"
    with pytest.raises(GraphError, match=message):
        graph(normal(4, 3), labels(4, 2))


def test_debug_before_the_init_of_the_base_class():
    class Never(nn.Graph):
        def __init__(self):
            self.debug()

    with pytest.raises(AttributeError, match="Base class nn.Graph has not been initialized"):
        Never()


@pytest.mark.parametrize("option", [{"op_repr_with_py_stack": True}, {"only_user_py_stack": False}])
def test_options_of_debug_without_effect_warn(option):
    with pytest.warns(UserWarning, match="operators print the lines of your code .* max_py_stack_depth says") as found:
        Bare().debug(-1, **option)
    assert len(found) == 1


def test_the_order_of_keyword_arguments_makes_no_other_inputs():
    class Difference(nn.Graph):
        def build(self, a, b, **others):
            return a - b

    graph, a, b = Difference(), normal(2), normal(2)
    assert_same(graph(a=a, b=b), a - b)
    plan = graph._last
    assert_same(graph(b=b, a=a), a - b)
    assert graph._last is plan and len(graph._plans) == 1
    graph._compile(b=b, a=a)
    assert len(graph._plans) == 1


@pytest.mark.parametrize("option", [{"v_level": 4}, {"v_level": "1"}, {"max_py_stack_depth": -1}])
def test_options_of_debug_that_are_refused(option):
    ((name, value),) = option.items()
    with pytest.raises(ArgumentError, match=f"debug: got {name}={value!r}; expected"):
        Bare().debug(**option)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: flow.manual_seed(0),
        lambda x: x.new_zeros(2).copy_(x.numpy()[0]),
        lambda x: setattr(OUTSIDE, "data", flow.zeros(2)),
    ],
)
def test_a_refusal_that_build_catches_is_raised_at_the_end(look):
    class Caught(nn.Graph):
        def build(self, x):
            try:
                look(x)
            except RuntimeError:
                return x * 2
            return x

    with pytest.raises(GraphTraceError, match="test_graph_errors.py:.*nn.Graph.build|^manual_seed: "):
        Caught()(normal(2))


def test_a_refusal_names_files_beside_the_package():
    source = "def build(self, x):\n    return x * x.sum().item()\n"
    namespace = {}
    exec(compile(source, str(Path(flow.__file__).parent) + "_demo.py", "exec"), namespace)
    with pytest.raises(GraphTraceError, match="^miniflow_demo.py:2: the values of a tensor cannot be looked at"):
        type("Beside", (nn.Graph,), namespace)()(normal(2))
