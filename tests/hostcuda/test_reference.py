"""The reference executor itself: its typing against numba's, and kernels whose results are known from paper."""

import operator

import numpy as np
import pytest
import reference_numbers as numbers
from numba import from_dtype, int64
from numba.core.registry import cpu_target
from reference import run_reference
from reference_numbers import UndefinedBehaviour

from miniflow.hostcuda import cuda

TYPES = [np.dtype(t) for t in "b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 c8".split()]
OPERATORS = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "LShift": operator.lshift,
    "BitAnd": operator.and_,
}


def numba_type(context, function, *dtypes):
    """The dtype that numba gives the result; None if it refuses."""
    try:
        signature = context.resolve_function_type(function, tuple(map(from_dtype, dtypes)), {})
    except Exception:
        return None
    return None if signature is None else str(signature.return_type)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", OPERATORS)
def test_typing_is_numbas(name):
    context = cpu_target.typing_context
    context.refresh()
    compared = 0
    for a in TYPES:
        for b in TYPES:
            expected = numba_type(context, OPERATORS[name], a, b)
            if expected is None or (name == "Sub" and a.kind == b.kind == "b"):
                continue
            assert str(from_dtype(numbers.result_dtype(name, a, b))) == expected, (name, a, b)
            compared += 1
    np.testing.assert_array_equal(compared > 60, True)


def test_arithmetic():
    values = [
        (numbers.binary("Add", np.int32(2**31 - 1), 1), np.int64(2**31)),
        (numbers.binary("Sub", np.uint8(3), np.uint8(5)), np.uint64(2**64 - 2)),
        (numbers.binary("Sub", np.uint8(3), 5), np.int64(-2)),
        (numbers.binary("FloorDiv", -7, 2), np.int64(-4)),
        (numbers.binary("Mod", -7, 3), np.int64(2)),
        (numbers.binary("Mod", 7, -3), np.int64(-2)),
        (numbers.binary("Div", np.int32(1), np.int32(2)), np.float64(0.5)),
        (numbers.binary("Mult", np.float32(0.1), np.float32(0.1)), np.float32(0.1) * np.float32(0.1)),
        (numbers.binary("Mult", np.float32(0.1), 3), np.float64(np.float32(0.1)) * 3),
        (numbers.unary("USub", np.uint32(1)), np.uint64(2**64 - 1)),
        (numbers.unary("Invert", np.int8(5)), np.int64(-6)),
        (numbers.binary("RShift", -5, 1), np.int64(-3)),
    ]
    for got, expected in values:
        assert got == expected and got.dtype == expected.dtype


def test_casts():
    values = [
        (numbers.cast(200, np.int8), -56),
        (numbers.cast(-1, np.uint32), 2**32 - 1),
        (numbers.cast(1e20, np.int32), 2**31 - 1),
        (numbers.cast(-1.0, np.uint32), 0),
        (numbers.cast(np.float32("nan"), np.int32), 0),
        (numbers.cast(-3.99, np.int64), -3),
        (numbers.cast(3, np.bool_), True),
    ]
    for got, expected in values:
        assert got == expected


def test_comparisons_know_the_sign():
    assert not numbers.compare("Lt", np.uint64(2**63), -1)
    assert numbers.compare("Lt", np.int64(-1), np.uint64(0))
    assert numbers.compare("Gt", 4.5, np.int32(4))


def reverses(x, out):
    s = cuda.shared.array(8, int64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[7 - t]


@pytest.mark.few(2)
@pytest.mark.parametrize("order", ["forward", "backward"])
def test_a_barrier(order):
    out = np.zeros(8, np.int64)
    run_reference(reverses, 1, 8, [np.arange(8), out], order=order)
    np.testing.assert_array_equal(out, np.arange(8)[::-1])


def counts_after_return(n, out):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = cuda.syncthreads_count(1)


def test_threads_that_returned_do_not_vote():
    out = np.zeros(64, np.int64)
    run_reference(counts_after_return, 2, 32, [40, out])
    np.testing.assert_array_equal(out, [32] * 32 + [8] * 8 + [0] * 24)


def neighbours(out):
    t = cuda.threadIdx.x
    out[0, t] = cuda.shfl_up_sync(0xFFFFFFFF, t, 1)
    out[1, t] = cuda.shfl_down_sync(0xFFFFFFFF, t, 1)
    out[2, t] = cuda.ballot_sync(0xFFFFFFFF, t % 2 == 1)
    out[3, t] = cuda.any_sync(0xFFFFFFFF, t == 40)


def test_warps():
    out = np.zeros((4, 64), np.int64)
    run_reference(neighbours, 1, 64, [out])
    t = np.arange(64)
    np.testing.assert_array_equal(out[0], np.where(t % 32 == 0, t, t - 1))
    np.testing.assert_array_equal(out[1], np.where(t % 32 == 31, t, t + 1))
    np.testing.assert_array_equal(out[2], np.full(64, np.int32(np.uint32(0xAAAAAAAA).view(np.int32))))
    np.testing.assert_array_equal(out[3], t >= 32)


def ring(a, b):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    b[i] = a[(i + 1) % 6]
    g.sync()
    a[i] = b[(i + 1) % 6]


def test_a_grid_barrier():
    a, b = np.arange(6), np.zeros(6, np.int64)
    run_reference(ring, 3, 2, [a, b])
    np.testing.assert_array_equal(a, [2, 3, 4, 5, 0, 1])


def meets_at_different_barriers(x):
    if cuda.threadIdx.x < 4:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def reads_what_nobody_wrote(out):
    s = cuda.shared.array(8, int64)
    out[cuda.threadIdx.x] = s[cuda.threadIdx.x]


def races(out):
    out[0] = cuda.threadIdx.x


def test_what_is_undefined_is_seen():
    with pytest.raises(UndefinedBehaviour, match="threads of one block wait at"):
        run_reference(meets_at_different_barriers, 1, 8, [np.zeros(8)])
    one, other = np.zeros(8, np.int64), np.zeros(8, np.int64)
    run_reference(reads_what_nobody_wrote, 1, 8, [one], seed=0)
    run_reference(reads_what_nobody_wrote, 1, 8, [other], seed=1)
    assert (one != other).any()
    run_reference(races, 1, 8, [one], order="forward")
    run_reference(races, 1, 8, [other], order="backward")
    np.testing.assert_array_equal([one[0], other[0]], [7, 0])


def leaves(x):
    x[cuda.threadIdx.x] = 1


def test_an_index_outside_is_an_error():
    with pytest.raises(IndexError, match="7"):
        run_reference(leaves, 1, 8, [np.zeros(7)])
