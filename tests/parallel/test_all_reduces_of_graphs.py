"""All-reduces in graphs: small ones share a collective, and sums take the memory of what was added up."""

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
from miniflow import nn
from miniflow.graph.lower import AllReduceShards
from miniflow.parallel import world

B, S, P = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.partial_sum
RNG = np.random.default_rng(0)


class Computed(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self, *inputs):
        return self.function(*inputs)


class Training(Computed):
    def __init__(self, model):
        super().__init__(lambda x: (self.model(x) ** 2).sum())
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.01))

    def build(self, x):
        loss = super().build(x)
        loss.backward()
        return loss


def spread(x, place):
    """The rows of an array among the ranks."""
    return flow.tensor(x, placement=place, sbp=B).to_global(sbp=S)


def count(step, *inputs):
    """How often a step reduces, and the bytes that it sends for it."""
    counted = world.communicator().counted
    calls, sent = counted.calls.get("all_reduce", 0), counted.bytes.get("all_reduce", 0)
    result = step(*inputs)
    return result, counted.calls["all_reduce"] - calls, counted.bytes["all_reduce"] - sent


def reductions(graph):
    return [i for i in graph._require_plan("test").replay.plan.program.instructions if i.op is AllReduceShards]


def test_small_gradients_share_a_collective_and_send_as_many_bytes(four_ranks):
    flow.manual_seed(0)
    local, spread_out = [
        nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 200), nn.Linear(200, 100)) for _ in range(2)
    ]
    spread_out.load_state_dict(local.state_dict())
    x = RNG.normal(size=(12, 5)).astype(np.float32)
    result, calls, sent = count(Training(spread_out.to_global(four_ranks, B)), spread(x, four_ranks))
    loss = (local(flow.tensor(x)) ** 2).sum()
    loss.backward()
    assert_close(result.numpy(), loss.numpy(), rtol=1e-5, atol=0)
    for p, q in zip(spread_out.parameters(), local.parameters(), strict=True):
        assert_close(p.numpy(), (q - 0.01 * q.grad).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert calls == 3, "the last bias, a large weight alone, and all others"
    assert sent == 2 * (4 - 1) * 4 * sum([p.numel() for p in local.parameters()]), "of all ranks"


@pytest.mark.parametrize("sbp", [(S, P), (P, S), (P, P)], ids=str)
def test_parts_of_uneven_sizes_share_a_collective(sbp, four_ranks):
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    arrays = [RNG.normal(size=shape) for shape in ((3, 2), (5,), (1, 4))]
    inputs = [flow.tensor(x, placement=mesh, sbp=(B, B)).to_global(sbp=sbp) for x in arrays]
    after = [B if entry is P else entry for entry in sbp]
    results, calls, _ = count(Computed(lambda *xs: [x.to_global(sbp=after) for x in xs]), *inputs)
    for y, x in zip(results, arrays, strict=True):
        assert_close(y.numpy(), x, rtol=1e-12, atol=0)
    assert calls == (2 if S in sbp else 1), "one in each group of ranks"


def test_a_collective_waits_for_none_that_needs_its_result(four_ranks):
    x = RNG.normal(size=(8, 3))
    sums = Computed(lambda x: ((x * x.sum(0).to_global(sbp=B)).sum(0).to_global(sbp=B), x.amax(0).to_global(sbp=B)))
    (y, largest), calls, _ = count(sums, spread(x, four_ranks))
    assert_close(y.numpy(), x.sum(0) ** 2, rtol=1e-12, atol=0)
    assert_close(largest.numpy(), x.max(0), rtol=0, atol=0)
    assert calls == 3, "two sums, one of which needs the other, and a maximum"


def test_one_collective_has_one_dtype(four_ranks):
    x = spread(RNG.integers(-3, 9, (4, 6)).astype(np.float32), four_ranks)
    sums = Computed(
        lambda x: tuple([x.to(t).sum(0).to_global(sbp=B) for t in (flow.float32, flow.float64, flow.float16)])
    )
    results, calls, _ = count(sums, x)
    assert calls == 3
    for y, dtype in zip(results, (np.float32, np.float64, np.float16), strict=True):
        assert y.numpy().dtype == dtype
        assert_close(y.numpy(), x.numpy().sum(0).astype(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("is_read_again", [False, True])
def test_a_sum_takes_the_memory_of_its_terms_where_nobody_reads_them(is_read_again, four_ranks):
    x = RNG.normal(size=(8, 40, 30))

    def function(x):
        terms = x.sum(0)  # a partial sum on each rank
        total = terms.to_global(sbp=B)
        return (total * 2.0).sum(), (terms * 3.0 if is_read_again else total).sum()

    graph = Computed(function)
    results = graph(spread(x, four_ranks))
    expected = x.sum() * 2, x.sum() * (3 if is_read_again else 1)
    assert_close(np.array([y.numpy() for y in results]), np.array(expected), rtol=1e-10, atol=0)
    (large,) = [i for i in reductions(graph) if i.outputs[0].shape == (40, 30)]
    block = graph._require_plan("test").replay.plan.block
    shared = [block[y] is block.get(x) for x, y in zip(large.inputs, large.outputs, strict=True)]
    assert shared == [not is_read_again] * 4
