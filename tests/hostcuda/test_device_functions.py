"""Device functions, nested functions, closures, constants, and the kinds of values that kernels handle."""

import math
from collections import namedtuple

import numpy as np
import pytest
from numba import complex64, float32, float64, int32, njit

from miniflow.hostcuda import UnsupportedKernelError, cuda

draw = np.random.default_rng(2)


def launch(kernel, grid, block, *arguments):
    """Run a kernel on copies of NumPy arrays, and return what it made of the last one."""
    given = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid, block](*given)
    return given[-1].copy_to_host()


@cuda.jit(device=True)
def square_plus(x, y):
    return x * x + y


@cuda.jit(device=True)
def my_index():
    """Reads coordinates, through another device function too."""
    return cuda.grid(1) + shift(0)


@cuda.jit(device=True)
def shift(n):
    return n + cuda.blockIdx.x * 0


@cuda.jit
def calls(x, y):
    i = my_index()
    if i < x.size:
        y[i] = square_plus(x[i], square_plus(x[i], 1)) if x[i] > 0 else -square_plus(x[i], 0)


def test_device_functions_in_expressions():
    x = draw.normal(size=100)
    expected = np.where(x > 0, x * x + x * x + 1, -x * x)
    np.testing.assert_allclose(launch(calls, 4, 32, x, np.zeros(100)), expected)


@cuda.jit(device=True)
def flat_index(row, column, width):
    """The index in a row-major array."""
    return row * width + column


@cuda.jit(device=True)
def counted_up(x, i):
    cuda.atomic.add(x, i, 1)
    return i + i


@cuda.jit
def by_formulas(x, y):
    i = cuda.threadIdx.x
    y[flat_index(1, i, 32)] = flat_index(i, i + 1, counted_up(x, i))


def test_formulas_take_the_place_of_their_calls():
    x, y = np.zeros(32, np.int64), np.zeros(64, np.int64)
    by_formulas[1, 32](x, y)
    i = np.arange(32)
    np.testing.assert_array_equal(x, 1)  # what has effects is called once
    np.testing.assert_array_equal(y[32:], i * 2 * i + i + 1)
    text = by_formulas.inspect_host(stage="loops")
    assert "y[1 * 32 + threadIdx_x] = " in text and "counted_up(x, threadIdx_x" in text


@cuda.jit(device=True)
def block_max(v, t):
    room = cuda.shared.array(64, float64)
    room[t] = v
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            room[t] = max(room[t], room[t + half])
        cuda.syncthreads()
        half //= 2
    largest = room[0]
    cuda.syncthreads()
    return largest


@cuda.jit
def normalised(x, y):
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    y[i] = x[i] / block_max(abs(x[i]), t) + block_max(x[i], t)


def test_device_functions_with_barriers_are_expanded():
    x = draw.normal(size=(3, 64))
    expected = x / np.abs(x).max(1, keepdims=True) + x.max(1, keepdims=True)
    np.testing.assert_allclose(launch(normalised, 3, 64, x.ravel(), np.zeros(192)), expected.ravel())


@cuda.jit(device=True)
def early(v, flag):
    if flag > 2:
        cuda.syncthreads()
        return v * 2
    cuda.syncthreads()
    for k in range(3):
        if k == flag:
            return v + k
    return v - 1


@cuda.jit
def early_returns(x, flag, y):
    t = cuda.threadIdx.x
    y[t] = early(x[t], flag)


@pytest.mark.parametrize("flag, expected", [(3, lambda x: 2 * x), (1, lambda x: x + 1), (-1, lambda x: x - 1)])
def test_early_returns_of_an_expanded_function(flag, expected):
    x = draw.normal(size=32)
    np.testing.assert_allclose(launch(early_returns, 1, 32, x, flag, np.zeros(32)), expected(x))


@cuda.jit(device=True)
def even(n):
    return True if n == 0 else odd(n - 1)


@cuda.jit(device=True)
def odd(n):
    return False if n == 0 else even(n - 1)


@cuda.jit
def mutually_recursive(y):
    y[0] = even(3)


def test_mutual_recursion_is_refused():
    with pytest.raises(UnsupportedKernelError, match="the mutual recursion of even .* write it as a loop"):
        launch(mutually_recursive, 1, 1, np.zeros(1))


ADDENDS = np.array([3.0, 1.0])


@cuda.jit(device=True)
def from_addends(i):
    return ADDENDS[0] if i <= 0 else from_addends(i - 1) + ADDENDS[1]


@cuda.jit
def recursive_with_array(y):
    y[0] = from_addends(3)


def test_recursion_with_a_global_array_is_refused():
    with pytest.raises(UnsupportedKernelError, match="the recursion of from_addends, which has barriers or arrays"):
        recursive_with_array[1, 1](np.zeros(1))


def make_kernel(factor, name_of_operation):
    @cuda.jit
    def scaled(x, y):
        i = cuda.grid(1)
        if i < x.size:
            if name_of_operation == "mul":
                y[i] = x[i] * factor
            else:
                y[i] = x[i] + factor

    return scaled


def test_closures_are_constants_of_their_own_kernel():
    x = draw.normal(size=10)
    for factor in (2, 3):
        np.testing.assert_allclose(launch(make_kernel(factor, "mul"), 1, 32, x, np.zeros(10)), x * factor)
        np.testing.assert_allclose(launch(make_kernel(factor, "add"), 1, 32, x, np.zeros(10)), x + factor)


def compose(f):
    device = cuda.jit(device=True)(f)

    @cuda.jit
    def applied(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = device(x[i])

    return applied


def cube(v):
    return v * v * v


def negated(v):
    return -v


def test_kernels_made_from_functions():
    x = draw.normal(size=10)
    np.testing.assert_allclose(launch(compose(cube), 1, 32, x, np.zeros(10)), x**3)
    np.testing.assert_allclose(launch(compose(negated), 1, 32, x, np.zeros(10)), -x)


@cuda.jit
def nested(x, scale, y):
    i = cuda.grid(1)

    def twice(v):
        return v * 2 + scale

    if i < x.size:
        y[i] = twice(x[i]) + twice(1)
    cuda.syncthreads()
    if i < x.size:
        y[i] += twice(0)


def test_nested_functions():
    x = draw.normal(size=20)
    np.testing.assert_allclose(launch(nested, 1, 32, x, 5, np.zeros(20)), 2 * x + 5 + 7 + 5)


TABLE = np.array([[1, 2, 3], [4, 5, 6]], np.float64)
WEIGHTS = (0.5, 0.25)
STEP = np.float32(0.1)
Pair = namedtuple("Pair", "left right")


@cuda.jit
def constants(pair, y):
    table = cuda.const.array_like(TABLE)
    t = cuda.threadIdx.x
    y[t] = table[t % 2, t % 3] * WEIGHTS[0] + TABLE[1, t % 3] * WEIGHTS[1] + STEP + math.pi + pair.left - pair.right


def test_constants_of_the_surroundings():
    t = np.arange(12)
    expected = TABLE[t % 2, t % 3] / 2 + TABLE[1, t % 3] / 4 + np.float64(STEP) + np.pi + 1 - 2.5
    np.testing.assert_allclose(launch(constants, 1, 12, Pair(1, 2.5), np.zeros(12)), expected, rtol=1e-7)


@njit
def plain_numba(x):
    return x + 40


@cuda.jit
def calls_numba(x, y):
    y[cuda.threadIdx.x] = plain_numba(x[cuda.threadIdx.x])


def test_functions_compiled_by_numba():
    x = draw.normal(size=8)
    np.testing.assert_allclose(launch(calls_numba, 1, 8, x, np.zeros(8)), x + 40)


@cuda.jit
def mathematics(x, y):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        y[i, 0] = math.sqrt(v) + math.exp(-v) * math.log1p(v)
        y[i, 1] = math.pow(v, 1.5) + v**3 + math.atan2(v, 2.0)
        y[i, 2] = cuda.fma(v, v, 1.0) + cuda.cbrt(v) + cuda.rsqrt(v)
        y[i, 3] = cuda.selp(v > 1, v, -v) + cuda.libdevice.exp(v) + float32(v) + int32(v)
        y[i, 4] = math.erf(v) + math.floor(v) + max(v, 1.0) + min(v, 0.5, 2.0) + round(v)


def test_mathematics():
    x = draw.uniform(0.1, 3, 50)
    erf = np.array([math.erf(v) for v in x])
    expected = np.stack(
        [
            np.sqrt(x) + np.exp(-x) * np.log1p(x),
            x**1.5 + x**3 + np.arctan2(x, 2),
            x * x + 1 + np.cbrt(x) + 1 / np.sqrt(x),
            np.where(x > 1, x, -x) + np.exp(x) + x.astype(np.float32) + x.astype(np.int32),
            erf + np.floor(x) + np.maximum(x, 1) + np.minimum(x, 0.5) + np.rint(x),
        ],
        1,
    )
    np.testing.assert_allclose(launch(mathematics, 2, 32, x, np.zeros((50, 5))), expected, rtol=1e-6)


@cuda.jit
def bits(x, y):
    t = cuda.threadIdx.x
    y[t, 0] = cuda.popc(x[t])
    y[t, 1] = cuda.clz(x[t])
    y[t, 2] = cuda.ffs(x[t])
    y[t, 3] = cuda.brev(x[t])


def test_bits():
    x = np.array([0, 1, 2, 3, 0x80000000, 0xFFFFFFFF, 0x00F0], np.uint32)
    expected = [
        [
            bin(v).count("1"),
            32 - int(v).bit_length(),
            (int(v) & -int(v)).bit_length(),
            int(f"{int(v):032b}"[::-1], 2),
        ]
        for v in x
    ]
    np.testing.assert_array_equal(launch(bits, 1, x.size, x, np.zeros((x.size, 4), np.uint32)), expected)


RECORD = np.dtype([("weight", np.float32), ("count", np.int32), ("point", np.float64, (2,))])


@cuda.jit
def records(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i].weight = x[i].weight * 2
        y[i]["count"] = x[i].count + 1
        y[i].point[0] = x[i].point[1]
        y[i].point[1] = x[i].point[0]


def test_records():
    x = np.zeros(5, RECORD)
    x["weight"], x["count"], x["point"] = draw.normal(size=5), draw.integers(0, 9, 5), draw.normal(size=(5, 2))
    got = launch(records, 1, 32, x, np.zeros(5, RECORD))
    np.testing.assert_array_equal(got["weight"], x["weight"] * 2)
    np.testing.assert_array_equal(got["count"], x["count"] + 1)
    np.testing.assert_array_equal(got["point"], x["point"][:, ::-1])


@cuda.jit
def complex_numbers(z, y):
    room = cuda.shared.array(32, complex64)
    t = cuda.threadIdx.x
    room[t] = z[t] * (1 + 2j)
    cuda.syncthreads()
    w = room[31 - t]
    y[t] = w.conjugate() + abs(w)


def test_complex_numbers():
    z = (draw.normal(size=32) + 1j * draw.normal(size=32)).astype(np.complex64)
    w = (z * (1 + 2j))[::-1]
    np.testing.assert_allclose(launch(complex_numbers, 1, 32, z, np.zeros_like(z)), w.conj() + np.abs(w), rtol=1e-5)


@cuda.jit(device=True)
def fill_row(row, value):
    for k in range(row.shape[0]):
        row[k] = value + k


@cuda.jit
def slices(y):
    t = cuda.threadIdx.x
    fill_row(y[t], t * 100)
    fill_row(y[t, 2:4], -1)
    y[t][-1] = -7


def test_slices_as_arguments_and_negative_constants():
    expected = np.arange(5)[:, None] * 100 + np.arange(6)
    expected[:, 2], expected[:, 3], expected[:, -1] = -1, 0, -7
    np.testing.assert_array_equal(launch(slices, 1, 5, np.zeros((5, 6), np.int64)), expected)


@cuda.jit
def negative_index(x, offset, y):
    t = cuda.threadIdx.x
    y[t] = x[t + offset] + x[t - 1]


@pytest.mark.parametrize("offset", [-2, 0])
def test_negative_indices_count_from_the_end_as_in_numba(offset, kernel=negative_index):
    x = draw.normal(size=10)
    t = np.arange(8)
    np.testing.assert_allclose(launch(kernel, 1, 8, x, offset, np.zeros(8)), x[t + offset] + x[t - 1])


def test_what_is_compiled_for_a_negative_number_serves_all():
    kernel = cuda.jit(negative_index.py_func)
    for offset in (-2, 0, -1):
        test_negative_indices_count_from_the_end_as_in_numba(offset, kernel)
    (compiled,) = kernel.compiled.values()
    assert "general" not in vars(compiled)  # compiled once more, for negative numbers


@cuda.jit
def grid_stride(x, y):
    start = cuda.grid(1)
    step = cuda.gridsize(1)
    for i in range(start, x.size, step):
        y[i] = x[i] + 1
    i = start
    while i < x.size:
        y[i] *= 2
        i += step


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_grid_stride_loops(size):
    x = draw.normal(size=size)
    np.testing.assert_allclose(launch(grid_stride, 2, 32, x, np.zeros(size)), 2 * (x + 1))


@cuda.jit
def strided_arrays(x, y):
    col, row = cuda.grid(2)
    if row < x.shape[0] and col < x.shape[1]:
        y[row, col] = x[row, col]


def test_arrays_of_any_layout():
    x = draw.normal(size=(20, 30))
    on_device = cuda.to_device(x)
    cases = [(on_device[::2, ::3], x[::2, ::3]), (on_device.T, x.T), (cuda.to_device(np.asfortranarray(x)), x)]
    for view, expected in cases:
        y = cuda.to_device(np.zeros(expected.shape))
        strided_arrays[(2, 2), (16, 16)](view, y)
        np.testing.assert_array_equal(y.copy_to_host(), expected)


@cuda.jit
def remainders(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0] = math.fmod(x[i], y[i])
        out[i, 1] = math.remainder(x[i], y[i])
        fraction, whole = math.modf(x[i])
        out[i, 2], out[i, 3] = fraction, whole


def test_remainders():
    x = np.array([5.5, -5.5, 7.0, 2.5, 3.5, -7.25, 0.0, 10.0, 1e9])
    y = np.array([2.0, 2.0, -2.0, 1.0, 1.0, 3.0, 2.0, 4.0, 7.0])
    expected = [[math.fmod(a, b), math.remainder(a, b), *math.modf(a)] for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(launch(remainders, 1, 32, x, y, np.zeros((9, 4))), expected)


@cuda.jit(device=True)
def turned(x):
    room = cuda.shared.array(4, x.dtype)
    t = cuda.threadIdx.x
    room[t] = x[t]
    cuda.syncthreads()
    value = room[3 - t]
    cuda.syncthreads()
    return value


@cuda.jit(device=True)
def turned_part(values):
    return turned(values[1])


def test_an_array_of_the_dtype_of_a_parameter():
    """Of the argument, not of the kernel's parameter of the same name."""

    @cuda.jit
    def kernel(x, y, out):
        out[cuda.threadIdx.x] = turned_part(y) + turned(y[0])

    @cuda.jit
    def of_two_dtypes(x, y, out):
        out[cuda.threadIdx.x] = turned(x) + turned(y[0])

    x, y, out = np.arange(4, dtype=np.int32), np.arange(8).reshape(2, 4) + 0.5, np.zeros(4)
    kernel[1, 4](x, y, out)
    np.testing.assert_array_equal(out, y.sum(0)[::-1])
    with pytest.raises(UnsupportedKernelError, match="room in a device function, of dtype x.dtype and y.dtype"):
        of_two_dtypes[1, 4](x, y, out)
