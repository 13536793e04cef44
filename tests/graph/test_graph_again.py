"""When a graph compiles again, and what it says then."""

import numpy as np
import pytest
from networks import Net, Predict, Train, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, GraphError


def test_another_shape_makes_another_plan_and_says_so(capsys):
    graph = Predict(nn.Linear(4, 3))
    graph.debug(0)
    for size in (8, 5, 8, 5):
        assert graph(normal(size, 4)).shape == (size, 3)
    assert len(graph._plans) == 2
    out = capsys.readouterr().out
    name = graph.name
    assert out.count(f"(GRAPH:{name}:Predict) start building graph.") == 2
    assert (
        f"(GRAPH:{name}:Predict) compiles again, since something has changed: input 0 is tensor(..., size=(5, 4), "
        "dtype=miniflow.float32), was tensor(..., size=(8, 4), dtype=miniflow.float32)." in out
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, o: m.eval(), "has changed: model was in training mode, is in evaluation mode."),
        (lambda m, o: m.fc.eval(), "has changed: model.fc was in training mode, is in evaluation mode."),
        (
            lambda m, o: m.requires_grad_(False).head.requires_grad_(True),
            "model.norm.bias has requires_grad=False, had",
        ),
        (lambda m, o: m.head.bias.requires_grad_(False), "model.head.bias has requires_grad=False, had True"),
        (lambda m, o: o.param_groups[0].update(weight_decay=0.5), "weight_decay of group 0 of SGD is 0.5, was 0.0"),
        (lambda m, o: o.param_groups[0].update(clip_grad_max_norm=1.0), "clip_grad_max_norm of group 0 of SGD is 1.0"),
        (lambda m, o: o.param_groups[0]["params"].pop(), "the parameters of group 0 of SGD, 5 now and 6 before"),
        (lambda m, o: setattr(m, "fc", nn.Linear(4, 6)), "the attribute 'fc' of a module is another object"),
        (lambda m, o: setattr(m.fc, "weight", nn.Parameter(normal(6, 4))), "the attribute 'weight' of a module"),
        (lambda m, o: m.fc.register_forward_hook(lambda *_: None), "the hooks of a module or a parameter"),
        (lambda m, o: m.fc.weight.register_hook(lambda g: 2 * g), "the hooks of a module or a parameter"),
        (lambda m, o: m.double(), "; and 5 more."),
        (lambda m, o: m.double(), "model.fc.weight is tensor(..., size=(6, 4), dtype=miniflow.float64), was"),
        (lambda m, o: o.load_state_dict(o.state_dict()), "the state of SGD was replaced"),
    ],
)
def test_what_is_burned_in_is_watched(change, message, capsys):
    model = Net()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    graph = Train(model, optimizer)
    x, y = normal(8, 4), labels(8)
    graph(x, y)
    graph.debug(0)
    change(model, optimizer)
    x = x.to(model.fc.weight.dtype)
    graph(x, y)
    graph(x, y)
    out = capsys.readouterr().out
    assert out.count("compiles again, since something has changed: ") == 1
    assert message in out


def test_a_flag_that_goes_back_finds_the_old_plan(capsys):
    model = Net()
    graph = Predict(model)
    graph(normal(8, 4))
    model.eval()
    graph(normal(8, 4))
    graph.debug(0)
    model.train()
    graph(normal(8, 4))
    assert capsys.readouterr().out == ""


def test_other_memory_of_the_same_kind_is_not_a_change():
    model = nn.Linear(4, 3)
    graph, x = Predict(model), normal(8, 4)
    graph(x)
    plan = graph._last
    model.weight.data = normal(3, 4, seed=5)
    np.testing.assert_array_equal(graph(x).numpy(), model(x).detach().numpy())
    assert graph._last is plan


@pytest.mark.slow  # test_footguns.py has a short one
def test_a_module_on_another_device(capsys):
    a, b = pair(lambda: nn.Linear(4, 3))
    x, y = normal(8, 4), labels(8)
    graph = Train(a, flow.optim.Adam(a.parameters(), lr=0.1))
    optimizer = flow.optim.Adam(b.parameters(), lr=0.1)
    graph(x, y)
    eager_step(b, [optimizer], x, y)
    graph.debug(0)
    for model in (a, b):
        model.cuda()
    graph(x.cuda(), y.cuda())
    eager_step(b, [optimizer], x.cuda(), y.cuda())
    np.testing.assert_array_equal(a.weight.detach().cpu().numpy(), b.weight.detach().cpu().numpy())
    assert "model.weight is tensor(..., device='cuda:0', size=(3, 4)" in capsys.readouterr().out
    with pytest.raises(flow.errors.DeviceError, match="expected all on one device"):
        graph(x, y)


def test_plans_that_cannot_fit_again_are_forgotten():
    model = nn.Linear(4, 3)
    graph = Predict(model)
    graph(normal(8, 4))
    graph(normal(5, 4))
    model.double()
    graph(normal(8, 4).double())
    assert len(graph._plans) == 1
    model.eval()
    graph(normal(8, 4).double())
    assert len(graph._plans) == 2


def test_plans_are_forgotten_when_there_are_many():
    graph = Predict(nn.Linear(4, 3))
    for size in range(1, 13):
        graph(normal(size, 4))
    assert len(graph._plans) == 10

    class Few(Predict):
        @nn.Graph.with_dynamic_input_shape(size=2)
        def __init__(self, model):
            super().__init__(model)
            self.config.static_shapes(True)

    few = Few(nn.Linear(4, 3))
    for size in (1, 2, 1, 3):
        assert few(normal(size, 4)).shape == (size, 3)
    assert [plan.metas[0][0] for plan in few._plans] == [(1, 4), (3, 4)]
    with pytest.raises(ArgumentError, match="with_dynamic_input_shape: got size=0; expected an integer of at least 1"):
        nn.Graph.with_dynamic_input_shape(size=0)
    with pytest.warns(UserWarning, match="enable_shared=False has no effect"):
        nn.Graph.with_dynamic_input_shape(enable_shared=False)


def test_static_shapes_give_the_error_of_oneflow():
    graph = Predict(nn.Linear(4, 3))
    graph.config.static_shapes(True)
    graph(normal(8, 4))
    with pytest.raises(GraphError) as caught:
        graph(normal(7, 4))
    assert str(caught.value).startswith(
        f"{graph.name}: nn.Graph ONLY accepts static inputs tensor meta, please check whether your input tensor meta "
        "each step is the same as the input of first call graph. The excepted tensor meta is: tensor(..., size=(8, 4), "
        "dtype=miniflow.float32), but the actual tensor meta is: tensor(..., size=(7, 4), dtype=miniflow.float32). "
        "The input index is 0."
    )
    with pytest.raises(GraphError, match="What differs is the structure of the arguments"):
        graph(x=normal(8, 4))
    graph.model.eval()
    assert graph(normal(8, 4)).shape == (8, 3)


def test_compile_runs_nothing():
    model = nn.Linear(4, 3)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.5))
    before = model.weight.tolist()
    assert graph._compile(normal(8, 4), labels(8)) is None
    assert graph.is_compiled and model.weight.tolist() == before
    graph(normal(8, 4), labels(8))
    assert len(graph._plans) == 1 and model.weight.tolist() != before
