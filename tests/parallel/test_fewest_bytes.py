"""No change of layout sends much more than it has to.

The least is counted element by element, from what ranks hold before and after, by arguments about messages alone:

    where nothing is added up, each rank has to get each element that it needs and does not hold;
    k terms of a sum that is needed on m ranks, of which one holds a term, take at least (k - 1) + (m - 1) messages.

Which terms of a sum end up in which term of another sum is free: all choices are tried. Without partial sums the least
is what is sent, with them at most a quarter more.
"""

import functools
import itertools

import numpy as np
import pytest
from checks import assert_same
from compare import count_comparison

import miniflow as flow
from miniflow.parallel import boxing, world
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.sbp import B, P, S


@pytest.fixture(autouse=True, scope="module")
def eight_ranks():
    flow.parallel.simulate(8)
    yield
    flow.parallel.simulate(1)


def held(shape, mesh, sbp):
    """For each rank, in order: which elements it holds, and of which term of the sum."""
    ranks = []
    for position in np.ndindex(mesh):
        indices, term = [np.arange(n) for n in shape], []
        for entry, n, i in zip(sbp, mesh, position, strict=True):
            if entry is P:
                term.append(i)
            elif entry is not B:
                indices[entry.dim] = np.array_split(indices[entry.dim], n)[i]
        ranks.append((np.ix_(*indices), tuple(term)))
    return ranks


def terms_of(shape, mesh, sbp):
    """For each element the sets of ranks that hold the same term of it."""
    found = {element: {} for element in np.ndindex(shape)}
    for rank, (index, term) in enumerate(held(shape, mesh, sbp)):
        for element in itertools.product(*[axis.reshape(-1).tolist() for axis in index]):
            found[element].setdefault(term, set()).add(rank)
    return {element: frozenset(map(frozenset, terms.values())) for element, terms in found.items()}


@functools.cache
def fewest_messages(before, after):
    """For one element, by the sets of ranks that hold, and are to hold, the same term of it."""
    before, after = list(before), list(after)
    return min(
        sum(
            messages([term for term, goal in zip(before, goals, strict=True) if goal == i], ranks)
            for i, ranks in enumerate(after)
        )
        for goals in itertools.product(range(len(after)), repeat=len(before))
    )


def messages(terms, ranks):
    """To bring the sum of terms to ranks; the sum of none is zero."""
    if len(terms) <= 1:
        return len(ranks - terms[0]) if terms else 0
    return len(terms) - bool(ranks & frozenset().union(*terms)) + len(ranks) - 1


def layouts(shape, mesh):
    return list(itertools.product([B, P, *map(S, range(len(shape)))], repeat=len(mesh)))


def make(values, where, sbp, random):
    """A global array of these values, by the definition; the terms of sums are random."""
    shards, terms = {}, {}
    sums = [n for entry, n in zip(sbp, where.shape, strict=True) if entry is P]
    for term in np.ndindex(*sums):
        terms[term] = random.integers(-9, 9, values.shape).astype(values.dtype)
    if sums:
        terms[(0,) * len(sums)] += values - sum(terms.values())
    for rank, (index, term) in zip(where.flat, held(values.shape, where.shape, sbp), strict=True):
        shards[rank] = (terms[term] if sums else values)[index].copy()
    return GlobalArray(GlobalMeta.of(where, sbp, values.shape, values.dtype), shards)


def assert_holds(x, values):
    """Each rank holds its part; of sums, one term, of which others hold the same."""
    terms = {}
    for rank, (index, term) in zip(x.placement.flat, held(x.shape, x.placement.shape, x.sbp), strict=True):
        terms.setdefault(term, np.full(x.shape, np.nan, x.dtype))
        known = terms[term][index]
        assert_same(x.shards[rank], np.where(np.isnan(known), x.shards[rank], known))
        terms[term][index] = x.shards[rank]
    assert_same(sum(terms.values()), values)


@pytest.mark.parametrize(
    ("mesh", "shape"),
    [((2, 2), (8, 12)), ((2, 2), (7, 5)), ((2, 2), (1, 9)), ((2, 2), (3, 2, 5)), ((2, 3), (12, 6)), ((2, 3), (7, 10)),
     ((2, 4), (8, 16)), ((2, 4), (9, 5)), ((4,), (4, 8)), ((4,), (6, 3)), ((3,), (7, 2, 4)), ((2, 1, 3), (7,))],
    ids=str,
)  # fmt: skip
def test_all_pairs(mesh, shape):
    random = np.random.default_rng(0)
    where = flow.placement("cpu", random.permutation(8)[: np.prod(mesh)].reshape(mesh))
    values = random.integers(-9, 9, shape).astype(np.float32)
    every = layouts(shape, mesh)
    terms = {sbp: terms_of(shape, mesh, sbp) for sbp in every}
    arrays = {sbp: make(values, where, sbp, random) for sbp in every}
    for before, after in itertools.permutations(every, 2):
        start = sum(flow.parallel.stats().values())
        result = boxing.box(arrays[before], where, after)
        sent = sum(flow.parallel.stats().values()) - start
        assert_holds(result, values)
        least = 4 * sum(fewest_messages(terms[before][i], terms[after][i]) for i in np.ndindex(shape))
        assert sent == boxing.cost(shape, where, before, after, 4), (before, after)
        most = 1.25 * least if P in before + after else least
        assert least <= sent <= most, (before, after)
    count_comparison()


@pytest.mark.parametrize("ndim", [1, 2, 4])
def test_three_dimensions(ndim):
    """Random pairs on 2 x 2 x 2; the parts of sums are in `test_all_pairs`."""
    random = np.random.default_rng(ndim)
    where, mesh = flow.placement("cpu", np.arange(8).reshape(2, 2, 2)), (2, 2, 2)
    for shape in ((8,) * ndim, (5, 9, 3, 2)[:ndim]):
        values = random.integers(-9, 9, shape).astype(np.float32)
        every = [sbp for sbp in layouts(shape, mesh) if P not in sbp]
        for i, j in random.integers(len(every), size=(40, 2)):
            terms = [terms_of(shape, mesh, every[k]) for k in (i, j)]
            least = sum(fewest_messages(terms[0][e], terms[1][e]) for e in np.ndindex(shape))
            assert boxing.cost(shape, where, every[i], every[j]) == least, (every[i], every[j])
            assert_holds(boxing.box(make(values, where, every[i], random), where, every[j]), values)


def test_equal_neighbours_are_one():
    """On 2 x 4, T bytes from (S(0), S(0)) to (S(1), S(1)): one all-to-all among eight ranks, 7 T / 8."""
    where = flow.placement("cpu", np.arange(8).reshape(2, 4))
    (step,) = boxing.path((16, 8), where, (S(0), S(0)), (S(1), S(1)), 4)
    assert (step.name, step.dims, step.cost) == ("all-to-all", (0, 1), 16 * 8 * 4 * 7 // 8)
    (step,) = boxing.path((16, 8), where, (P, P), (B, B))
    assert (step.name, step.cost) == ("all-reduce", 2 * 7 * 16 * 8)
    count_comparison()


def test_paths_of_sizes_that_divide_are_planned_once():
    where = flow.placement("cpu", np.arange(8).reshape(2, 4))
    before = boxing.ways.cache_info().misses
    costs = [boxing.cost((n, 8 * n), where, (S(0), S(1)), (S(1), S(0))) for n in (8, 16, 800)]
    assert boxing.ways.cache_info().misses <= before + 1
    assert costs == [costs[0], 4 * costs[0], 10**4 * costs[0]]
    count_comparison()


def test_explain_across_placements(capsys):
    """It says what is sent, and by whom."""
    pair, others = flow.placement("cpu", [0, 1]), flow.placement("cpu", [1, 2, 3])
    for before, after in itertools.product(layouts((4, 6), (2,)), layouts((4, 6), (3,))):
        x = flow.ones(4, 6, placement=pair, sbp=B).to_global(sbp=before)
        first, *steps = flow.boxing.explain(x, after, others).splitlines()
        sent = {}
        exchange = world.communicator().exchange

        def spy(messages, targets, *group, sent=sent, exchange=exchange, **name):
            sent.clear()  # of the last step
            sent |= {pair: values.nbytes for pair, values in messages.items() if pair[0] != pair[1]}
            exchange(messages, targets, *group, **name)

        start = sum(flow.parallel.stats().values())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.communicator(), "exchange", spy)
            x.to_global(others, after)
        assert first.endswith(f": {sum(flow.parallel.stats().values()) - start:,} bytes")
        said = "\n".join(steps)
        for sender in pair.flat:
            to = ", ".join(f"{n} bytes to {r}" for (s, r), n in sent.items() if s == sender)
            assert f"rank {sender} sends {to or 'nothing'}" in said
        count_comparison()
