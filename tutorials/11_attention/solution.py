"""Attention, its kernel, and a character model. Fill in what raises Todo, then run: python -m tutorials check 11"""

import math
from pathlib import Path

import numpy as np

import miniflow as flow
import tutorials
from miniflow.hostcuda import host as cuda  # runs on every machine; for a GPU: from miniflow.hostcuda import cuda
from tutorials import Todo  # noqa: F401

SONNETS = Path(tutorials.__file__).parent / "11_attention" / "sonnets.txt"  # five, by William Shakespeare, 1609
TILE = 32  # threads of a block, queries of a block, and keys in shared memory
WIDTH = 16  # of the queries, keys and values of the kernel


def scores(q, k, shift=None):
    """The products of queries and keys, divided by sqrt(E), and -inf where a query may not see a key.

    Args:
        q: (..., L, E), floating.
        k: (..., S, E), likewise.
        shift: query i may see the keys j <= i + shift; None: all keys.

    Returns:
        an array (..., L, S) of the dtype of q.
    """
    # task 11.1: scores, and attention
    x = q @ k.mT / math.sqrt(q.shape[-1])
    return x if shift is None else np.where(np.tri(*x.shape[-2:], shift), x, -np.inf).astype(x.dtype)
    # end


def attention(q, k, v, causal=False):
    """Attention, and the logarithm of the sum that the weights of each query were divided by.

    Args:
        q, k, v: (..., L, E), (..., S, E) and (..., S, V), with S >= L.
        causal: the queries belong to the last L of the S keys, and each sees only keys up to its own.

    Returns:
        o: (..., L, V), of the dtype of q.
        lse: (..., L), the logarithm of the sum of exp(score) over the keys: logsumexp.
    """
    # task 11.1: scores, and attention
    x = scores(q, k, k.shape[-2] - q.shape[-2] if causal else None)
    largest = x.max(-1, keepdims=True)
    lse = largest + np.log(np.exp(x - largest).sum(-1, keepdims=True))
    return np.exp(x - lse) @ v, lse[..., 0]
    # end


def attention_backward(q, k, v, o, lse, do, shift=None):
    """The gradients of queries, keys and values.

    Args:
        q, k, v: (..., L, E), (..., S, E) and (..., S, V). The keys may be only some of those that the queries saw.
        o, lse: what `attention` returned, for all keys.
        do: (..., L, V), the gradient of o.
        shift: as in `scores`.

    Returns:
        dq, dk, dv: as q, k and v; dq is what these keys add to the gradient of q.
    """
    # task 11.2: the gradients of attention
    weights = np.exp(scores(q, k, shift) - lse[..., None])
    d = (do * o).sum(-1, keepdims=True)
    ds = weights * (do @ v.mT - d) / math.sqrt(q.shape[-1])
    return ds @ k, ds.mT @ q, weights.mT @ do
    # end


def update(largest, total, summed, x, v):
    """Attention to some keys, brought up to date with more keys.

    Args:
        largest: (L,), the largest score of each query so far; -inf if it has seen no key.
        total: (L,), the sum of exp(score - largest) so far.
        summed: (L, V), the sum of exp(score - largest) * value so far.
        x: (L, B), the scores of B more keys; -inf where a query does not see a key. A row may be -inf as a whole.
        v: (B, V), the values of these keys.

    Returns:
        largest, total, summed: for all keys so far and the new ones; -inf, 0 and zeros for a query that has seen none.
    """
    # task 11.3: softmax, some keys at a time
    new = np.maximum(largest, x.max(1))
    finite = np.maximum(new, np.finfo(x.dtype).min)
    old, weights = np.exp(largest - finite), np.exp(x - finite[:, None])
    return new, total * old + weights.sum(1), summed * old[:, None] + weights @ v
    # end


def blockwise(q, k, v, size, causal=False):
    """As `attention`, for matrices q (L, E), k (S, E), v (S, V), with the scores of only `size` keys at a time."""
    # task 11.3: softmax, some keys at a time
    largest, total = np.full(len(q), -np.inf, q.dtype), np.zeros(len(q), q.dtype)
    summed = np.zeros((len(q), v.shape[1]), q.dtype)
    for start in range(0, len(k), size):
        x = scores(q, k[start : start + size], len(k) - len(q) - start if causal else None)
        largest, total, summed = update(largest, total, summed, x, v[start : start + size])
    return summed / total[:, None], largest + np.log(total)
    # end


@cuda.jit(device=True)
def copy(x, start, end, tile):
    """Copy the rows from start on, up to but not with end, of a matrix (N, WIDTH) to a tile: at most TILE rows."""
    t = cuda.threadIdx.x
    for n in range(t, TILE * WIDTH, TILE):  # neighbours read neighbours
        if start + n // WIDTH < end:
            tile[n // WIDTH, n % WIDTH] = x[start + n // WIDTH, n % WIDTH]


@cuda.jit
def flash(q, k, v, scale, causal, o, lse):
    """Attention in blocks of TILE threads; block (x, y) makes the queries from TILE * x on of head y, a thread each.

    Args:
        q, k, v: float32 of shape (heads, N, WIDTH).
        scale: float32, which the scores are multiplied by.
        causal: bool; query i sees the keys 0 .. i.
        o: float32 of shape (heads, N, WIDTH), written.
        lse: float32 of shape (heads, N), written.
    """
    k_tile = cuda.shared.array((TILE, WIDTH), np.float32)
    v_tile = cuda.shared.array((TILE, WIDTH), np.float32)
    query = cuda.local.array(WIDTH, np.float32)  # of this thread alone
    summed = cuda.local.array(WIDTH, np.float32)
    head, first, length = cuda.blockIdx.y, cuda.blockIdx.x * TILE, q.shape[1]
    row = first + cuda.threadIdx.x  # the query of this thread; there is none if row >= length
    for e in range(WIDTH):
        query[e] = q[head, row, e] * scale if row < length else np.float32(0)
        summed[e] = 0
    total, largest = np.float32(0), np.float32(-math.inf)
    # task 11.4: the tiled kernel
    end = min(length, first + TILE) if causal else length
    own = min(row + 1, end) if causal else end
    for start in range(0, end, TILE):
        copy(k[head], start, end, k_tile)
        copy(v[head], start, end, v_tile)
        cuda.syncthreads()
        for j in range(min(TILE, own - start)):
            score = np.float32(0)
            for e in range(WIDTH):
                score += query[e] * k_tile[j, e]
            new = max(largest, score)
            old, weight = math.exp(largest - new), math.exp(score - new)
            largest, total = new, total * old + weight
            for e in range(WIDTH):
                summed[e] = summed[e] * old + weight * v_tile[j, e]
        cuda.syncthreads()
    if row < length:
        for e in range(WIDTH):
            o[head, row, e] = summed[e] / total
        lse[head, row] = largest + math.log(total)
    # end


def split(x, heads):
    """(batch, length, width) -> (batch, heads, length, width / heads); head 0 takes the first width / heads numbers."""
    # task 11.5: a transformer block
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
    # end


def join(x):
    """(batch, heads, length, size) -> (batch, length, heads * size): what `split` did, undone."""
    # task 11.5: a transformer block
    return x.transpose(1, 2).flatten(2)
    # end


class Block(flow.nn.Module):
    """A transformer block: attention to what came before, then a network of two layers for each position.

    Attributes:
        heads: the number of heads, which divides `width`.
        norm, norm2: LayerNorm(width), before attention and before the network.
        qkv: Linear(width, 3 * width): the queries, then the keys, then the values.
        out: Linear(width, width), after attention.
        network: Linear(width, 4 * width), GELU, Linear(4 * width, width).
    """

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = flow.nn.LayerNorm(width), flow.nn.LayerNorm(width)
        self.qkv, self.out = flow.nn.Linear(width, 3 * width), flow.nn.Linear(width, width)
        wide = flow.nn.Linear(width, 4 * width)
        self.network = flow.nn.Sequential(wide, flow.nn.GELU(), flow.nn.Linear(4 * width, width))

    def project(self, x):
        """The queries, keys and values of x (batch, length, width), split into heads."""
        return [split(part, self.heads) for part in self.qkv(self.norm(x)).chunk(3, dim=-1)]

    def rest(self, x, heads):
        """x (batch, length, width) and the result of attention (batch, heads, length, width / heads) -> the block's."""
        # task 11.5: a transformer block
        x = x + self.out(join(heads))
        return x + self.network(self.norm2(x))
        # end

    def forward(self, x):
        """x (batch, length, width) -> a tensor of the same shape; causal."""
        # task 11.5: a transformer block
        return self.rest(x, flow.nn.functional.scaled_dot_product_attention(*self.project(x), is_causal=True))
        # end

    def step(self, x, cache=None):
        """The result for the next position alone.

        Args:
            x: (batch, 1, width).
            cache: the keys and the values of the positions before, each (batch, heads, seen, width / heads); None at
                the first position.

        Returns:
            y: (batch, 1, width), what `forward` gives for this position.
            cache: the keys and the values, with those of this position at the end.
        """
        # task 11.6: generation with a cache
        q, k, v = self.project(x)
        if cache is not None:
            k, v = (flow.cat(pair, dim=2) for pair in zip(cache, (k, v)))
        return self.rest(x, flow.nn.functional.scaled_dot_product_attention(q, k, v)), (k, v)
        # end


class Model(flow.nn.Module):
    """A character model of one block: letters are numbers from 0 on; logits at a position are for the letter after."""

    def __init__(self, letters, context, width=32, heads=2):
        super().__init__()
        self.letter, self.place = flow.nn.Embedding(letters, width), flow.nn.Embedding(context, width)
        self.block = Block(width, heads)
        self.norm, self.head = flow.nn.LayerNorm(width), flow.nn.Linear(width, letters)

    def forward(self, tokens):
        """tokens (batch, length), int64 -> logits (batch, length, letters)."""
        x = self.letter(tokens) + self.place(flow.arange(tokens.shape[1]))
        return self.head(self.norm(self.block(x)))

    @flow.no_grad()
    def step(self, token, place, cache=None):
        """The logits, a NumPy array (letters,), after one letter at a place, and the cache for the next step."""
        x = self.letter(flow.tensor([[token]])) + self.place(flow.tensor([[place]]))
        x, cache = self.block.step(x, cache)
        return self.head(self.norm(x)).numpy()[0, 0], cache


def loss(model, windows):
    """The mean cross-entropy of all predictions of a model: a tensor of shape ().

    Args:
        model: tokens (batch, length) -> logits (batch, length, letters).
        windows: int64 tensor (batch, length + 1), pieces of text.
    """
    # task 11.5: a transformer block
    logits = model(windows[:, :-1])
    return flow.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    # end


def train(model, text, steps, length, batch=8, rate=1e-2):
    """Train with Adam on random pieces of a text, an int64 array; returns the loss of each step."""
    rng, losses = np.random.default_rng(0), []
    optimizer = flow.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        starts = rng.integers(len(text) - length, size=(batch, 1))
        losses.append(loss(model, flow.tensor(text[starts + np.arange(length + 1)])))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    return [value.item() for value in losses]


def sample(logits, temperature, u):
    """Draw a letter with the probabilities softmax(logits / temperature).

    Args:
        logits: a NumPy array (letters,), floating.
        temperature: a float; 0 means the letter with the largest logit, and the first of these if there are several.
        u: a random number, 0 <= u < 1.

    Returns:
        an int: the first letter for which the probabilities up to and with its own add up to more than u.
    """
    # task 11.6: generation with a cache
    if temperature == 0:
        return int(logits.argmax())
    weights = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    sums = weights.cumsum()
    return int(np.searchsorted(sums, u * sums[-1], side="right"))
    # end


def generate(model, prompt, count, temperature, rng):
    """The letters that a model writes after a prompt.

    Args:
        model: `model.step(token, place, cache)` gives logits and a cache, as in `Model`; `cache` is None at place 0.
        prompt: a list of ints, at least one.
        count: how many letters to write, at least 1.
        temperature: for `sample`.
        rng: a NumPy generator; `rng.random()` is called once for each letter written.

    Returns:
        a list of `count` ints. Each letter of the prompt, and each new one but the last, takes one step.
    """
    # task 11.6: generation with a cache
    cache, text = None, list(prompt)
    for place in range(len(prompt) + count - 1):
        logits, cache = model.step(text[place], place, cache)
        if place + 1 == len(text):
            text.append(sample(logits, temperature, rng.random()))
    return text[len(prompt) :]
    # end
