"""Atomic operations, on global and shared memory, from many blocks at once."""

import math

import numpy as np
import pytest
from numba import int32, uint32

from miniflow.hostcuda import cuda
from miniflow.hostcuda.errors import KernelTimeoutError, UnsupportedKernelError

draw = np.random.default_rng(3)
KINDS = [np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64]


def launch(kernel, grid, block, *arguments):
    """Run a kernel on copies of NumPy arrays, and return what it made of the last one."""
    given = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid, block](*given)
    return given[-1].copy_to_host()


@cuda.jit
def add_and_sub(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(y, (0, i % 3), x[i])
        cuda.atomic.sub(y, (1, i % 3), x[i])


@pytest.mark.parametrize("kind", KINDS)
def test_add_and_sub_lose_nothing(kind):
    x = draw.integers(0, 3, 50_000).astype(kind)
    got = launch(add_and_sub, 200, 256, x, np.zeros((2, 3), kind))
    sums = np.array([x[k::3].sum() for k in range(3)])
    np.testing.assert_array_equal(got[0], sums.astype(kind))
    np.testing.assert_array_equal(got[1], (0 - sums.astype(np.int64)).astype(kind))


@cuda.jit
def extremes(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(y, 0, x[i])
        cuda.atomic.min(y, 1, x[i])


@pytest.mark.parametrize("kind", KINDS)
def test_max_and_min(kind):
    x = draw.integers(0, 10_000, 20_000).astype(kind)
    if np.dtype(kind).kind != "u":
        x -= 5_000
    got = launch(extremes, 80, 256, x, np.full(2, x[0], kind))
    np.testing.assert_array_equal(got, [x.max(), x.min()])


@cuda.jit
def nan_extremes(x, y):
    i = cuda.grid(1)
    cuda.atomic.nanmax(y, 0, x[i])
    cuda.atomic.nanmin(y, 1, x[i])
    cuda.atomic.max(y, 2, x[i])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_nan_handling(kind):
    x = draw.normal(size=64).astype(kind)
    x[10] = np.nan
    got = launch(nan_extremes, 1, 64, x, np.array([np.nan, np.nan, -9], kind))
    np.testing.assert_array_equal(got[:2], [np.nanmax(x), np.nanmin(x)])


@cuda.jit
def bitwise(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.and_(y, 0, ~x[i])
        cuda.atomic.or_(y, 1, x[i])
        cuda.atomic.xor(y, 2, x[i])


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64])
def test_bitwise(kind):
    x = (1 << draw.integers(0, 30, 1001)).astype(kind)
    got = launch(bitwise, 4, 256, x, np.array([-1, 0, 0]).astype(kind))
    expected = [np.bitwise_and.reduce(~x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    np.testing.assert_array_equal(got, np.array(expected, kind))


@cuda.jit
def counters(limit, old, y):
    i = cuda.grid(1)
    old[i] = cuda.atomic.inc(y, 0, limit)
    cuda.atomic.dec(y, 1, limit)


def test_inc_and_dec_wrap_around():
    old = cuda.to_device(np.zeros(10, np.uint32))
    y = cuda.to_device(np.array([0, 2], np.uint32))
    counters[1, 10](uint32(3), old, y)
    np.testing.assert_array_equal(np.sort(old.copy_to_host()), np.sort([k % 4 for k in range(10)]))
    np.testing.assert_array_equal(y.copy_to_host(), [10 % 4, (2 - 10) % 4])


@cuda.jit
def exchanges(x, y):
    """Every thread leaves its value and takes away what was there: nothing is lost."""
    i = cuda.grid(1)
    x[i] = cuda.atomic.exch(y, 0, x[i])


def test_exchange():
    x, y = np.arange(1, 1001, dtype=np.int32), np.zeros(1, np.int32)
    exchanges[8, 125](x, y)
    np.testing.assert_array_equal(np.sort([*x, *y]), np.arange(1001))


@cuda.jit
def multiply(x, y):
    """A product by compare-and-swap: what no hardware has an instruction for."""
    i = cuda.grid(1)
    old = y[0]
    assumed = old - 1
    while assumed != old:
        assumed = old
        old = cuda.atomic.cas(y, 0, assumed, assumed * x[i] % 1000003)


def test_compare_and_swap_loop():
    x = draw.integers(1, 1000, 512)
    product = 1
    for v in x:
        product = product * int(v) % 1000003
    np.testing.assert_array_equal(launch(multiply, 4, 128, x, np.ones(1, np.int64)), [product])


@cuda.jit
def first_wins(x, y):
    i = cuda.grid(1)
    x[i] = cuda.atomic.compare_and_swap(y, -1, x[i])


def test_compare_and_swap_of_the_first_element():
    x, y = np.arange(100, dtype=np.int32), np.full(3, -1, np.int32)
    first_wins[1, 100](x, y)
    assert (x == -1).sum() == 1 and y[0] == np.flatnonzero(x == -1)[0] and (np.delete(x, y[0]) == y[0]).all()
    np.testing.assert_array_equal(y[1:], [-1, -1])


@cuda.jit
def histogram(x, y):
    local = cuda.shared.array(16, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < 16:
        local[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(local, x[i], 1)
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(y, t, local[t])


def test_histogram_in_shared_memory():
    x = draw.integers(0, 16, 30_001)
    got = launch(histogram, 118, 256, x, np.zeros(16, np.int32))
    np.testing.assert_array_equal(got, np.bincount(x, minlength=16))


@cuda.jit
def returned_values(y):
    i = cuda.grid(1)
    place = cuda.atomic.add(y, 0, 1)
    y[1 + place] = i


def test_the_old_value_is_returned():
    got = launch(returned_values, 4, 64, np.zeros(257, np.int64))
    assert got[0] == 256
    np.testing.assert_array_equal(np.sort(got[1:]), np.arange(256))


def test_nan_is_kept_by_max():
    y = launch(nan_extremes, 1, 1, np.array([math.nan]), np.array([1.0, 1.0, 1.0]))
    assert y[0] == 1 and y[1] == 1


@cuda.jit
def add_an_array(x, y):
    cuda.atomic.add(y, 0, x)


def test_the_value_is_a_number():
    with pytest.raises(UnsupportedKernelError, match=r"test_atomics.py:\d+: add_an_array: numba cannot compile"):
        launch(add_an_array, 1, 1, np.ones(2), np.zeros(2))


@cuda.jit
def waits_for_a_later_warp(flag):
    if cuda.threadIdx.x < 32:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
    else:
        cuda.atomic.exch(flag, 0, 1)


@cuda.jit(device=True)
def take(lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass


@cuda.jit
def takes_a_lock(lock):
    take(lock)


@pytest.mark.parametrize("kernel, value, line", [(waits_for_a_later_warp, 0, 3), (takes_a_lock, 1, -4)])
def test_a_thread_that_waits_for_a_later_one_ends(kernel, value, line):
    where = f"{kernel.py_func.__code__.co_firstlineno + line}: {kernel.__name__}"
    with pytest.raises(KernelTimeoutError, match=f"{where}: a thread has gone 268,435,456 times round this loop"):
        kernel[1, 64](cuda.to_device(np.full(1, value, np.int32)))


@cuda.jit
def counts_with_a_lock(lock, out):
    take(lock)
    out[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


def test_a_lock_that_is_free():
    out = cuda.to_device(np.zeros(1, np.int64))
    counts_with_a_lock[4, 64](cuda.to_device(np.zeros(1, np.int32)), out)
    np.testing.assert_array_equal(out.copy_to_host(), [256])
