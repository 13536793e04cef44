"""What training graphs compute is what eager code computes."""

import numpy as np
import pytest
from checks import assert_same
from networks import Net, Predict, Train, check_states, eager_step, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError


def test_a_training_graph_is_the_eager_step():
    a, b = pair()
    x, y = normal(8, 4), labels(8)
    of_graph, of_eager = (flow.optim.Adam(m.parameters(), lr=0.05) for m in (a, b))
    schedulers = [flow.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (of_graph, of_eager)]
    graph = Train(a, of_graph, scheduler=schedulers[0])
    assert graph.training and not graph.is_compiled
    flow.manual_seed(3)
    losses = [graph(x, y) for _ in range(5)]
    after = flow.get_rng_state().tolist()
    flow.manual_seed(3)
    for loss in losses:
        assert_same(loss, eager_step(b, [of_eager], x, y).detach().numpy())
        schedulers[1].step()
    assert graph.is_compiled and after == flow.get_rng_state().tolist()
    check_states(a, b)
    assert of_graph.param_groups[0]["lr"] == of_eager.param_groups[0]["lr"] == 0.05 / 4
    assert [s["step"] for s in of_graph.state.values()] == [5] * 6
    assert all(p.grad is None for p in a.parameters())


def test_gradients_of_parameters_are_left_alone():
    model = nn.Linear(4, 3)
    model.weight.grad = kept = normal(3, 4)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph(normal(8, 4), labels(8))
    assert model.weight.grad is kept and model.bias.grad is None
    np.testing.assert_array_equal(kept.numpy(), normal(3, 4).numpy())


def test_several_optimizers_each_with_its_own_options():
    a, b = pair()
    x, y = normal(8, 4), labels(8)

    def optimizers(m):
        clipped = {"params": m.fc.parameters(), "clip_grad_max_norm": 0.01}
        return flow.optim.SGD([clipped], lr=0.5, momentum=0.9), flow.optim.Adam(m.head.parameters(), lr=0.1)

    graph, of_eager = Train(a, *optimizers(a)), optimizers(b)
    flow.manual_seed(0)
    losses = [graph(x, y).item() for _ in range(3)]
    flow.manual_seed(0)
    assert losses == [eager_step(b, of_eager, x, y).item() for _ in range(3)]
    check_states(a, b)
    np.testing.assert_array_equal(a.norm.weight.detach().numpy(), np.ones(6))  # belongs to no optimizer


def test_the_learning_rate_is_looked_up_at_each_call():
    model = nn.Linear(2, 1, bias=False)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.0)

    class Mean(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x):
            self.model(x).sum().backward()

    graph, x = Mean(), flow.tensor([[1.0, 2.0]])
    before = model.weight.tolist()[0]
    assert graph(x) is None
    assert model.weight.tolist()[0] == before
    plan = graph._last
    optimizer.param_groups[0]["lr"] = 0.25
    graph(x)
    np.testing.assert_allclose(model.weight.tolist()[0], np.subtract(before, [0.25, 0.5]), rtol=1e-6)
    optimizer.param_groups[0]["lr_scale"] = 2.0
    graph(x)
    np.testing.assert_allclose(model.weight.tolist()[0], np.subtract(before, [0.75, 1.5]), rtol=1e-5)
    assert graph._last is plan


def test_eager_sees_new_parameters_and_the_graph_those_of_eager():
    model = nn.Linear(4, 3)
    predict = Predict(model)
    x = normal(5, 4)
    first = predict(x)
    with flow.no_grad():
        model.weight.mul_(2.0)
    assert not (predict(x) == first).all()
    np.testing.assert_array_equal(predict(x).numpy(), model(x).detach().numpy())
    train = Train(model, flow.optim.SGD(model.parameters(), lr=0.5))
    train(x, labels(5))
    np.testing.assert_array_equal(predict(x).numpy(), model(x).detach().numpy())


def test_a_write_by_the_graph_is_seen_by_the_tape():
    model = nn.Linear(4, 3)
    y = (model(normal(5, 4)) ** 2).sum()
    z = (model.weight * model.weight).sum()
    Train(model, flow.optim.SGD(model.parameters(), lr=0.5))(normal(5, 4), labels(5))
    assert y.item() > 0
    with pytest.raises(flow.errors.AutogradError, match="was changed by an in-place operation"):
        z.backward()


def test_gradient_accumulation_is_a_batch_that_is_larger():
    a, b = pair(lambda: nn.Linear(4, 3))
    x, y = normal(8, 4), labels(8)
    graph = Train(a, flow.optim.SGD(a.parameters(), lr=0.5))
    graph.config.set_gradient_accumulation_steps(4)
    losses = graph(x, y)
    assert losses.shape == (4,)
    loss = eager_step(b, [flow.optim.SGD(b.parameters(), lr=0.5)], x, y)
    np.testing.assert_allclose(losses.numpy().mean(), loss.item(), rtol=1e-6)
    np.testing.assert_allclose(a.weight.detach().numpy(), b.weight.detach().numpy(), rtol=1e-5, atol=1e-7)
    with pytest.raises(GraphError, match=r"set_gradient_accumulation_steps\(4\): .*input.0.0_2 has shape \(6, 4\)"):
        graph(x[:6], y[:6])
    predict = Predict(a)
    predict.config.set_gradient_accumulation_steps(4)
    assert predict(x[:6]).shape == (6, 3)


def test_a_step_that_overflows_is_left_out():
    model = nn.Linear(4, 3)
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    scheduler = flow.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scaler = flow.amp.GradScaler(init_scale=2.0**10, growth_interval=2)
    graph = Train(model, optimizer, scheduler=scheduler, scaler=scaler)
    x, y = normal(8, 4), labels(8)
    graph(x, y)
    before = model.weight.tolist()
    loss = graph(x * float("inf"), y)
    assert np.isnan(loss.item()) and model.weight.tolist() == before
    assert scaler.get_scale() == 2.0**9 and optimizer.param_groups[0]["lr"] == 0.05
    assert [s["step"] for s in optimizer.state.values()] == [1, 1]
    assert graph.state_dict()["System-Train-TrainStep"].tolist() == [1]
    graph(x, y)
    graph(x, y)
    assert model.weight.tolist() != before and scaler.get_scale() == 2.0**10


def test_loss_scaling_changes_nothing_else():
    a, b = pair(lambda: nn.Linear(4, 3))
    x, y = normal(8, 4), labels(8)
    graphs = [
        Train(a, flow.optim.SGD(a.parameters(), lr=0.5), scaler=flow.amp.StaticGradScaler(64.0)),
        Train(b, flow.optim.SGD(b.parameters(), lr=0.5)),
    ]
    scaled, plain = ([graph(x, y).item() for _ in range(3)] for graph in graphs)
    assert scaled == plain  # the loss that is returned is not scaled, and 64 is a power of two
    check_states(a, b)


def test_frozen_parameters_stay_and_may_be_thawed():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    frozen, free = model[0].weight.tolist(), model[1].weight.tolist()
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
    x, y = normal(8, 4), labels(8)
    graph(x, y)
    assert model[0].weight.tolist() == frozen and model[1].weight.tolist() != free
    model[0].requires_grad_(True)
    graph(x, y)
    assert model[0].weight.tolist() != frozen


def test_shared_parameters_have_one_name_and_one_update():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    a, b = pair(Tied)
    x, y = normal(8, 3), labels(8)
    graph = Train(a, flow.optim.SGD(a.parameters(), lr=0.5))
    graph(x, y)
    eager_step(b, [flow.optim.SGD(b.parameters(), lr=0.5)], x, y)
    check_states(a, b)
    assert a.second.weight is a.first.weight
    names = [slot.name for slot in graph.recorded.states]
    assert "model.first.weight" in names and "model.second.weight" not in names


def test_two_graphs_over_one_module():
    model = Net()
    train, predict = Train(model, flow.optim.SGD(model.parameters(), lr=0.5)), Predict(model)
    x, y = normal(8, 4), labels(8)
    for _ in range(2):
        model.train()
        train(x, y)
        model.eval()
        np.testing.assert_array_equal(predict(x).numpy(), model(x).detach().numpy())


def test_grad_mode_around_a_call_does_not_matter():
    a, b = pair(lambda: nn.Linear(4, 3))
    x, y = normal(8, 4), labels(8)
    graphs = [Train(m, flow.optim.SGD(m.parameters(), lr=0.5)) for m in (a, b)]
    with flow.no_grad():
        assert graphs[0](x, y).item() == graphs[1](x, y).item()
    assert graphs[0](x, y).item() == graphs[1](x, y).item()
    check_states(a, b)
    assert not graphs[0](x, y).requires_grad and flow.is_grad_enabled()


def test_a_parameter_that_is_returned_is_a_copy():
    model = nn.Linear(4, 3)

    class Both(Train):
        def build(self, x, y):
            return super().build(x, y), self.model.weight

    graph = Both(model, flow.optim.SGD(model.parameters(), lr=0.5))
    _, first = graph(normal(8, 4), labels(8))
    after = model.weight.tolist()
    _, second = graph(normal(8, 4), labels(8))
    assert first.tolist() != second.tolist() and type(first) is flow.Tensor
    second.zero_()
    assert model.weight.tolist() != after and any(model.weight.flatten().tolist())
