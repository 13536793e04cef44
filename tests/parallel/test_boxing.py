"""Boxing: the values stay, each rank holds its part, and the bytes are those of the formulas."""

import itertools

import numpy as np
import pytest
from checks import assert_same
from compare import assert_close, count_comparison
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.parallel import boxing, world
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.partition import local_shape, part, region
from miniflow.sbp import B, P, S

RANKS = 6


@pytest.fixture(autouse=True, scope="module")
def six_ranks():
    flow.parallel.simulate(RANKS)
    yield
    flow.parallel.simulate(1)


def layouts(shape, where):
    return itertools.product([B, P, *map(S, range(len(shape)))], repeat=len(where.shape))


def make(values, where, sbp, seed=0):
    """A global array of these values, written down from the definition; partial sums have random terms."""
    random = np.random.default_rng(seed)
    complete = tuple([B if one is P else one for one in sbp])
    shards = {
        r: np.array(values[tuple(slice(*b) for b in region(values.shape, where, complete, r))]) for r in where.flat
    }
    for k, one in enumerate(sbp):
        if one is P:
            weights = random.integers(-3, 4, where.shape[k])
            weights[-1] = 1 - weights[:-1].sum()
            for group in where.groups(k):
                for weight, r in zip(weights, group, strict=True):
                    shards[r] = np.asarray(shards[r] * weight, values.dtype)
    return GlobalArray(GlobalMeta.of(where, tuple(sbp), values.shape, values.dtype), shards)


def whole(x):
    """The values, put together by the definition."""
    total = np.zeros(x.shape)
    for r in x.placement.flat:
        coordinates = x.placement.coordinates[r]
        if all(i == 0 or one is not B for one, i in zip(x.sbp, coordinates, strict=True)):  # one of the equal ones
            complete = tuple([B if one is P else one for one in x.sbp])
            total[tuple(slice(*b) for b in region(x.shape, x.placement, complete, r))] += x.shards[r]
    return total


MESHES = ([0, 1], [2, 0, 1], [[0, 3], [1, 2]], [[0, 1, 2], [5, 4, 3]], [4, 5], [5])


@pytest.mark.parametrize("source", MESHES, ids=str)
@pytest.mark.parametrize("target", MESHES, ids=str)
def test_every_transition_keeps_the_values(source, target):
    """Between layouts of one placement, and between placements that overlap or not; sizes that do not divide."""
    values = np.random.default_rng(0).integers(-9, 9, (5, 7)).astype(np.float64)
    old, new = flow.placement("cpu", source), flow.placement("cpu", target)
    for before, after in itertools.product(layouts(values.shape, old), layouts(values.shape, new)):
        x = make(values, old, before)
        y = boxing.box(x, new, after)
        assert (y.placement, y.sbp, y.shape) == (new, after, x.shape)
        for r in new.flat:
            assert y.shards[r].shape == local_shape(x.shape, new, after, r)
        assert_same(whole(y), values)
        if B in after:
            k = after.index(B)
            for group in new.groups(k):
                for r in group[1:]:
                    assert_same(y.shards[r], y.shards[group[0]])


@settings(suppress_health_check=[HealthCheck.too_slow])  # how busy the machine is, is not tested
@given(st.lists(st.integers(0, 7), max_size=3), st.integers(0, 3), st.integers(0, 10**6))
def test_any_shape(shape, mesh, seed):
    values = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float64)
    where = flow.placement("cpu", MESHES[mesh])
    every = list(layouts(values.shape, where))
    before, after = (every[i] for i in np.random.default_rng(seed).integers(len(every), size=2))
    assert_same(whole(boxing.box(make(values, where, before), where, after)), values)


FORMULAS = {  # of the bytes T of the whole tensor and n ranks: what all of them send together
    (S(0), B): lambda T, n: T * (n - 1),
    (S(1), B): lambda T, n: T * (n - 1),
    (P, B): lambda T, n: 2 * T * (n - 1),
    (P, S(0)): lambda T, n: T * (n - 1),
    (P, S(1)): lambda T, n: T * (n - 1),
    (S(0), S(1)): lambda T, n: T * (n - 1) // n,
    (S(1), S(0)): lambda T, n: T * (n - 1) // n,
    (B, S(0)): lambda T, n: 0,
    (B, S(1)): lambda T, n: 0,
    (B, P): lambda T, n: 0,
    (S(0), P): lambda T, n: 0,
    (S(1), P): lambda T, n: 0,
}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("pair", FORMULAS, ids=lambda pair: "".join(map(str, pair)))
def test_bytes_are_those_of_the_formula(pair, ranks):
    where = flow.placement("cpu", range(ranks))
    values = np.zeros((12, 24), np.float32)
    before = sum(world.communicator().counted.bytes.values())
    boxing.box(make(values, where, pair[:1]), where, pair[1:])
    moved = sum(world.communicator().counted.bytes.values()) - before
    assert moved == FORMULAS[pair](values.nbytes, ranks)
    assert moved == boxing.cost(values.shape, where, pair[:1], pair[1:]) * 4
    count_comparison()


UNEVEN = [(2, 3, 5), (5,), (1, 7), (3, 2), (7, 5), (4, 4), (3, 0, 2), (1, 1), (9, 2, 3), ()]


UNEVEN_MESHES = ([0, 1], [2, 0, 1], [0, 1, 2, 3], [0, 1, 2, 4, 3], [[0, 3], [1, 2]], [[0, 1, 2], [5, 4, 3]])


@pytest.mark.few(5)  # without the largest
@pytest.mark.parametrize("mesh", UNEVEN_MESHES, ids=str)
def test_explain_says_what_is_sent(mesh, capsys):
    """For every change of layout of tensors that the ranks do not divide."""
    where = flow.placement("cpu", mesh)
    for shape in UNEVEN:
        for before, after in itertools.permutations(layouts(shape, where), 2):
            x = flow.zeros(*shape, placement=where, sbp=[B] * len(where.shape)).to_global(sbp=before)
            start = sum(flow.parallel.stats().values())
            x.to_global(sbp=after)
            sent = sum(flow.parallel.stats().values()) - start
            lines = flow.boxing.explain(x, after).splitlines()
            assert lines[0].endswith(f": {sent:,} bytes"), (shape, before, after, lines)
            assert sum(int(line.split()[-2].replace(",", "")) for line in lines[1:]) == sent
            count_comparison()


def test_boxing_shares_no_memory():
    """Of whatever is boxed: what is then written in place changes nothing else."""
    where = flow.placement("cpu", [0, 1])
    for before, after in itertools.permutations(layouts((4, 6), where), 2):
        x = make(np.arange(24.0).reshape(4, 6), where, before)
        y = boxing.box(x, where, after)
        for r in where.flat:
            assert not np.shares_memory(x.shards[r], y.shards[r]), (before, after)
    count_comparison()


def test_a_sum_is_scattered_before_it_goes_to_other_ranks():
    """Which sends half as much as an all-reduce; then each of the targets gets all of it."""
    values = np.zeros((12, 24), np.float32)
    x = make(values, flow.placement("cpu", [0, 1]), (P,))
    before = sum(world.communicator().counted.bytes.values())
    boxing.box(x, flow.placement("cpu", [2, 3]), (B,))
    assert sum(world.communicator().counted.bytes.values()) - before == values.nbytes + 2 * values.nbytes
    count_comparison()


def test_the_cost_of_a_path_is_what_its_steps_send():
    where = flow.placement("cpu", [[0, 1, 2], [3, 4, 5]])
    values = np.zeros((12, 18), np.float32)
    for before, after in itertools.product(layouts(values.shape, where), repeat=2):
        start = sum(world.communicator().counted.bytes.values())
        boxing.box(make(values, where, before), where, after)
        moved = sum(world.communicator().counted.bytes.values()) - start
        assert moved == pytest.approx(boxing.cost(values.shape, where, before, after) * 4), (before, after)
    count_comparison()


def test_no_path_is_worse_than_through_broadcast():
    where = flow.placement("cpu", [[0, 1], [2, 3]])
    everything = (B, B)
    for before, after in itertools.product(layouts((8, 8), where), repeat=2):
        through = boxing.cost((8, 8), where, before, everything) + boxing.cost((8, 8), where, everything, after)
        assert boxing.cost((8, 8), where, before, after) <= through
    count_comparison()


def test_parts_are_as_even_as_possible():
    assert [part(7, 3, i) for i in range(3)] == [(0, 3), (3, 5), (5, 7)]
    assert [part(2, 3, i) for i in range(3)] == [(0, 1), (1, 2), (2, 2)]
    where = flow.placement("cpu", [[0, 1], [2, 3]])
    assert [local_shape((6,), where, (S(0), S(0)), r) for r in range(4)] == [(2,), (1,), (2,), (1,)]
    assert_close(np.array(part(6, 4, 3)), np.array([5, 6]))


@pytest.mark.parametrize("mesh", [[0, 1], [2, 0, 1], [[0, 3], [1, 2]]], ids=str)
def test_gradients(mesh):
    """The gradient of a weighted sum is the weights, whatever the layouts, also on other placements."""
    values, weights = np.random.default_rng(0).normal(size=(2, 5, 7))
    where, other = flow.placement("cpu", mesh), flow.placement("cpu", [3, 4, 5])
    w = flow.tensor(weights, placement=where, sbp=(B,) * len(where.shape))
    far = flow.tensor(weights, placement=other, sbp=B)
    for before, after in itertools.product(layouts(values.shape, where), repeat=2):
        x = flow.tensor(values, placement=where, sbp=before, requires_grad=True)
        (x.to_global(sbp=after) * w).sum().backward()
        assert x.grad.sbp == before
        assert_close(x.grad.numpy(), weights, rtol=1e-12, atol=1e-12)
        (x.to_global(other, after[0]) * far).sum().backward()
        assert x.grad.placement == where
        assert_close(x.grad.numpy(), 2 * weights, rtol=1e-12, atol=1e-12)


def test_the_layout_of_a_gradient_can_be_chosen():
    where = flow.placement("cpu", [0, 1])
    x = flow.tensor(np.ones((4, 4)), placement=where, sbp=S(0), requires_grad=True)
    seen = []
    y = x * 1
    y.register_hook(lambda gradient: seen.append(gradient.sbp))
    (y.to_global(sbp=B, grad_sbp=S(1)) * 2).sum().backward()
    assert seen == [(S(1),)] and x.grad.sbp == (S(0),)


def test_three_dimensions_of_a_placement():
    flow.parallel.simulate(8)
    where = flow.placement("cpu", np.arange(8).reshape(2, 2, 2))
    values = np.random.default_rng(0).integers(-9, 9, (5, 7)).astype(np.float64)
    every = list(layouts(values.shape, where))
    for i, j in np.random.default_rng(1).integers(len(every), size=(150, 2)):
        assert_same(whole(boxing.box(make(values, where, every[i]), where, every[j])), values)
    flow.parallel.simulate(RANKS)
