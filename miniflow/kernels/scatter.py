"""Scatter: each element of the source goes to the place in the result that an integer names.

The index picture is that of `gather`, read the other way. The source is (outer, k_count, inner), the result
(outer, n, inner); a thread owns one element of the *source*:

    threadIdx.x  ->  column, within a row        threadIdx.y  ->  row = o * k_count + k

Two elements of the source may go to one place. Adding them takes atomics: every sum is right, but the order of its
terms, and so the last bits of a float, may differ from run to run. Writing them needs a rule which one stays. Here it
is that of a loop on the CPU: the last. Without a rule the gradient could not know which value was kept. It takes two
launches, since only the end of a launch makes all blocks wait for each other:

    claim   each thread raises last[place] to its own position: an atomic maximum
    put     only the thread whose position stands in last[place] writes

`*_rows` kernels have one index for a row, `*_cells` kernels one for each element.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def claim_rows(index, last):
    """last[index[p]] = the largest p: thread p reads one index and makes one atomic update.

    Args:
        index: (count,), each in [-n, n): others are left out.
        last: (n,), int64, filled with -1.
    """
    p = cuda.grid(1)
    if p < index.shape[0]:
        place = index[p]
        if place < 0:
            place += last.shape[0]
        if place >= 0 and place < last.shape[0]:
            cuda.atomic.max(last, place, p)


@cuda.jit
def is_last_row(index, last, out):
    """out[p] = whether `claim_rows` found no later position with the index of p; two reads, one write.

    Args:
        index: (count,).
        last: (n,), from `claim_rows`.
        out: (count,).
    """
    p = cuda.grid(1)
    if p < index.shape[0]:
        place = index[p]
        if place < 0:
            place += last.shape[0]
        out[p] = place >= 0 and place < last.shape[0] and last[place] == p


@cuda.jit
def put_rows(source, index, last, out):
    """out[o, index[k], i] = source[o, k, i] for the last k at each place; three reads, at most one write.

    Args:
        source: (outer, k_count, inner).
        index: (k_count,), each in [-n, n).
        last: (n,), from `claim_rows`.
        out: (outer, n, inner).
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < source.shape[2] and row < source.shape[0] * source.shape[1]:
        o = row // source.shape[1]
        k = row % source.shape[1]
        place = index[k]
        if place < 0:
            place += out.shape[1]
        if place >= 0 and place < out.shape[1] and last[place] == k:
            out[o, place, column] = source[o, k, column]


@cuda.jit
def add_rows(source, index, out):
    """out[o, index[k], i] += source[o, k, i]; two reads and one atomic addition.

    Args:
        source: (outer, k_count, inner).
        index: (k_count,), each in [-n, n): others are left out.
        out: (outer, n, inner), of a dtype with atomics: 32 or 64 bits wide.
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < source.shape[2] and row < source.shape[0] * source.shape[1]:
        o = row // source.shape[1]
        k = row % source.shape[1]
        place = index[k]
        if place < 0:
            place += out.shape[1]
        if place >= 0 and place < out.shape[1]:
            cuda.atomic.add(out, (o, place, column), source[o, k, column])


@cuda.jit
def claim_cells(index, last):
    """last[o, index[o, k, i], i] = the largest k: one read and one atomic maximum.

    Args:
        index: (outer, k_count, inner), each in [0, n): others are left out.
        last: (outer, n, inner), int64, filled with -1.
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < index.shape[2] and row < index.shape[0] * index.shape[1]:
        o = row // index.shape[1]
        k = row % index.shape[1]
        place = index[o, k, column]
        if place >= 0 and place < last.shape[1]:
            cuda.atomic.max(last, (o, place, column), k)


@cuda.jit
def is_last_cell(index, last, out):
    """out[o, k, i] = whether `claim_cells` found no later k with the same place; two reads, one write.

    Args:
        index: (outer, k_count, inner).
        last: (outer, n, inner), from `claim_cells`.
        out: (outer, k_count, inner).
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < index.shape[2] and row < index.shape[0] * index.shape[1]:
        o = row // index.shape[1]
        k = row % index.shape[1]
        place = index[o, k, column]
        out[o, k, column] = place >= 0 and place < last.shape[1] and last[o, place, column] == k


@cuda.jit
def put_cells(source, index, last, out):
    """out[o, index[o, k, i], i] = source[o, k, i] for the last k at each place; three reads, at most one write.

    Args:
        source: (outer, k_count, inner).
        index: (outer, k_count, inner), each in [0, n).
        last: (outer, n, inner), from `claim_cells`.
        out: (outer, n, inner).
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < source.shape[2] and row < source.shape[0] * source.shape[1]:
        o = row // source.shape[1]
        k = row % source.shape[1]
        place = index[o, k, column]
        if place >= 0 and place < out.shape[1] and last[o, place, column] == k:
            out[o, place, column] = source[o, k, column]


@cuda.jit
def add_cells(source, index, out):
    """out[o, index[o, k, i], i] += source[o, k, i]; two reads and one atomic addition.

    Args:
        source: (outer, k_count, inner).
        index: (outer, k_count, inner), each in [0, n): others are left out.
        out: (outer, n, inner), of a dtype with atomics: 32 or 64 bits wide.
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < source.shape[2] and row < source.shape[0] * source.shape[1]:
        o = row // source.shape[1]
        k = row % source.shape[1]
        place = index[o, k, column]
        if place >= 0 and place < out.shape[1]:
            cuda.atomic.add(out, (o, place, column), source[o, k, column])
