"""The checks of lesson 1. NumPy is the oracle."""

import numpy as np
import pytest

from tutorials import refused, same

SUMS = [((2, 3), (3,)), ((2, 3), (2, 1)), ((4, 2, 3), (1, 3)), ((5, 3), ()), ((2, 3), (2, 3)), ((3, 1, 2), (1, 1, 2))]
MAY_NOT_CALL = {
    "1.1": ["strides", "stride"],
    "1.2": ["ravel_multi_index"],
    "1.3": ["unravel_index"],
    "1.4": ["broadcast_shapes", "broadcast_arrays", "broadcast", "broadcast_to"],
    "1.5": ["broadcast_to", "broadcast_arrays", "as_strided", "expand", "strides"],
    "1.6": ["sum_to_shape", "sum_to_size"],
}


def drawn_shape(rng, ndim):
    return tuple(int(n) for n in rng.integers(1, 6, ndim))


def strided(array):
    """Its strides in elements."""
    return tuple(step // array.itemsize for step in array.strides)


@pytest.mark.task("1.1")
def test_strides(impl, rng):
    for shape in [(2, 3), (7,), (2, 3, 4), tuple(n + 1 for n in drawn_shape(rng, 5))]:
        hint = "the last step is 1, and each other one is the number of elements behind it"
        wanted = strided(np.zeros(shape, np.int8))
        same(impl.contiguous_strides(shape), wanted, f"contiguous_strides({shape})", hint)
    same(impl.contiguous_strides((3, 1, 5)), (5, 5, 1), "contiguous_strides((3, 1, 5))")
    same(impl.contiguous_strides(()), (), "contiguous_strides(())", "a number has no dimension, so no strides")


@pytest.mark.task("1.2")
def test_offset(impl, rng):
    storage = np.arange(600)
    views = [storage[7:67].reshape(3, 4, 5), storage[100:112].reshape(3, 4).T, storage[40:100:3], storage[90:30:-2]]
    for view in views:
        start = int(view.flat[0])
        for _ in range(5):
            index = tuple(int(rng.integers(n)) for n in view.shape)
            got, what = impl.offset(index, strided(view), start), f"offset({index}, {strided(view)}, {start})"
            same(got, int(view[index]), what, "each index times its stride, and the start")


@pytest.mark.task("1.3")
def test_index_at(impl, rng):
    for shape in [(2, 3, 4), (5,), (3, 1, 2), drawn_shape(rng, 4)]:
        for position in {0, int(np.prod(shape)) - 1, int(rng.integers(np.prod(shape)))}:
            wanted = tuple(int(i) for i in np.unravel_index(position, shape))
            hint = "divide by the sizes, the last first: the rests are the index"
            same(impl.index_at(position, shape), wanted, f"index_at({position}, {shape})", hint)


@pytest.mark.task("1.4")
def test_broadcast_shape(impl, rng):
    pairs = [((2, 3), (3,)), ((4, 1), (3,)), ((), (2, 5)), ((1, 3, 1), (5, 1, 2)), ((2, 0), (1,)), ((0,), (1,))]
    for _ in range(10):
        whole = drawn_shape(rng, 4)
        pairs.append(tuple(tuple(int(n) if rng.random() < 0.6 else 1 for n in whole[rng.integers(4) :]) for _ in "ab"))
    for a, b in pairs:
        hint = "write both shapes right-aligned; where they differ one of them has to be 1"
        same(impl.broadcast_shape(a, b), np.broadcast_shapes(a, b), f"broadcast_shape({a}, {b})", hint)


@pytest.mark.task("1.4")
@pytest.mark.parametrize("a, b", [((2, 3), (2,)), ((4, 3), (2, 3)), ((0,), (2,)), ((3, 2, 5), (3, 1, 4))])
def test_shapes_that_do_not_fit(impl, a, b):
    refused(lambda: impl.broadcast_shape(a, b), ValueError, f"broadcast_shape({a}, {b})")


@pytest.mark.task("1.5")
def test_broadcast_strides(impl, rng):
    storage = rng.standard_normal(400)
    for shape, target in [((3,), (4, 3)), ((4, 1), (4, 5)), ((1, 3, 1), (2, 3, 6)), ((), (2, 2)), ((1, 1), (3, 1, 4))]:
        # dims that do not change have odd strides, as a view has
        strides = tuple(int(n) for n in rng.integers(2, 9, len(shape)))
        got = impl.broadcast_strides(shape, strides, target)
        what = f"broadcast_strides({shape}, {strides}, {target})"
        if not isinstance(got, tuple) or len(got) != len(target):
            raise AssertionError(f"{what}: expected {len(target)} strides, got {got!r}")
        view = np.lib.stride_tricks.as_strided(storage, shape, [8 * step for step in strides])
        seen = np.array([storage[sum(i * s for i, s in zip(index, got))] for index in np.ndindex(target)])
        wanted = np.broadcast_to(view, target)
        same(seen.reshape(target), wanted, what, "a step of 0 stays at the same element")


@pytest.mark.task("1.6")
def test_sum_to(impl, rng):
    for shape, target in SUMS:
        for dtype in (np.float32, np.float64):
            array = rng.standard_normal(shape).astype(dtype)
            ones = rng.standard_normal(target).astype(dtype)
            got = impl.sum_to(array.copy(), target)
            # <sum_to(array), x> is <array, x broadcast>: what makes it the gradient of a broadcast
            wanted = np.zeros(target, np.float64)
            for index in np.ndindex(shape):
                tail = index[len(shape) - len(target) :]
                wanted[tuple(i if n > 1 else 0 for i, n in zip(tail, target))] += array[index]
            what = f"sum_to(array of shape {shape}, {target})"
            same(got, wanted.astype(dtype), what, "sum the dims in front away, the others with keepdims", rtol=1e-4)
            assert np.isclose((got * ones).sum(), (array * np.broadcast_to(ones, shape)).sum(), 1e-3, 1e-3), what
