"""Shuffles, votes and other meetings of a warp."""

import numpy as np
import pytest
from numba import float32, int32

from miniflow.hostcuda import cuda

draw = np.random.default_rng(1)
ALL = 0xFFFFFFFF


def launch(kernel, grid, block, *arguments):
    """Run a kernel on copies of NumPy arrays, and return what it made of the last one."""
    given = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid, block](*given)
    return given[-1].copy_to_host()


@cuda.jit(boundscheck=False)
def shuffles(x, y):
    t = cuda.threadIdx.x
    v = x[t]
    y[0, t] = cuda.shfl_sync(ALL, v, 5)
    y[1, t] = cuda.shfl_up_sync(ALL, v, 3)
    y[2, t] = cuda.shfl_down_sync(ALL, v, 7)
    y[3, t] = cuda.shfl_xor_sync(ALL, v, 9)
    y[4, t] = cuda.shfl_sync(ALL, v, (t * 3) % 32)
    y[5, t] = v + cuda.shfl_down_sync(ALL, v, 1) * cuda.shfl_up_sync(ALL, v, 1)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int64])
def test_shuffles(kind):
    x = draw.integers(-50, 50, 96).astype(kind)
    warps, lane = x.reshape(3, 32), np.arange(32)
    up, down = np.where(lane >= 1, lane - 1, lane), np.where(lane <= 30, lane + 1, lane)
    expected = [
        np.repeat(warps[:, 5:6], 32, 1),
        warps[:, np.where(lane >= 3, lane - 3, lane)],
        warps[:, np.where(lane <= 24, lane + 7, lane)],
        warps[:, lane ^ 9],
        warps[:, lane * 3 % 32],
        warps + warps[:, down] * warps[:, up],
    ]
    got = launch(shuffles, 1, 96, x, np.zeros((6, 96), kind))
    np.testing.assert_array_equal(got, [e.ravel() for e in expected])


@cuda.jit(boundscheck=False)
def votes(x, y):
    t = cuda.threadIdx.x
    p = x[t] > 0
    y[0, t] = cuda.all_sync(ALL, p)
    y[1, t] = cuda.any_sync(ALL, p)
    y[2, t] = cuda.eq_sync(ALL, p)
    y[3, t] = cuda.popc(cuda.ballot_sync(ALL, p))
    y[4, t] = cuda.popc(cuda.activemask())
    y[5, t] = cuda.popc(cuda.match_any_sync(ALL, x[t]))
    mask, same = cuda.match_all_sync(ALL, x[t])
    y[6, t] = cuda.popc(mask) + 100 * same


def test_votes_of_full_and_partial_warps():
    x = np.concatenate([np.ones(32), np.zeros(32), draw.integers(0, 2, 32), np.full(7, 2)]).astype(np.int32)
    got = launch(votes, 1, x.size, x, np.zeros((7, x.size), np.int64))
    rows = []
    for start in range(0, x.size, 32):
        w = x[start : start + 32]
        p = w > 0
        match = [(w == v).sum() for v in w]
        same = len(set(w)) == 1
        rows.append([[p.all()] * w.size, [p.any()] * w.size, [len(set(p)) == 1] * w.size, [p.sum()] * w.size,
                     [w.size] * w.size, match, [100 + w.size if same else 0] * w.size])  # fmt: skip
    np.testing.assert_array_equal(got, np.concatenate([np.array(r, np.int64) for r in rows], 1))


@cuda.jit(device=True)
def warp_sum(v):
    offset = 16
    while offset > 0:
        v += cuda.shfl_down_sync(ALL, v, offset)
        offset //= 2
    return v


@cuda.jit
def block_sum(x, y):
    """Every warp by shuffles, then the first warp over the warps' sums."""
    partial = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    v = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        v += x[i]
    v = warp_sum(v)
    if lane == 0:
        partial[warp] = v
    cuda.syncthreads()
    if warp == 0:
        v = partial[lane] if lane < cuda.blockDim.x // 32 else float32(0)
        v = warp_sum(v)
        if lane == 0:
            y[cuda.blockIdx.x] = v


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 255, 1000, 5000])
def test_block_sum_by_shuffles_in_a_device_function(size):
    x = draw.integers(0, 9, size).astype(np.float32)
    got = launch(block_sum, 3, 256, x, np.zeros(3, np.float32))
    padded = np.zeros(-(-size // 768) * 768, np.float32)
    padded[:size] = x
    np.testing.assert_array_equal(got, padded.reshape(-1, 3, 256).sum((0, 2)))


@cuda.jit
def half_warps(x, y):
    """Only some lanes meet; a loop that lanes leave one by one."""
    t = cuda.threadIdx.x
    v = x[t]
    if t % 32 < 16:
        v += cuda.shfl_xor_sync(0xFFFF, v, 1)
    else:
        v = cuda.shfl_xor_sync(0xFFFF0000, v, 2) * 10
    rounds = 0
    while cuda.any_sync(ALL, rounds < t % 7):
        if rounds < t % 7:
            rounds += 1
    k = 0
    seen = 0
    while k < t % 4:
        seen += cuda.popc(cuda.ballot_sync(cuda.activemask(), True))
        k += 1
    y[t] = v * 10000 + rounds * 100 + seen


@pytest.mark.slow
def test_divergent_warps():
    x = draw.integers(0, 9, 64)
    t = np.arange(64)
    v = np.where(t % 32 < 16, x + x[t ^ 1], x[t ^ 2] * 10)
    rounds = np.minimum(t % 7, 6)
    lanes = [[(np.arange(32) % 4 > k).sum() for k in range(n)] for n in (0, 1, 2, 3)]
    seen = np.array([sum(lanes[n]) for n in t % 4])
    got = launch(half_warps, 1, 64, x, np.zeros(64, np.int64))
    np.testing.assert_array_equal(got, v * 10000 + rounds * 100 + seen)


@cuda.jit
def leaving_loop(x, y):
    t = cuda.threadIdx.x
    total = 0
    for k in range(10):
        if x[t] == k:
            break
        if k % 3 == 1:
            continue
        total += cuda.popc(cuda.ballot_sync(cuda.activemask(), x[t] > 5))
    y[t] = total


@pytest.mark.slow
def test_break_and_continue_of_single_lanes():
    x = draw.integers(0, 12, 32)

    def one(v):
        total = 0
        for k in range(10):
            if v == k:
                break
            if k % 3 == 1:
                continue
            alive = x[(x > k) | (x < 0)]
            total += (alive > 5).sum()
        return total

    np.testing.assert_array_equal(launch(leaving_loop, 1, 32, x, np.zeros(32, np.int64)), [one(v) for v in x])


@cuda.jit
def plane(x, y):
    """A block of two dimensions: warps run through it row by row."""
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    v = x[ty, tx]
    y[ty, tx] = cuda.shfl_down_sync(ALL, v, 1) * 100 + cuda.laneid


def test_warps_of_a_two_dimensional_block():
    x = draw.integers(0, 99, (8, 12)).astype(np.int32)
    flat = x.ravel()
    lane = np.arange(96) % 32
    expected = np.where(lane < 31, np.roll(flat, -1), flat) * 100 + lane
    np.testing.assert_array_equal(launch(plane, 1, (12, 8), x, np.zeros_like(x)).ravel(), expected)


@cuda.jit
def layer_norm(x, weight, bias, y):
    """One warp a row."""
    lane = cuda.laneid
    row = cuda.blockIdx.x * (cuda.blockDim.x // cuda.warpsize) + cuda.threadIdx.x // cuda.warpsize
    if row >= x.shape[0]:
        return
    n = x.shape[1]
    total = float32(0)
    for i in range(lane, n, 32):
        total += x[row, i]
    for offset in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(ALL, total, offset)
    mean = total / n
    square = float32(0)
    for i in range(lane, n, 32):
        square += (x[row, i] - mean) ** 2
    for offset in (16, 8, 4, 2, 1):
        square += cuda.shfl_xor_sync(ALL, square, offset)
    scale = cuda.rsqrt(square / n + 1e-5)
    for i in range(lane, n, 32):
        y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1), (7, 31), (8, 32), (9, 33), (3, 300)])
def test_a_row_for_each_warp(shape):
    x = draw.normal(size=shape).astype(np.float32)
    weight, bias = draw.normal(size=(2, shape[1])).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * weight + bias
    got = launch(layer_norm, -(-shape[0] // 4), 128, x, weight, bias, np.full_like(x, np.nan))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@cuda.jit
def ordered_by_syncwarp(x, y):
    room = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    room[t] = x[t]
    cuda.syncwarp()
    y[t] = room[t ^ 31]


def test_syncwarp():
    x = draw.integers(0, 99, 64).astype(np.int32)
    np.testing.assert_array_equal(launch(ordered_by_syncwarp, 1, 64, x, np.zeros_like(x)), x[np.arange(64) ^ 31])


@cuda.jit
def before_and_after(x, y):
    """A uniform variable that a warp's part changes must be as before for the next warp."""
    t = cuda.threadIdx.x
    n = 3
    cuda.syncthreads()
    total = 0
    while n > 0:
        total += cuda.shfl_sync(ALL, x[t], n)
        n -= 1
    cuda.syncthreads()
    y[t] = total + n


def test_uniform_variables_are_restored_for_each_warp():
    x = draw.integers(0, 99, 96)
    expected = np.repeat(x.reshape(3, 32)[:, 1:4].sum(1), 32)
    np.testing.assert_array_equal(launch(before_and_after, 1, 96, x, np.zeros_like(x)), expected)
