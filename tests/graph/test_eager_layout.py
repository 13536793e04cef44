"""Views and copies are told apart while recording as eager mode tells them, which keeps the order of operands."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from compare import count_comparison

import miniflow as flow
from miniflow import nn
from miniflow.errors import ShapeError
from miniflow.nn import functional as F

ON_EVERY_DEVICE = True
X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def graph_of(function):
    class Step(nn.Graph):
        def build(self, *inputs):
            return function(*inputs)

    return Step()


def of_a_sum(x):
    return x.t() + 1


def of_a_copy(x):
    return x.t().clone()


def of_another_dtype(x):
    return x.t().double()


def of_an_activation(x):
    return F.gelu(x.t())


def of_a_product(x):
    return x.t() @ x


def of_a_softmax(x):
    return x.t().softmax(0)


def of_parts(x):
    return flow.cat([x.t(), x.t()], 1)


def of_a_selection(x):
    return x[:, flow.tensor([0, 2], device=x.device)]


def of_a_gradient(x):
    w = x.detach().requires_grad_()
    return flow.autograd.grad((w.t() * x.t()).exp().sum(), w)[0]


RESULTS = (
    of_a_sum, of_a_copy, of_another_dtype, of_an_activation, of_a_product, of_a_softmax, of_parts, of_a_selection,
    of_a_gradient,
)  # fmt: skip


@pytest.mark.parametrize("taken", [lambda y: y.reshape(-1), lambda y: y.contiguous(), lambda y: y.flatten(0)])
@pytest.mark.parametrize("result", RESULTS)
def test_writes_to_what_may_be_a_view(result, taken):
    def step(x):
        y = result(x)
        z = taken(y)
        y.mul_(3.0)
        z[0] = 100.0
        return y + 0, z + 0, flow.tensor(y.stride(), device="cpu")

    x = flow.tensor(X)
    for got, expected in zip(graph_of(step)(x), step(x), strict=True):
        assert_same(got.cpu(), expected.cpu().numpy())


@pytest.mark.parametrize("result", RESULTS)
def test_views_are_refused_where_eager_mode_refuses_them(result):
    def step(x):
        return result(x).view(-1) + 0

    x, got = flow.tensor(X), []
    for run in (step, graph_of(step)):
        try:
            got.append(run(x).tolist())
        except ShapeError as error:
            got.append(str(error))
    assert got[0] == got[1]
    count_comparison()


def of_a_transposed_state(m, x):
    m.b.t().view(-1)[1:3].mul_(x[0, :2])
    return m.b.reshape(-1).add_(1.0)


def of_a_state_that_takes_transposed_values(m, x):
    m.c.copy_((m.c * x[0]).t())
    return m.c.view(-1).mul_(2.0)


def of_memory_that_takes_transposed_values(m, x):
    y = m.c * x[0]
    y.copy_((y * 2).t())
    y.view(-1)[2:].add_(m.c.flatten()[:7])
    return y


@pytest.mark.cpu_only("memory in another order comes from NumPy")
@pytest.mark.parametrize(
    "step", [of_a_transposed_state, of_a_state_that_takes_transposed_values, of_memory_that_takes_transposed_values]
)
def test_views_of_memory_in_another_order(step):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", flow.from_numpy(X.copy().T))
            self.register_buffer("c", flow.tensor(np.arange(9, dtype=np.float32).reshape(3, 3)))

        def forward(self, x):
            return step(self, x)

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = Module()

        def build(self, x):
            return self.m(x) + 0

    eager, graph, x = Module(), Step(), flow.tensor(X)
    for _ in range(2):
        assert_same(graph(x), (eager(x) + 0).cpu().numpy())
        for name, value in eager.state_dict().items():
            assert_same(graph.m.state_dict()[name], value.cpu().numpy())


def test_a_gradient_edited_through_a_view():
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = nn.Linear(3, 2)
            self.add_optimizer(flow.optim.SGD(self.m.parameters(), 0.1))

        def build(self, x):
            return edited_step(self.m, x)

    def edited_step(m, x):
        (m.weight.t() * x.t()).exp().sum().backward()
        m.weight.grad.reshape(-1)[:2].mul_(0.0)
        return x + 0

    graph, x = Train(), flow.tensor(X)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(graph.m.state_dict())
    optimizer = flow.optim.SGD(twin.parameters(), 0.1)
    graph(x)
    edited_step(twin, x)
    optimizer.step()
    assert_close(graph.m.weight.detach(), twin.weight.detach().cpu().numpy())
