"""What the lanes of a warp find out together, when it is kept, combined, or asked after some have left."""

import numpy as np
from expectations import Table, blank
from numba import int32, int64

from miniflow.hostcuda import cuda

ALL = 0xFFFFFFFF
CASES = Table()
T = np.arange(96)
SIGNS = np.repeat([1, 0, 1], 32).astype(np.int32)  # warps 0 and 2 have what warp 1 has not
MIXED = (np.arange(96) * 7 % 5 > 2).astype(np.int32)
BALLOTS = [sum(int(MIXED[w * 32 + k]) << k for k in range(32)) for w in range(3)]
SIGNED_BALLOTS = np.repeat(np.array(BALLOTS, np.uint32).view(np.int32), 32)


@CASES.launch(1, 96, SIGNS, blank(96, np.int64), gives=64 + SIGNS)
def any_plus_count_in_one_expression(x, out):
    t = cuda.threadIdx.x
    p = x[t]
    out[t] = cuda.any_sync(ALL, p) + cuda.syncthreads_count(p)


@CASES.launch(1, 96, SIGNS, blank(96, np.int64), gives=64 * 10 + SIGNS)
def count_then_any_in_one_expression(x, out):
    t = cuda.threadIdx.x
    p = x[t]
    out[t] = cuda.syncthreads_count(p) * 10 + cuda.any_sync(ALL, p)


@CASES.launch(1, 96, SIGNS, blank(96, np.int64), gives=3 * SIGNS + 4)
def three_votes_in_one_expression(x, out):
    t = cuda.threadIdx.x
    p = x[t]
    out[t] = cuda.any_sync(ALL, p) + 2 * cuda.all_sync(ALL, p) + 4 * cuda.syncthreads_or(p)


@CASES.launch(1, 96, T, blank(96, np.int64), gives=T // 32 * 32 + 5 + 1000 * 96 + 2 * (T ^ 1))
def shuffles_around_a_count(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    out[t] = cuda.shfl_sync(ALL, v, 5) + 1000 * cuda.syncthreads_count(1) + 2 * cuda.shfl_xor_sync(ALL, v, 1)


@CASES.launch(1, 96, T, blank(96, np.int64), gives=T // 32 * 32)
def a_shuffle_of_a_shuffle(x, out):
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_sync(ALL, cuda.shfl_xor_sync(ALL, x[t], 3), 3)


# Votes kept across wider barriers.


@CASES.launch(1, 96, SIGNS, blank(96, np.int64), gives=SIGNS)
def any_kept_across_a_barrier(x, out):
    t = cuda.threadIdx.x
    a = cuda.any_sync(ALL, x[t] > 0)
    cuda.syncthreads()
    out[t] = a


@CASES.launch(1, 96, SIGNS, blank((2, 96), np.int64), gives=[SIGNS, np.ones(96)])
def all_and_eq_kept_across_a_barrier(x, out):
    t = cuda.threadIdx.x
    a = cuda.all_sync(ALL, x[t] > 0)
    e = cuda.eq_sync(ALL, x[t] > 0)
    cuda.syncthreads()
    out[0, t] = a
    out[1, t] = e


@CASES.launch(1, 96, MIXED, blank(96, np.int32), gives=SIGNED_BALLOTS)
def ballot_kept_across_a_barrier(x, out):
    t = cuda.threadIdx.x
    b = cuda.ballot_sync(ALL, x[t] > 0)
    cuda.syncthreads()
    out[t] = b


@CASES.launch(1, 72, blank(72, np.int64), gives=np.where(np.arange(72) < 64, 32, 8))
def activemask_kept_across_a_barrier(out):
    t = cuda.threadIdx.x
    m = cuda.popc(cuda.activemask())
    cuda.syncthreads()
    out[t] = m


@CASES.launch(1, 96, (T // 40).astype(np.int32), blank(96, np.int64), gives=np.array(
    [np.sum(T[t // 32 * 32 : t // 32 * 32 + 32] // 40 == t // 40) for t in T]
))  # fmt: skip
def match_any_kept_across_a_barrier(x, out):
    t = cuda.threadIdx.x
    m = cuda.match_any_sync(ALL, x[t])
    cuda.syncthreads()
    out[t] = cuda.popc(m)


@CASES.launch(1, 96, T, blank(96, np.int64), gives=T // 32 * 32 + 7)
def shuffle_kept_across_a_barrier(x, out):
    t = cuda.threadIdx.x
    v = cuda.shfl_sync(ALL, x[t], 7)
    cuda.syncthreads()
    out[t] = v


@CASES.launch(1, 96, SIGNS, blank(96, np.int64), gives=3 * SIGNS)
def votes_gathered_in_a_loop(x, out):
    t = cuda.threadIdx.x
    total = 0
    for _ in range(3):
        a = cuda.any_sync(ALL, x[t] > 0)
        cuda.syncthreads()
        total += a
    out[t] = total


@CASES.launch(2, 64, np.arange(128) % 64, blank(128, np.int64), gives=np.full(128, 10))
def block_count_kept_across_a_warp_vote(x, out):
    i = cuda.grid(1)
    c = cuda.syncthreads_count(int32(x[i] < 10))
    a = cuda.any_sync(ALL, x[i] < 10)
    cuda.syncwarp()
    out[i] = c if a or c == 10 else -1


@CASES.launch(2, 32, np.repeat([1, 0], 32), blank(64, np.int64), gives=np.repeat([32, 0], 32))
def block_count_kept_across_a_grid_barrier(x, out):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    c = cuda.syncthreads_count(x[i])
    g.sync()
    out[i] = c


@CASES.launch(2, 64, np.repeat([1, 0, 0, 1], 32), blank(128, np.int64), gives=np.repeat([1, 0, 0, 1], 32))
def warp_vote_kept_across_a_grid_barrier(x, out):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    a = cuda.any_sync(ALL, x[i])
    g.sync()
    out[i] = a


KEPT = np.flatnonzero(MIXED)


@CASES.launch(1, 96, MIXED, blank(96, np.int64), gives=np.concatenate([KEPT, np.full(96 - KEPT.size, 77)]))
def stream_compaction(x, out):
    counts = cuda.shared.array(3, int64)
    t = cuda.threadIdx.x
    lane = t % 32
    warp = t // 32
    mask = cuda.ballot_sync(ALL, x[t] > 0)
    before = cuda.popc(mask & ((1 << lane) - 1))
    if lane == 0:
        counts[warp] = cuda.popc(mask)
    cuda.syncthreads()
    for w in range(warp):
        before += counts[w]
    if mask >> lane & 1:
        out[before] = t


# Votes after lanes returned.


@CASES.launch(1, 32, blank(32, np.int64), gives=np.where(np.arange(32) < 20, 2**20 - 1, 77))
def ballot_after_return(out):
    t = cuda.threadIdx.x
    if t >= 20:
        return
    out[t] = cuda.ballot_sync(ALL, True)


@CASES.launch(1, 64, blank((2, 64), np.int64), gives=[np.ones(64), np.where(np.arange(64) % 2, 77, 0)])
def any_forgets_the_lanes_that_returned(out):
    t = cuda.threadIdx.x
    odd = t % 2 == 1
    out[0, t] = cuda.any_sync(ALL, odd)
    if odd:
        return
    out[1, t] = cuda.any_sync(ALL, odd)


@CASES.launch(1, 64, blank((3, 64), np.int64), gives=np.where(np.arange(64) % 32 < 9, [[1], [1], [9]], 77))
def all_eq_and_popc_after_return(out):
    t = cuda.threadIdx.x
    if t % 32 >= 9:
        return
    out[0, t] = cuda.all_sync(ALL, t % 32 < 9)
    out[1, t] = cuda.eq_sync(ALL, t % 32 < 9)
    out[2, t] = cuda.popc(cuda.activemask())


@CASES.launch(1, 64, 45, blank(64, np.int64), gives=np.where(np.arange(64) < 45, np.arange(64) // 32 * 32 + 3, 77))
def shuffle_from_a_lane_that_stayed(n, out):
    t = cuda.threadIdx.x
    if t >= n:
        return
    out[t] = cuda.shfl_sync(ALL, t, 3)


@CASES.launch(1, 40, blank(40, np.int64), gives=[max(t - 2, t // 32 * 32 + (t % 32 if t % 32 < 2 else 0)) if t % 32 > 1
                                                else t for t in range(40)])  # fmt: skip
def shuffle_up_in_a_partial_warp(out):
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_up_sync(ALL, t, 2)


@CASES.launch(1, 64, blank((4, 64), np.int64), gives=[
    np.where(np.arange(64) % 32 >= 30 - 10 * k, 77, 30 - 10 * k) for k in range(3)
] + [np.full(64, 77)])  # fmt: skip
def ballots_while_lanes_leave_a_loop(out):
    t = cuda.threadIdx.x
    lane = t % 32
    for k in range(4):
        if lane >= 30 - 10 * k:
            return
        out[k, t] = cuda.popc(cuda.ballot_sync(ALL, True))


# Warp loops that whole warps leave at different steps.


@CASES.launch(1, 96, np.array([3, 1, 2]), blank(96, np.int64), gives=np.repeat([3, 1, 2], 32) * 32)
def warps_leave_at_different_steps(n, out):
    t = cuda.threadIdx.x
    w = t // 32
    total = 0
    for k in range(10):
        if k == n[w]:
            break
        total += cuda.popc(cuda.ballot_sync(ALL, True))
    out[t] = total


@CASES.launch(1, 96, T, blank(96, np.int64), gives=np.repeat([496, 1520, 2544], 32))
def butterfly_sum(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    k = 16
    while k > 0:
        v += cuda.shfl_xor_sync(ALL, v, k)
        k //= 2
    out[t] = v


@CASES.launch(1, 32, np.arange(32.0, dtype=np.float32), blank(32, np.float32), gives=np.arange(32) * 2 + 1)
def shuffle_of_floats_in_a_ternary(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    w = cuda.shfl_down_sync(ALL, v, 1)
    out[t] = v + w if t < 31 else np.float32(63.0)


@CASES.launch(1, 64, np.zeros(64, np.int64), gives=np.where(np.arange(64) % 32 == 4, 32, 0))
def shuffle_as_index_of_an_update(a):
    t = cuda.threadIdx.x
    cuda.atomic.add(a, cuda.shfl_sync(ALL, t, 4), 1)


@CASES.launch(1, 32, np.arange(32), gives=np.arange(32) + 1)
def shuffle_in_the_subscript_of_an_augmented_assignment(a):
    t = cuda.threadIdx.x
    a[cuda.shfl_xor_sync(ALL, t, 1)] += 1


test_compiled, test_checked, test_reference = CASES.tests(default=3)
