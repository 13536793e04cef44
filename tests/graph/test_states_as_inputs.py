"""Tensors of the modules of a graph, passed to it as inputs: as in eager mode, or an error that names them."""

import warnings

import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError

ON_EVERY_DEVICE = True


class Calls(nn.Module):
    """Its forward is a function of the module and x."""

    def __init__(self, function):
        super().__init__()
        self.__dict__["function"] = function
        self.register_buffer("a", flow.ones(2, 3))
        self.w = nn.Parameter(flow.full((2, 3), 1.5))

    def forward(self, x):
        return self.function(self, x)


class Step(nn.Graph):
    def __init__(self, module, optimizer=None, steps=1):
        super().__init__()
        self.module = module
        if optimizer is not None:
            self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, x):
        y = self.module(x)
        if self.training:
            y.sum().backward()
        return y


def read_late(m, x):
    m.a.mul_(2)
    return x + m.a


def read_a_view_late(m, x):
    row = x[0]
    m.a[1] = 5.0
    m.a[0] = 7.0
    return row * 1


def returned(m, x):
    m.a.mul_(2)
    return x


def written(m, x):
    x.add_(1)
    return m.a * 1


VIEWS = [lambda a: a, lambda a: a.detach(), lambda a: a[:], lambda a: a.view(3, 2).view(2, 3), lambda a: a.expand(2, 3)]


@pytest.mark.filterwarnings("ignore:.*build writes to its input")
@pytest.mark.parametrize("function", [read_late, read_a_view_late, returned, written])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_input_in_a_buffer_that_is_written_before_it_is_read(function, is_first):
    for view in VIEWS:
        module = Calls(function)
        graph = Step(module)
        if not is_first:
            graph(flow.ones(2, 3))
        for _ in range(2):
            before = module.a.tolist()
            with pytest.raises(GraphError, match=r"input that shares memory with module\.a.*tensor\.clone\(\)"):
                graph(view(module.a))
            assert module.a.tolist() == before
        graph(view(module.a).clone())


def read_early(m, x):
    y = x * 3
    m.a.mul_(2)
    return y + m.a


def assigned(m, x):
    m.a = m.a * 2
    return x + m.a


@pytest.mark.parametrize("function", [read_early, assigned])
def test_an_input_in_a_buffer_that_is_read_before_it_is_written(function):
    eager, module = (Calls(function) for _ in range(2))
    graph = Step(module)
    for _ in range(3):
        assert_same(graph(module.a), eager(eager.a).cpu().numpy())
        assert_same(module.a, eager.a.cpu().numpy())


def test_micro_batches_read_an_input_after_the_first_has_written():
    def read_by_part(m, x):
        y = x + m.w[0]
        m.a.mul_(2)
        return y

    for steps in (1, 2):
        module = Calls(read_by_part)
        graph = Step(module, flow.optim.SGD(module.parameters(), lr=0.1), steps)
        if steps == 1:
            assert graph(module.a).tolist() == [[2.5] * 3] * 2
        else:
            with pytest.raises(GraphError, match=r"memory with module\.a"):
                graph(module.a)


@pytest.mark.filterwarnings("ignore:.*an input requires grad")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_parameter_that_is_updated_as_an_input(is_first):
    module = Calls(lambda m, x: m.w * x)
    graph = Step(module, flow.optim.SGD(module.parameters(), lr=0.1))
    if not is_first:
        graph(flow.ones(2, 3))
    before = module.w.tolist()
    for view in (lambda w: w, lambda w: w[:2], lambda w: w.t().t()):
        with pytest.raises(GraphError, match="gradient through the input would be left out"):
            graph(view(module.w))
    assert module.w.tolist() == before
    assert_same(graph(module.w.detach()), (flow.tensor(before) ** 2).cpu().numpy())


def test_a_graph_warns_once_that_an_input_is_written():
    graph = Step(Calls(lambda m, x: x.add_(1)))
    x = flow.zeros(2, 3)
    with pytest.warns(UserWarning, match="writes to its input Step_.* in place.*keeps its values"):
        graph(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
        graph(flow.zeros(4, 3))
    assert not x.any()
