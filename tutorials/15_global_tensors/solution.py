"""Global tensors on NumPy arrays. Fill in what raises Todo, then run: python -m tutorials check 15

A shard is what one rank holds: a NumPy array. `shards` is a list with one shard for each rank.
"""

import math

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum  # S(1).kind is "S", and S(1).dim is 1


class Network:
    """What connects the ranks, and counts what they send.

    Attributes:
        ranks: how many there are: 0, 1, ..., ranks - 1.
        messages: how many were sent.
        bytes: of all messages together.
    """

    def __init__(self, ranks):
        self.ranks, self.messages, self.bytes = ranks, 0, 0

    def send(self, sender, receiver, array):
        """Send an array; returns the copy that arrives at the receiver."""
        self.messages += 1
        self.bytes += array.nbytes
        return array.copy()

    def shift(self, arrays):
        """Let each rank r send arrays[r] to the next one, the last to rank 0: the list of what arrives at each rank."""
        return [self.send((rank - 1) % self.ranks, rank, arrays[rank - 1]) for rank in range(self.ranks)]


def parts(size, ranks):
    """The part of each rank of a dim, a list of pairs (start, stop): parts(5, 3) is [(0, 2), (2, 4), (4, 5)].

    The parts follow each other. If they cannot be equal, the first ranks have one element more.
    """
    # task 15.1: shards
    each, more = divmod(size, ranks)
    starts = [rank * each + min(rank, more) for rank in range(ranks + 1)]
    return list(zip(starts, starts[1:]))
    # end


def cut(array, dim, ranks):
    """The parts of an array along a dim, one for each rank: a list of copies."""
    before = (slice(None),) * dim
    return [array[(*before, slice(start, stop))].copy() for start, stop in parts(array.shape[dim], ranks)]


def spread(array, sbp, ranks):
    """The shards of an array, a list. A partial sum is the array on rank 0, and zeros on the others."""
    # task 15.1: shards
    if sbp == B:
        return [array.copy() for _ in range(ranks)]
    if sbp == P:
        return [array.copy()] + [np.zeros_like(array) for _ in range(ranks - 1)]
    return cut(array, sbp.dim, ranks)
    # end


def whole(shards, sbp):
    """The array that shards stand for; its dtype is that of the shards."""
    # task 15.1: shards
    if sbp == B:
        return shards[0]
    if sbp == P:
        return sum(shards)
    return np.concatenate(shards, axis=sbp.dim)
    # end


def all_gather(shards, network):
    """Every rank gets the shards of all ranks: result[r][k] is, on rank r, the shard of rank k.

    A ring: n - 1 shifts.
    """
    # task 15.2: a ring
    n = network.ranks
    rows = [[x] for x in shards]
    for _ in range(n - 1):
        for row, x in zip(rows, network.shift([row[-1] for row in rows])):
            row.append(x)
    return [[row[(rank - k) % n] for k in range(n)] for rank, row in enumerate(rows)]
    # end


def reduce_scatter(blocks, network):
    """Rank r gets the sum of blocks[0][r], blocks[1][r], ...: result[r] is one array.

    A ring: n - 1 shifts.

    Args:
        blocks: blocks[r][k] is what rank r has to add to block k. Not changed.
    """
    # task 15.2: a ring
    moving = [row[rank - 1] for rank, row in enumerate(blocks)]
    for step in range(2, network.ranks + 1):
        arrived = network.shift(moving)
        moving = [x + row[rank - step] for rank, (x, row) in enumerate(zip(arrived, blocks))]
    return moving
    # end


def all_reduce(shards, network):
    """Every rank gets the sum of the shards, which have one shape: a list of arrays of this shape."""
    # task 15.2: a ring
    sums = reduce_scatter([cut(x.ravel(), 0, network.ranks) for x in shards], network)
    return [np.concatenate(row).reshape(shards[0].shape) for row in all_gather(sums, network)]
    # end


def all_to_all(blocks, network):
    """Rank s sends blocks[s][r] to rank r: result[r][s] is this block. Nothing is sent from a rank to itself."""
    # task 15.3: boxing
    n = range(network.ranks)
    return [[blocks[s][r] if s == r else network.send(s, r, blocks[s][r]) for s in n] for r in n]
    # end


def box(shards, before, after, network):
    """The shards of the same array in another layout.

    Args:
        shards: of an array with the SBP `before`. Not changed.
        before, after: S(d), B or P.
        network: what every message goes through.
    """
    # task 15.3: boxing
    n = network.ranks
    if before == after:
        return shards
    if before == B:
        return [spread(x, after, n)[rank] for rank, x in enumerate(shards)]
    if before == P:
        if after == B:
            return all_reduce(shards, network)
        return reduce_scatter([cut(x, after.dim, n) for x in shards], network)
    if after == P:
        size = sum(x.shape[before.dim] for x in shards)
        padded = []
        for x, (start, stop) in zip(shards, parts(size, n)):
            widths = [(0, 0)] * x.ndim
            widths[before.dim] = (start, size - stop)
            padded.append(np.pad(x, widths))
        return padded
    if after == B:
        rows = all_gather(shards, network)
    else:
        rows = all_to_all([cut(x, after.dim, n) for x in shards], network)
    return [np.concatenate(row, axis=before.dim) for row in rows]
    # end


def cost(shape, ranks, before, after):
    """How many elements all ranks together send to box an array of this shape, an int; exact for uneven parts too."""
    # task 15.4: the price
    elements = math.prod(shape)
    if before == after or before == B or after == P:
        return 0
    if before == P and after == B:
        return 2 * (ranks - 1) * elements
    if before == P or after == B:
        return (ranks - 1) * elements
    rows, columns = parts(shape[before.dim], ranks), parts(shape[after.dim], ranks)
    staying = sum((b - a) * (d - c) for (a, b), (c, d) in zip(rows, columns))
    return elements - staying * elements // (shape[before.dim] * shape[after.dim])
    # end


def signatures(operands, result, partial=(), fixed=""):
    """What an operation can compute on every rank by itself: a list of pairs (SBP of the operands, SBP of the result).

    Args:
        operands: a word for each operand with a letter for each of its dims: ["mk", "kn"] for a matrix product.
        result: the word of the result: "mn".
        partial: tuples of positions of operands. If just these are partial sums, so is the result: [(0,), (1,)].
        fixed: letters that cannot be split.

    Returns:
        first a signature for each letter that is not fixed, in the order in which the letters stand in the operands;
        then one for each entry of `partial`; last the one where all is broadcast. The SBP of the operands is a tuple.
    """
    # task 15.5: signatures
    found = []
    for letter in dict.fromkeys("".join(operands)):
        if letter not in fixed:
            given = tuple(S(word.index(letter)) if letter in word else B for word in operands)
            found.append((given, S(result.index(letter)) if letter in result else P))
    for positions in partial:
        found.append((tuple(P if i in positions else B for i in range(len(operands))), P))
    return [*found, ((B,) * len(operands), B)]
    # end


def choose(shapes, given, result, candidates, ranks):
    """The signature that an operation uses: one that the operands fit as they are, or else the cheapest.

    The price of a signature is what boxing the operands sends, and what reducing its result will send if that is a
    partial sum. Of equal ones that whose result is not partial is used, then that which boxes fewer operands, then the
    first.

    Args:
        shapes: of the operands, whole.
        given: a tuple with the SBP that each operand has.
        result: the shape of the result, whole.
        candidates: as `signatures` returns them.
    """

    # task 15.5: signatures
    def price(candidate):
        boxed = [(shape, a, b) for shape, a, b in zip(shapes, given, candidate[0]) if a != b]
        sent = sum(cost(shape, ranks, a, b) for shape, a, b in boxed)
        owed = (ranks - 1) * math.prod(result) if candidate[1] == P else 0
        return boxed != [], sent + owed, candidate[1] == P, len(boxed)

    return min(candidates, key=price)
    # end


def two_layers(x, w1, b1, w2, b2, network):
    """relu(x @ w1 + b1) @ w2 + b2 on all ranks: a list of shards, broadcast.

    Args:
        x: shards of the inputs (batch, inputs), broadcast.
        w1, b1: shards of (inputs, hidden), S(1), and of (hidden,), S(0).
        w2, b2: shards of (hidden, outputs), S(0), and of (outputs,), broadcast.
    """
    # task 15.6: a network
    hidden = [np.maximum(x[rank] @ w1[rank] + b1[rank], 0) for rank in range(network.ranks)]
    sums = all_reduce([h @ w for h, w in zip(hidden, w2)], network)
    return [y + b for y, b in zip(sums, b2)]
    # end
