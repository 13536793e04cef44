"""The examples of OneFlow's documentation of nn.Graph, as its readers write them, with `import miniflow as flow`."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
import miniflow.nn as nn


class ModuleMyLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(flow.randn(in_features, out_features))
        self.bias = nn.Parameter(flow.randn(out_features))

    def forward(self, input):
        return flow.matmul(input, self.weight) + self.bias


def test_a_module_becomes_a_graph(capsys):
    linear_model = ModuleMyLinear(4, 3)

    class GraphMyLinear(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = linear_model

        def build(self, input):
            return self.model(input)

    graph_mylinear = GraphMyLinear()
    input = flow.randn(1, 4)
    out = graph_mylinear(input)
    assert_close(out, linear_model(input).detach().numpy())
    print(graph_mylinear)
    text = capsys.readouterr().out
    assert "(GRAPH:GraphMyLinear_" in text and "(MODULE:model:ModuleMyLinear())" in text
    assert "(PARAMETER:model.weight:tensor(..., size=(4, 3), dtype=" in text
    assert "(OPERATOR: model-matmul-0(" in text


def test_training_with_an_optimizer():
    loss_fn = nn.MSELoss(reduction="sum")
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    optimizer = flow.optim.SGD(model.parameters(), lr=1e-6)

    class LinearTrainGraph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.loss_fn = loss_fn
            self.add_optimizer(optimizer)

        def build(self, x, y):
            y_pred = self.model(x)
            loss = self.loss_fn(y_pred, y)
            loss.backward()
            return loss

    linear_graph = LinearTrainGraph()
    x = flow.randn(10, 3)
    y = flow.randn(10)
    losses = [linear_graph(x, y).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_mixed_precision_with_a_scaler():
    DEVICE = "cuda" if flow.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    model = model.to(DEVICE)
    model.train()
    loss_fn = nn.CrossEntropyLoss().to(DEVICE)
    optimizer = flow.optim.SGD(model.parameters(), lr=1e-3)

    class CustomGraph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.loss_fn = loss_fn
            self.add_optimizer(optimizer)
            self.config.enable_amp(True)
            grad_scaler = flow.amp.GradScaler(
                init_scale=3000, growth_factor=2.0, backoff_factor=0.5, growth_interval=1000
            )
            self.set_grad_scaler(grad_scaler)

        def build(self, x, y):
            y_pred = self.model(x)
            loss = self.loss_fn(y_pred, y)
            loss.backward()
            return y_pred

    graph_model = CustomGraph()
    before = model[0].weight.detach().clone()
    for _ in range(3):
        x = flow.randn(128, 256).to(DEVICE)
        y = flow.ones(128, 1, dtype=flow.int64).to(DEVICE)
        y_pred = graph_model(x, y)
    assert y_pred.shape == (128, 10) and bool(y_pred.isfinite().all())
    assert (model[0].weight.detach() != before).any().item()
    assert flow.nn.graph.amp.GradScaler is flow.amp.GradScaler


def test_gradient_accumulation():
    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.linear = flow.nn.Linear(3, 8, False)
            self.config.set_gradient_accumulation_steps(4)

        def build(self, x):
            return self.linear(x)

    graph = Graph()
    x = flow.randn(8, 3)
    assert_close(graph(x), x.numpy() @ graph.linear.weight.detach().numpy().T)


def test_activation_checkpointing():
    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.linear1 = flow.nn.Linear(3, 5, False)
            self.linear2 = flow.nn.Linear(5, 8, False)
            self.linear1.to(nn.graph.GraphModule).activation_checkpointing = True
            self.linear2.config.activation_checkpointing = True
            self.add_optimizer(flow.optim.SGD(self.linear1.parameters(), lr=0.1))

        def build(self, x):
            y_pred = self.linear1(x)
            y_pred = self.linear2(y_pred)
            y_pred.sum().backward()
            return y_pred

    graph = Graph()
    assert graph(flow.randn(4, 3)).shape == (4, 8)


def test_dynamic_input_shapes():
    class Doubled(nn.Graph):
        @nn.Graph.with_dynamic_input_shape(size=3)
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def build(self, x):
            return self.linear(x)

    graph = Doubled()
    for rows in (2, 5, 2, 7):
        x = flow.randn(rows, 3)
        weight, bias = (p.detach().numpy() for p in graph.linear.parameters())
        assert_close(graph(x), x.numpy() @ weight.T + bias, rtol=1e-5)


def test_a_function_becomes_a_graph():
    @nn.Graph.trace
    def scaled(x):
        return flow.relu(x) * 2

    assert_same(scaled(flow.tensor([-1.0, 3.0])), np.array([0.0, 6.0], np.float32))


def test_debugging_prints_the_stages(capsys):
    class GraphMyLinear(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = ModuleMyLinear(4, 3)

        def build(self, input):
            return self.model(input)

    graph = GraphMyLinear()
    graph.debug(0)
    graph(flow.randn(1, 4))
    out = capsys.readouterr().out
    assert "start building graph." in out and "building graph Done! Cost time: " in out
    assert "start building plan." in out


def test_saving_and_loading(tmp_path):
    class GraphMyLinear(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = ModuleMyLinear(4, 3)

        def build(self, input):
            return self.model(input)

    graph = GraphMyLinear()
    with pytest.raises(flow.errors.GraphError, match="graph must be compiled first"):
        flow.save(graph, str(tmp_path / "model"))
    x = flow.randn(1, 4)
    want = graph(x)
    flow.save(graph, str(tmp_path / "model"))
    assert_same(flow.load(str(tmp_path / "model"))(x), want.numpy())
    assert_same(nn.Graph.load(str(tmp_path / "model"))(x), want.numpy())
