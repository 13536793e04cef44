"""The checks of lesson 11: the library's attention and its gradients, NumPy in float64, and counted reads."""

import math

import numpy as np
import pytest

import miniflow as flow
from tutorials import at_most, same, same_all
from tutorials.launches import launch

SHAPES = [((), 5, 5, 4, 3), ((2,), 3, 7, 8, 8), ((2, 3), 6, 6, 5, 2), ((), 1, 9, 4, 4)]  # batch, L, S, E, V
BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
MAY_NOT_CALL = {
    "11.1": ["scaled_dot_product_attention"],
}


def drawn(rng, *shape, dtype=np.float64, size=1.0):
    return (size * rng.standard_normal(shape)).astype(dtype)


def inputs(rng, batch, queries, keys, width, values, dtype=np.float64, size=1.0):
    """Queries, keys and values; `size` makes the scores larger."""
    q, k = (drawn(rng, *batch, n, width, dtype=dtype, size=size) for n in (queries, keys))
    return q, k, drawn(rng, *batch, keys, values, dtype=dtype)


def exact_scores(q, k, shift=None):
    """The scores by their formula, computed in float64."""
    x = np.einsum("...le,...se->...ls", q, k, dtype=np.float64) * q.shape[-1] ** -0.5
    last = np.arange(q.shape[-2])[:, None] + (math.inf if shift is None else shift)
    return np.where(np.arange(k.shape[-2]) > last, -np.inf, x).astype(q.dtype)


def expected(q, k, v, shift=None, do=None):
    """The library's attention, computed in float64: o and lse, and if `do` is given the gradients of q, k and v."""
    wide = [x.astype(np.float64) for x in (q, k, v)]
    tensors, x = [flow.tensor(x, requires_grad=True) for x in wide], exact_scores(*wide[:2], shift)
    o = flow.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=flow.tensor(x > -np.inf))
    found = [o.detach().numpy(), np.logaddexp.reduce(x, axis=-1)]
    if do is not None:
        o.backward(flow.tensor(do.astype(np.float64)))
        found += [t.grad.numpy() for t in tensors]
    return [np.asarray(part, q.dtype) for part in found]


@pytest.mark.task("11.1")
@BOTH
def test_scores(impl, rng, dtype):
    for shape in SHAPES:
        q, k, _ = inputs(rng, *shape, dtype)
        for shift in (None, 0, 2, -1):
            what = f"scores of q {q.shape} and k {k.shape}, shift {shift}"
            hint = "divide by the root of E; key j is seen if j <= i + shift"
            same(impl.scores(q, k, shift), exact_scores(q, k, shift), what, hint, rtol=1e-4, atol=1e-5)


@pytest.mark.task("11.1")
@pytest.mark.parametrize("dtype, size", [(np.float32, 1), (np.float64, 1), (np.float32, 8), (np.float64, 30)])
def test_attention(impl, rng, dtype, size):
    for shape in SHAPES:
        q, k, v = inputs(rng, *shape, dtype, size)
        for causal in (False, True):
            what = f"attention of q {q.shape}, k {k.shape}, v {v.shape}, causal={causal}, scores of about {size**2}"
            o, lse = expected(q, k, v, k.shape[-2] - q.shape[-2] if causal else None)
            got = impl.attention(q, k, v, causal)
            hint = "softmax over the keys of the scores minus their largest; the queries are the last L positions"
            same(got[0], o, f"{what}: o", hint, rtol=1e-3, atol=2e-4)
            hint = "the logarithm of the sum, and what was subtracted"
            same(got[1], lse, f"{what}: lse", hint, rtol=1e-4, atol=1e-4)


@pytest.mark.task("11.2")
@BOTH
@pytest.mark.parametrize("calls", [1, 2])
def test_backward(impl, rng, dtype, monkeypatch, calls):
    monkeypatch.setattr(impl, "scores", exact_scores)
    for shape in SHAPES:
        q, k, v = inputs(rng, *shape, dtype)
        do, keys = drawn(rng, *q.shape[:-1], v.shape[-1], dtype=dtype), k.shape[-2]
        for shift in (None, keys - q.shape[-2]):
            o, lse, *wanted = expected(q, k, v, shift, do)
            parts = []
            for own in np.array_split(np.arange(keys), calls):
                seen = None if shift is None else shift - own[0]
                parts.append(impl.attention_backward(q, k[..., own, :], v[..., own, :], o, lse, do, seen))
            dq, dk, dv = zip(*parts)
            got = [sum(dq), np.concatenate(dk, axis=-2), np.concatenate(dv, axis=-2)]
            what = f"dq, dk, dv for q {q.shape}, k {k.shape}, v {v.shape}, shift {shift}; keys in {calls} call(s)"
            hint = "weights are exp(scores - lse); o and lse are given: do not compute them from these keys"
            same_all(got, wanted, what, hint, rtol=1e-3, atol=1e-4)


def state(x, v, dtype):
    """What `update` knows after these scores."""
    largest = x.max(-1, initial=-np.inf)
    weights = np.where(x == -np.inf, 0, np.exp(x - np.where(np.isinf(largest), 0, largest)[:, None]))
    return [part.astype(dtype) for part in (largest, weights.sum(-1), weights @ v)]


@pytest.mark.task("11.3")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype, height", [(np.float32, 150), (np.float64, 1500)])
def test_update(impl, rng, dtype, height):
    x, v = drawn(rng, 4, 12), drawn(rng, 12, 3)
    x += np.repeat([0, height, -height], 4)  # the largest of a block is far above or below that of the one before
    x[1, :4] = x[2, :7] = x[3] = -np.inf
    for before, after in [(0, 4), (4, 8), (8, 12), (4, 5), (5, 12)]:
        new = x[:, before:after].astype(dtype), v[before:after].astype(dtype)
        got = impl.update(*state(x[:, :before], v[:before], dtype), *new)
        what = f"update (largest, total, summed), from {before} to {after} keys; some rows have seen no key"
        hint = "what was added up before has to be multiplied by exp(old largest - new largest); -inf - -inf is NaN"
        same_all(got, state(x[:, :after], v[:after], dtype), what, hint, rtol=1e-3, atol=1e-5)


@pytest.mark.task("11.3")
@pytest.mark.parametrize("dtype, large", [(np.float32, 5), (np.float64, 30)])
@pytest.mark.parametrize("queries, keys, size", [(7, 7, 3), (5, 5, 5), (6, 17, 16), (4, 15, 16), (3, 9, 1)])
def test_blockwise(impl, rng, monkeypatch, queries, keys, size, dtype, large):
    asked = []
    monkeypatch.setattr(impl, "scores", lambda q, k, shift=None: asked.append(len(k)) or exact_scores(q, k, shift))
    q, k, v = inputs(rng, (), queries, keys, 4, 3, dtype, large)
    for causal in (False, True):
        what = f"blockwise of q {q.shape}, k {k.shape}, {size} keys at a time, causal={causal}"
        hint = "o is `summed` divided by `total`, lse is log(total) + largest; key j of a block is key start + j"
        got, wanted = impl.blockwise(q, k, v, size, causal), expected(q, k, v, keys - queries if causal else None)
        same_all(got, wanted, f"{what}: o and lse", hint, rtol=1e-3, atol=1e-4)
    blocks = [len(k[start : start + size]) for start in range(0, keys, size)]
    same(asked, 2 * blocks, f"{what}: keys in the calls of scores", "never make all scores: ask for those of one block")


@pytest.mark.task("11.4")
@pytest.mark.parametrize("length", [1, 31, 32, 33, 69])
@pytest.mark.parametrize("causal", [False, True])
def test_flash(impl, rng, length, causal):
    (q, k, v), scale = inputs(rng, (2,), length, length, 16, 16, np.float32, 4), np.float32(rng.uniform(0.2, 0.4))
    q[0] /= 4
    wanted = expected(q * (4 * scale), k, v, 0 if causal else None)
    o, lse = np.full_like(q, np.nan), np.full((2, length), np.nan, np.float32)
    grid, what = (-(-length // impl.TILE), 2), f"flash with 2 heads of {length} queries, causal={causal}"
    hint = "threads without a query have to copy keys, and to wait at every barrier; keys beyond N do not count"
    counts = launch(impl.flash, [q, k, v, scale, causal, o, lse], grid, impl.TILE, what, hint).total
    same_all([o, lse], wanted, f"{what}: o and lse, which were NaN", hint, rtol=1e-3, atol=1e-3)
    tops = range(0, length, 32)  # 32 queries share what is read of keys and values
    most = 2 * 16 * (length + 2 * sum(min(length, top + 32) if causal else length for top in tops))
    hint = "a block reads a tile of keys once, into shared memory; causal: no tile that none of its queries sees"
    at_most(counts.global_loads, most, f"{what}: reads of global memory", hint)
    same(counts.global_stores, o.size + lse.size, f"{what}: writes to global memory", "one for each result")


@pytest.mark.task("11.5")
@pytest.mark.parametrize("heads", [2, 4, 1])
def test_split_and_join(impl, rng, heads):
    x = drawn(rng, 2, 3, 8)
    wanted = np.stack(np.split(x, heads, axis=-1), axis=1)
    hint = "transpose: a reshape alone mixes positions and heads"
    same(impl.split(flow.tensor(x), heads), wanted, f"split(x of shape {x.shape}, {heads})", hint)
    same(impl.join(flow.tensor(wanted)), x, f"join(x of shape {wanted.shape})", hint)


def exact_rest(block, x, heads):
    """`Block.rest`, in the library's operations."""
    x = block.out(flow.cat(heads.unbind(1), dim=-1)) + x
    return block.network(block.norm2(x)) + x


def block_of(impl, rng, monkeypatch, width, heads):
    """A block in float64 with random parameters, and a function of arrays: the library's layer with the same ones.

    `split` and `join` are made right.
    """
    monkeypatch.setattr(impl, "split", lambda x, heads: flow.stack(x.chunk(heads, dim=-1), dim=1))
    monkeypatch.setattr(impl, "join", lambda x: flow.cat(x.unbind(1), dim=-1))
    block = impl.Block(width, heads).double()
    values = [flow.tensor(drawn(rng, *p.shape, size=0.5)) for p in block.parameters()]
    block.load_state_dict(dict(zip(block.state_dict(), values)))
    layer = flow.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", norm_first=True, batch_first=True)
    layer.double().load_state_dict(dict(zip(layer.state_dict(), values[4:] + values[:4])))  # its norms come last
    return block, lambda x: layer(flow.tensor(x), flow.tensor(~np.tri(x.shape[1], dtype=bool))).detach().numpy()


@pytest.mark.task("11.5")
@pytest.mark.parametrize("width, heads", [(6, 2), (6, 3), (4, 1)])
def test_block(impl, rng, monkeypatch, width, heads):
    block, layer = block_of(impl, rng, monkeypatch, width, heads)
    x, what = drawn(rng, 2, 5, width), f"a block of width {width} with {heads} heads"
    y = block(flow.tensor(x))
    same(y, layer(x), what, "x + out(attention(norm(x))), then x + network(norm2(x)); causal")
    same(y.requires_grad, True, f"{what}: requires_grad of the result", "use tensor operations")


@pytest.mark.task("11.5")
@pytest.mark.parametrize("batch, length, letters", [(3, 4, 7), (1, 1, 3), (2, 5, 4)])
def test_loss(impl, rng, batch, length, letters):
    windows, table = rng.integers(letters, size=(batch, length + 1)), drawn(rng, batch, length + 1, letters)
    asked, hint = [], "the letters 0 .. length - 1 go in, the letters 1 .. length are to be predicted"

    def model(tokens):
        asked.append(tokens.numpy().tolist())
        return flow.tensor(table[: tokens.shape[0], : tokens.shape[1]])

    got = impl.loss(model, flow.tensor(windows))
    same(asked, [windows[:, :length].tolist()], f"what the model gets of windows {windows.shape}", hint)
    logs = table[:, :length] - np.logaddexp.reduce(table[:, :length], axis=2, keepdims=True)
    wanted = -np.take_along_axis(logs, windows[:, 1:, None], axis=2).mean()
    same(got, np.asarray(wanted), f"loss of windows {windows.shape}", hint)


@pytest.mark.task("11.6")
@pytest.mark.parametrize("batch, width, heads", [(1, 6, 2), (2, 6, 3)])
def test_step(impl, rng, monkeypatch, batch, width, heads):
    block, layer = block_of(impl, rng, monkeypatch, width, heads)
    monkeypatch.setattr(impl.Block, "rest", exact_rest)
    x, cache, hint = drawn(rng, batch, 5, width), None, "attention of one query to all keys so far; then as in forward"
    for place, wanted in enumerate(np.split(layer(x), 5, axis=1)):
        y, cache = block.step(flow.tensor(x[:, place : place + 1]), cache)
        same(y, wanted, f"step at place {place}, beside forward", hint)
        sizes = [tuple(part.shape) for part in cache]
        same(sizes, [(batch, heads, place + 1, width // heads)] * 2, f"shapes of the cache after place {place}", hint)


@pytest.mark.task("11.6")
@pytest.mark.parametrize("dtype, height", [(np.float32, 100), (np.float64, -100)])
@pytest.mark.parametrize("temperature", [0.0, 0.02, 0.7, 1.0, 2.5])
def test_sample(impl, rng, temperature, dtype, height):
    logits = drawn(rng, 6, dtype=dtype, size=2) + dtype(height)
    logits[4] = logits.max()  # twice, or the last of all
    wide = (logits.astype(np.float64) - height) / (temperature or 1)
    ends = np.add.accumulate(np.exp(wide - np.logaddexp.reduce(wide)))
    for u in [0.0, *rng.random(6), 1 - 1e-9]:
        wanted = int((ends[:5] <= u).sum()) if temperature else logits.tolist().index(logits.max())
        hint = "divide by the temperature before the softmax; add up probabilities until they are more than u"
        same(impl.sample(logits, temperature, u), wanted, f"sample({logits.tolist()}, {temperature}, {u})", hint)


@pytest.mark.task("11.6")
@pytest.mark.parametrize("prompt, count", [([3, 1, 4], 5), ([2], 4), ([0, 5, 2, 2], 1)])
def test_generate(impl, rng, monkeypatch, prompt, count):
    calls, seed, what = [], int(rng.integers(1000)), f"generate(model, {prompt}, {count})"

    class Counted:
        def step(self, token, place, cache=None):
            calls.append((int(token), place, cache))
            return np.array([31 * token + place]), [place]

    def sample(logits, temperature, u):
        return int(logits[0] + round(1000 * temperature) + u * 997) % 6

    monkeypatch.setattr(impl, "sample", sample)
    got = impl.generate(Counted(), list(prompt), count, 0.5, np.random.default_rng(seed))
    text = list(prompt)
    for u in np.random.default_rng(seed).random(count):
        text.append(sample([31 * text[-1] + len(text) - 1], 0.5, u))
    steps = [(token, place, [place - 1] if place else None) for place, token in enumerate(text[:-1])]
    hint = "the prompt first, letter by letter, then each new letter but the last; pass the cache on"
    same(calls, steps, f"{what}: the steps (token, place, cache)", hint)
    same([int(n) for n in got], text[len(prompt) :], f"{what}: the letters", "only the new ones")
