"""Micro-batches over ranks: inputs and outputs of all layouts are cut into the same rows, and put together again."""

import itertools

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
LAYOUTS = [(B, B), (S(0), B), (B, S(0)), (S(0), S(0)), (P, S(0)), (S(1), B)]
STEPS, ROWS = 2, 16


class Weight(flow.nn.Module):
    def __init__(self, place):
        super().__init__()
        self.weight = flow.nn.Parameter(flow.ones(1, placement=place, sbp=(B, B)))


class Step(flow.nn.Graph):
    """A step whose loss pairs the rows of its inputs; `results` of them are returned too."""

    def __init__(self, place, results):
        super().__init__()
        self.model, self.results = Weight(place), results
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(STEPS)

    def build(self, x, y):
        loss = (self.model.weight * x * y).mean()
        loss.backward()
        return loss, *self.results(x, y)


@pytest.fixture
def place():
    flow.parallel.simulate(4)
    yield flow.placement("cpu", [[0, 1], [2, 3]])
    flow.parallel.simulate(1)


def values(place, sbp, columns=2):
    x = np.arange(ROWS * columns, dtype=np.float32).reshape(ROWS, columns) / 10
    return flow.tensor(x, placement=place, sbp=(B, B)).to_global(sbp=sbp)


@pytest.mark.few(7)
@pytest.mark.parametrize(("of_x", "of_y"), [*itertools.combinations_with_replacement(LAYOUTS, 2)], ids=str)
def test_rows_of_two_inputs_belong_together(of_x, of_y, place):
    """The mean of what pairs samples does not depend on which of them make a micro-batch."""
    step = Step(place, lambda x, y: (x * y,))
    x, y = values(place, of_x), values(place, of_y)
    loss, product = step(x, y)
    assert_close(loss.numpy().mean(), (x * y).mean().numpy(), rtol=1e-5, atol=0)
    assert_close(step.model.weight.numpy(), 1 - 0.1 * (x * y).mean().numpy().reshape(1), rtol=1e-5, atol=1e-6)
    assert_close(product.numpy(), (x * y).numpy(), rtol=1e-6, atol=0)


@pytest.mark.few(7)
@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(LAYOUTS, 2)], ids=str)
def test_outputs_keep_the_order_of_the_rows(before, after, place):
    step = Step(place, lambda x, y: (x.to_global(sbp=after) * 2, y.reshape(-1, 1).to_global(sbp=before)))
    x = values(place, before)
    _, double, flat = step(x, values(place, after))
    assert_close(double.numpy(), 2 * x.numpy(), rtol=0, atol=0)
    assert_close(flat.numpy(), x.numpy().reshape(-1, 1), rtol=0, atol=0)


def test_rows_that_some_ranks_alone_have(place):
    """A rank that holds nothing of an output has nothing of it in each micro-batch."""
    x = values(place, (S(0), B))
    _, first = Step(place, lambda x, y: (x[:1],))(x, x)
    assert_close(first.numpy(), x.numpy()[[0, 4]], rtol=0, atol=0)  # the first ranks hold rows 0 to 7


def test_rows_that_have_no_equal_parts_are_refused(place):
    step = Step(place, lambda x, y: (x[1:].to_global(sbp=(S(0), B)),))
    with pytest.raises(flow.errors.GraphError, match=r"an output has no equal part of a micro-batch.*to_global"):
        step(values(place, (B, B)), values(place, (B, B)))


def test_split_rows_that_are_no_samples_are_refused(place):
    """Columns that become rows have the order of the micro-batches, not that of the ranks."""
    x = values(place, (S(1), B))
    with pytest.raises(flow.errors.GraphError, match="an output has no equal part of a micro-batch"):
        Step(place, lambda x, y: (x.t(),))(x, x)
    few = flow.ones(6, 2, placement=place, sbp=(B, B))
    with pytest.raises(flow.errors.GraphError, match="Step.*_input.* has no equal part of a micro-batch"):
        Step(place, lambda x, y: (x.reshape(-1).to_global(sbp=(S(0), B)),))(few, few)  # two ranks, three samples
    *_, turned = Step(place, lambda x, y: (x.t().to_global(sbp=(B, B)),))(x, x)
    assert_close(turned.numpy(), np.concatenate([part.T for part in np.split(x.numpy(), STEPS)]), rtol=0, atol=0)
