"""The checks of lesson 15: NumPy on the whole array, the bytes that miniflow counts, and a lossy network."""

import contextlib
import functools
import itertools

import numpy as np
import pytest

import miniflow as flow
from miniflow import sbp as product
from tutorials import drawn, same, same_all

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
SIZES = [(7, 3), (8, 4), (3, 5), (1, 4), (4, 4), (10, 4), (5, 1)]  # size of a dim, ranks


class Network:
    """Counts messages; a broken one delivers NaN in place of what was sent."""

    def __init__(self, ranks, broken=False):
        self.ranks, self.broken, self.log = ranks, broken, []

    def send(self, sender, receiver, array):
        if not (0 <= sender < self.ranks and 0 <= receiver < self.ranks):
            raise AssertionError(f"send({sender}, {receiver}, ...): expected ranks from 0 to {self.ranks - 1}")
        self.log.append((sender, receiver, array.nbytes))
        return np.full_like(array, np.nan) if self.broken else array.copy()

    def shift(self, arrays):
        return [self.send((r - 1) % self.ranks, r, arrays[r - 1]) for r in range(self.ranks)]

    @property
    def bytes(self):
        return sum(size for *_, size in self.log)


def bounds(size, ranks):
    """Start and stop of the parts, as NumPy cuts."""
    ends = [0, *np.cumsum([len(x) for x in np.array_split(np.arange(size), ranks)]).tolist()]
    return list(zip(ends, ends[1:]))


def laid(rng, x, sbp, ranks):
    """Shards of an array; those of a partial sum differ on all ranks."""
    if sbp == P:
        summands = [drawn(rng, *x.shape) for _ in range(ranks - 1)]
        return [*summands, x - sum(summands)] if summands else [x.copy()]
    return [x.copy() for _ in range(ranks)] if sbp == B else [y.copy() for y in np.array_split(x, ranks, sbp.dim)]


def gathered(shards, network):
    n = network.ranks
    return [[shards[k] if k == r else network.send(k, r, shards[k]) for k in range(n)] for r in range(n)]


def scattered(blocks, network):
    sums = [row[r] for r, row in enumerate(blocks)]
    for s, r in itertools.permutations(range(network.ranks), 2):
        sums[r] = sums[r] + network.send(s, r, blocks[s][r])
    return sums


def reduced(shards, network):
    sums = scattered([np.array_split(x.reshape(-1), network.ranks) for x in shards], network)
    return [np.concatenate(row).reshape(shards[0].shape) for row in gathered(sums, network)]


def without(impl, monkeypatch, **others):
    """Let a task use right versions of what other tasks write."""
    for name, function in others.items():
        monkeypatch.setattr(impl, name, function)


def compare(got, expected, what, hint):
    """Compare lists of arrays, one for each rank, which must not share memory."""
    same_all(got, expected, f"{what}: shard of each rank", hint, rtol=1e-4, atol=1e-5)
    if any(np.shares_memory(x, y) for x, y in itertools.combinations(got, 2)):
        raise AssertionError(f"{what}: two ranks share memory; expected copies: devices have memories of their own")


@pytest.fixture
def simulate():
    yield flow.parallel.simulate
    flow.parallel.simulate(1)


@pytest.mark.task("15.1")
@pytest.mark.parametrize("size, ranks", SIZES)
def test_parts(impl, size, ranks):
    same(impl.parts(size, ranks), bounds(size, ranks), f"parts({size}, {ranks})", "the first ranks have one more")


@pytest.mark.task("15.1")
@pytest.mark.parametrize("size, ranks", SIZES)
def test_shards(impl, rng, monkeypatch, size, ranks):
    without(impl, monkeypatch, parts=bounds)
    x = drawn(rng, 3, size)
    zeros = [np.zeros_like(x)] * (ranks - 1)
    for sbp, wanted in [(S(1), np.array_split(x, ranks, 1)), (B, [x] * ranks), (P, [x, *zeros])]:
        what = f"spread(array of shape {x.shape}, {sbp}, {ranks})"
        compare(impl.spread(x, sbp, ranks), wanted, what, "a partial sum is on rank 0 first")
    for sbp in (S(0), S(1), B, P):
        what = f"whole(shards of an array of shape {x.shape} on {ranks} ranks, {sbp})"
        same(impl.whole(laid(rng, x, sbp, ranks), sbp), x, what, "join, take one, or add", atol=1e-5)


def ring(network, ranks, what):
    """Each rank has sent so often, to its neighbour."""
    wanted = sorted([(r, (r + 1) % ranks) for r in range(ranks)] * (ranks - 1))
    found = sorted((sender, receiver) for sender, receiver, _ in network.log)
    same(found, wanted, f"senders and receivers of {what}", f"a ring: {ranks - 1} times, to the next rank")


@pytest.mark.task("15.2")
@pytest.mark.parametrize("size, ranks", SIZES)
def test_all_gather(impl, rng, size, ranks):
    shards = np.array_split(drawn(rng, size, 3), ranks)
    what = f"all_gather of {size} rows on {ranks} ranks"
    network = Network(ranks)
    got = impl.all_gather([x.copy() for x in shards], network)
    for rank, row in enumerate(got):
        compare(row, shards, f"{what}, at rank {rank}", "pass on what came last")
    ring(network, ranks, what)
    same(network.bytes, (ranks - 1) * size * 12, f"bytes of {what}", "each shard passes n - 1 links, once")
    lost = impl.all_gather([x.copy() for x in shards], Network(ranks, broken=True))
    for r, k in itertools.product(range(ranks), repeat=2):
        wanted = shards[k] if k == r else np.full_like(shards[k], np.nan)
        same(lost[r][k], wanted, f"{what}, where all that is sent becomes NaN", "what others have must be sent")


@pytest.mark.task("15.2")
@pytest.mark.parametrize("size, ranks", SIZES)
def test_reduce_scatter(impl, rng, size, ranks):
    arrays = [drawn(rng, 2, size) for _ in range(ranks)]
    blocks = [np.array_split(x, ranks, 1) for x in arrays]
    what = f"reduce_scatter of {size} columns on {ranks} ranks"
    network = Network(ranks)
    got = impl.reduce_scatter([[x.copy() for x in row] for row in blocks], network)
    compare(got, np.array_split(sum(arrays), ranks, 1), what, "rank r ends with block r: where does it have to start?")
    ring(network, ranks, what)
    same(network.bytes, (ranks - 1) * size * 8, f"bytes of {what}", "add on the way: each message is one block")
    given = [[x.copy() for x in row] for row in blocks]
    lost = impl.reduce_scatter(given, Network(ranks, broken=True))
    wanted = [np.full_like(x, np.nan) if ranks > 1 else x for x in blocks[0]]
    compare(lost, wanted, f"{what}, where all that is sent becomes NaN", "what others have must be sent")
    for x, y in zip(sum(given, []), sum(blocks, [])):
        same(x, y, f"a block after {what}", "do not change what was given")


@pytest.mark.task("15.2")
@pytest.mark.parametrize("size, ranks", SIZES)
def test_all_reduce(impl, rng, monkeypatch, size, ranks):
    without(impl, monkeypatch, parts=bounds, all_gather=gathered, reduce_scatter=scattered)
    arrays = [drawn(rng, size, 1, 3) for _ in range(ranks)]
    what, network = f"all_reduce of shape {(size, 1, 3)} on {ranks} ranks", Network(ranks)
    compare(impl.all_reduce(arrays, network), [sum(arrays)] * ranks, what, "reduce_scatter, then all_gather")
    same(network.bytes, 2 * (ranks - 1) * size * 12, f"bytes of {what}", "cut each array into n blocks")


@pytest.mark.task("15.3")
def test_all_to_all(impl, rng):
    for ranks in (1, 3, 4):
        blocks = [[drawn(rng, 1 + s, 2 + r) for r in range(ranks)] for s in range(ranks)]
        network, what = Network(ranks), f"all_to_all on {ranks} ranks"
        got = impl.all_to_all(blocks, network)
        for r in range(ranks):
            compare(got[r], [row[r] for row in blocks], f"{what}, at rank {r}", "result[r][s] comes from rank s")
        pairs = sorted((sender, receiver) for sender, receiver, _ in network.log)
        same(pairs, [(s, r) for s in range(ranks) for r in range(ranks) if s != r], f"senders and receivers of {what}")


@functools.cache
def sent(shape, ranks, before, after):
    """The elements that miniflow sends, counted."""
    if before == after:
        return 0
    flow.parallel.simulate(ranks)
    everyone = flow.placement.all("cpu")
    x = flow.zeros(*shape, placement=everyone, sbp=before)
    start = sum(flow.parallel.stats().values())
    x.to_global(sbp=after)
    return (sum(flow.parallel.stats().values()) - start) // 4


LAYOUTS = list(itertools.product([S(0), S(1), S(2), B, P], repeat=2))


@pytest.mark.task("15.3")
@pytest.mark.parametrize("before, after", LAYOUTS, ids=str)
def test_boxing(impl, rng, monkeypatch, simulate, before, after):
    without(impl, monkeypatch, parts=bounds, all_gather=gathered, reduce_scatter=scattered, all_reduce=reduced)
    for shape, ranks in [((4, 8, 4), 4), ((5, 7, 2), 3), ((2, 3, 5), 4)]:
        x = drawn(rng, *shape)
        shards = given = laid(rng, x, before, ranks)
        network, what = Network(ranks), f"box of shape {shape} on {ranks} ranks, {before} to {after}"
        got = impl.box(shards, before, after, network)
        if after == P:
            same([y.shape for y in got], [shape] * ranks, f"shapes of {what}", "each summand is as large as the whole")
            got, shards = [sum(got)], [x]
        else:
            shards = laid(rng, x, after, ranks)
        compare(got, shards, what, "which collective brings each rank what it lacks?")
        count = 4 * sent(shape, ranks, before, after)
        same(network.bytes, count, f"bytes of {what}", "there is a collective that sends less")
        lost = impl.box(given, before, after, Network(ranks, broken=True))
        if count and not all(np.isnan(y).any() for y in lost if y.size):
            raise AssertionError(f"{what}, where all that is sent becomes NaN: some rank knows what was never sent")


@pytest.mark.task("15.4")
@pytest.mark.parametrize("before, after", LAYOUTS, ids=str)
def test_cost(impl, monkeypatch, simulate, before, after):
    without(impl, monkeypatch, parts=bounds)
    for shape, ranks in [((4, 8, 4), 4), ((5, 7, 2), 3), ((2, 3, 5), 4), ((6, 9, 7), 5), ((3, 3, 3), 1)]:
        what = f"cost({shape}, {ranks}, {before}, {after})"
        same(impl.cost(shape, ranks, before, after), sent(shape, ranks, before, after), what, "what stays is not sent")


OPERATIONS = {  # operands, result, partial, fixed
    "matrix product": (["mk", "kn"], "mn", [(0,), (1,)], ""),
    "batched matrix product": (["bmk", "bkn"], "bmn", [(0,), (1,)], ""),
    "sum": (["mn", "mn"], "mn", [(0, 1)], ""),
    "sum of x and a bias": (["mn", "n"], "mn", [(0, 1)], ""),
    "product of three": (["ab", "ba", "b"], "ab", [(0,), (1,), (2,)], ""),
    "relu": (["mn"], "mn", [], ""),
    "sum over rows": (["mn"], "n", [(0,)], ""),
    "maximum over rows": (["mn"], "n", [], "m"),
}


def stated(operands, result, partial, fixed):
    """The signatures that miniflow states for an operator."""
    found = product.signatures(operands, [result], linear=partial, fixed=fixed)
    return [*((given, one) for given, (one,) in found), ((B,) * len(operands), B)]


@pytest.mark.task("15.5")
@pytest.mark.parametrize("name", OPERATIONS)
def test_signatures(impl, name):
    operands, result, partial, fixed = OPERATIONS[name]
    wanted = stated(operands, result, partial, fixed)
    arguments = f"signatures({operands}, {result!r}, {partial}, {fixed!r})"
    got = impl.signatures(operands, result, partial, fixed)
    for found, expected in itertools.zip_longest(got, wanted):
        what = f"{arguments}, {name}"
        same(found, expected, what, "a letter is split wherever it stands; summed over it is P")


CALLS = {
    "matrix product": (flow.matmul, ((8, 4), (4, 16)), "matrix product"),
    "tall matrix product": (flow.matmul, ((32, 4), (4, 4)), "matrix product"),
    "wide matrix product": (flow.matmul, ((4, 8), (8, 4)), "matrix product"),
    "square matrix product": (flow.matmul, ((8, 8), (8, 8)), "matrix product"),
    "sum": (flow.add, ((4, 8), (4, 8)), "sum"),
    "bias": (flow.add, ((4, 8), (8,)), "sum of x and a bias"),
    "relu": (flow.relu, ((4, 8),), "relu"),
}


@pytest.mark.task("15.5")
@pytest.mark.parametrize("name", CALLS)
def test_choice(impl, monkeypatch, simulate, name):
    without(impl, monkeypatch, cost=sent)
    function, shapes, operation = CALLS[name]
    operands, result, partial, fixed = OPERATIONS[operation]
    candidates = stated(operands, result, partial, fixed)
    for given in itertools.product(*[[*map(S, range(len(shape))), B, P] for shape in shapes]):
        simulate(4)
        everyone = flow.placement.all("cpu")
        tensors = [flow.zeros(*shape, placement=everyone, sbp=sbp) for shape, sbp in zip(shapes, given)]
        with contextlib.redirect_stdout(None):  # what it prints is not the student's
            explained = flow.sbp.explain(function, *tensors)
        wanted = explained.splitlines()[1].partition(": ")[0].removeprefix("-> ")
        shape = tuple(function(*tensors).shape)
        signature, out = impl.choose(shapes, given, shape, candidates, 4)
        found = f"{', '.join(map(str, signature))} => {out}"
        what = f"choose({shapes}, ({', '.join(map(str, given))}), {shape}, signatures of {name}, 4)"
        same(found, wanted, what, "what fits as it is; else the fewest elements, debts of partial sums included")


@pytest.mark.task("15.6")
@pytest.mark.parametrize("ranks, hidden", [(4, 8), (3, 7), (4, 2), (1, 5)])
def test_two_layers(impl, rng, monkeypatch, ranks, hidden):
    without(impl, monkeypatch, all_reduce=reduced)
    x, w1, b1, w2, b2 = (drawn(rng, *shape) for shape in [(5, 3), (3, hidden), (hidden,), (hidden, 6), (6,)])
    layouts = [(x, B), (w1, S(1)), (b1, S(0)), (w2, S(0)), (b2, B)]
    shards = [laid(rng, array, sbp, ranks) for array, sbp in layouts]
    network, what = Network(ranks), f"two_layers with {hidden} hidden units on {ranks} ranks"
    wanted = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    compare(impl.two_layers(*shards, network), [wanted] * ranks, what, "where does b2 have to be added?")
    same(network.bytes, 2 * (ranks - 1) * wanted.nbytes, f"bytes of {what}", "one all-reduce, of the second product")
