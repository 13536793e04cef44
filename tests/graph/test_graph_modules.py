"""Modules in graphs: hooks, direct calls of forward, functions as graphs, and what a call costs."""

import sys

import numpy as np
import pytest
from networks import Bare, Predict, Train, check_states, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentTypeError, GraphTraceError


def test_forward_hooks_become_part_of_the_graph():
    model = nn.Linear(4, 3)
    seen = []

    def doubled(module, args, output):
        seen.append(type(output._array).__name__)
        return 2 * output

    graph, x = Predict(model), normal(8, 4)
    plain = graph(x).numpy().copy()
    handle = model.register_forward_hook(doubled)
    np.testing.assert_array_equal(graph(x).numpy(), 2 * plain)
    graph(x)
    assert len(seen) == 1  # it ran while recording, and not again
    handle.remove()
    np.testing.assert_array_equal(graph(x).numpy(), plain)


def test_backward_hooks_become_part_of_the_graph():
    a, b = pair(lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)))
    for model in (a, b):
        model[1].register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 3,))
        model[0].weight.register_hook(lambda gradient: gradient + 1)
    x, y = normal(8, 4), labels(8)
    graph = Train(a, flow.optim.SGD(a.parameters(), lr=0.5))
    for _ in range(2):
        graph(x, y)
        eager_step(b, [flow.optim.SGD(b.parameters(), lr=0.5)], x, y)
    check_states(a, b)


def test_forward_called_directly():
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc.forward(x)

    model, x = Direct(), normal(8, 4)
    np.testing.assert_array_equal(Predict(model)(x).numpy(), model(x).detach().numpy())
    graph = Predict(model)
    graph.model.fc.config.activation_checkpointing = True
    words = r"model.fc.forward was called directly, but the module has activation_checkpointing: call the module itself"
    with pytest.raises(GraphTraceError, match=words):
        graph(x)
    assert "forward" not in vars(model.fc)
    np.testing.assert_array_equal(model.fc.forward(x).detach().numpy(), model(x).detach().numpy())


def test_checkpointing_changes_no_bit():
    a, b = pair()
    x, y = normal(8, 4), labels(8)
    graphs = [Train(m, flow.optim.SGD(m.parameters(), lr=0.5)) for m in (a, b)]
    graphs[0].model.config.activation_checkpointing = True
    assert [graph._full_config().checkpoint_scopes for graph in graphs] == [{"model"}, set()]
    losses = []
    for graph in graphs:
        flow.manual_seed(0)
        losses.append([graph(x, y).item() for _ in range(3)])
    assert losses[0] == losses[1]
    check_states(a, b)


def test_modules_that_are_not_attributes_are_watched_too():
    dropout = nn.Dropout(0.5)
    graph = Bare(lambda x: dropout(x))
    assert (graph(flow.ones(64)) == 0).any()
    dropout.eval()
    assert (graph(flow.ones(64)) == 1).all()
    assert {i.scope for i in graph.recorded.instructions} <= {"Dropout"}


def test_traced_functions_and_modules():
    model = nn.Linear(4, 3)

    @nn.Graph.trace
    def predict(x, scale):
        """Twice."""
        return model(x) * scale

    x = normal(8, 4)
    assert isinstance(predict, nn.Graph) and predict.__doc__ == "Twice." and predict.name.startswith("predict_")
    np.testing.assert_array_equal(predict(x, flow.tensor(2.0)).numpy(), (2 * model(x)).detach().numpy())
    assert "model.weight" in {slot.name for slot in predict.recorded.states}
    np.testing.assert_array_equal(nn.Graph.trace(model)(x).numpy(), model(x).detach().numpy())
    with pytest.raises(ArgumentTypeError, match="nn.Graph.trace: got a int; expected a function or a module"):
        nn.Graph.trace(3)


def test_a_call_costs_little_python():
    """Counted in function calls of Python, which is the same on every machine."""
    model = flow.vision.models.MLP((6, 5, 4, 3))
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.1))
    x, y = normal(8, 6), labels(8)
    graph(x, y)
    called = []
    sys.setprofile(lambda frame, event, arg: called.append(frame.f_code) if event == "call" else None)
    try:
        graph(x, y)
    finally:
        sys.setprofile(None)
    files = ("graph/graph.py", "compiled.py", "guards.py", "snapshot.py", "nested.py")
    own = [code for code in called if code.co_filename.endswith(files)]
    assert 3 <= len(own) <= 25, [code.co_name for code in own]


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("functions", ["utils", "utils.parametrizations"])
def test_normed_weights(norm, functions):
    """Power iterations change buffers in each step, and both kinds of norm are trained as without a graph."""
    functions = nn.utils if functions == "utils" else nn.utils.parametrizations

    class Train(nn.Graph):
        def __init__(self, model, optimizer):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.model(x).square().sum()
            loss.backward()
            return loss

    def trained(in_graph):
        flow.manual_seed(0)
        model = getattr(functions, norm)(nn.Linear(3, 4))
        optimizer = flow.optim.SGD(model.parameters(), lr=0.01)
        graph = Train(model, optimizer)
        for step in range(3):
            x = flow.arange(6).reshape(2, 3).float() + step
            if in_graph:
                graph(x)
            else:
                optimizer.zero_grad()
                graph.build(x)
                optimizer.step()
        return model.state_dict()

    for (name, ours), eager in zip(trained(True).items(), trained(False).values(), strict=True):
        np.testing.assert_allclose(ours.numpy(), eager.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
