"""What else of Python and of numba.cuda users write in kernels: one construct each."""

import enum
import math
from collections import namedtuple

import numpy as np
from expectations import Table, blank
from numba import float32, int32, int64, literal_unroll

from miniflow.hostcuda import cuda

CASES = Table()
T = np.arange(8)
F = np.arange(8.0)
H = (np.arange(8) / 4 - 1).astype(np.float16)
FLOATS = np.array([1.5, -2.5, 0.25, 3.5, -0.5, 2.5, 7.0, -1.25], np.float32)

# Half precision.


@CASES.launch(1, 8, H, H[::-1].copy(), blank(8, np.float16), gives=H + H[::-1])
def half_sum(a, b, out):
    i = cuda.grid(1)
    out[i] = a[i] + b[i]


@CASES.launch(1, 8, H, blank((2, 8), np.float32), gives=[H.astype(np.float32) * 3, H.astype(np.float32)])
def half_loads(a, out):
    i = cuda.grid(1)
    out[0, i] = float32(a[i]) * float32(3)
    out[1, i] = a[i]


@CASES.launch(1, 8, FLOATS, blank(8, np.float16), gives=FLOATS.astype(np.float16))
def half_stores(a, out):
    i = cuda.grid(1)
    out[i] = a[i]


@CASES.launch(1, 8, H, blank(8, np.float16), gives=H[::-1])
def half_shared_memory(a, out):
    s = cuda.shared.array(8, np.float16)
    i = cuda.grid(1)
    s[i] = a[i]
    cuda.syncthreads()
    out[i] = s[7 - i]


@CASES.launch(1, 8, H, H[::-1].copy(), blank((2, 8), np.float16), gives=[H + H[::-1], H * H[::-1]])
def half_intrinsics(a, b, out):
    i = cuda.grid(1)
    out[0, i] = cuda.fp16.hadd(a[i], b[i])
    out[1, i] = cuda.fp16.hmul(a[i], b[i])


# Functions.

difference = cuda.jit(lambda a, b: a - b, device=True)


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F - 3)
def lambda_as_device_function(x, out):
    i = cuda.grid(1)
    out[i] = difference(x[i], 3.0)


@cuda.jit
def no_device_keyword(a):
    return a * 2


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F * 2)
def kernel_called_as_device_function(x, out):
    i = cuda.grid(1)
    out[i] = no_device_keyword(x[i])


@cuda.jit(device=True)
def scaled(a, factor=2, shift=1):
    return a * factor + shift


@CASES.launch(1, 8, F, blank((3, 8), np.float64), gives=[F * 2 + 1, F * 5 + 1, F * 2 - 3])
def defaults_and_keywords(x, out):
    i = cuda.grid(1)
    out[0, i] = scaled(x[i])
    out[1, i] = scaled(x[i], 5)
    out[2, i] = scaled(x[i], shift=-3)


@cuda.jit(device=True)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@CASES.launch(1, 8, blank(8, np.int64), gives=[0, 1, 1, 2, 3, 5, 8, 13], checked=False)  # not translated for PTX
def self_recursion(out):
    i = cuda.grid(1)
    out[i] = fibonacci(int64(i))


@cuda.jit(device=True)
def weighted(a, b, c):
    return a + 10 * b + 100 * c


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F + 20 + 300)
def arguments_from_a_tuple(x, out):
    i = cuda.grid(1)
    t = (x[i], 2.0, 3.0)
    out[i] = weighted(*t)


def plain_python(a):
    return a + 1


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F + 101)
def nested_function(x, out):
    def shifted(a):
        return a + 100

    i = cuda.grid(1)
    out[i] = shifted(x[i]) + 1


def made_by_closure(factor):
    def times(x, out):
        i = cuda.grid(1)
        out[i] = x[i] * factor

    return times


CASES.launch(1, 8, F, blank(8, np.float64), gives=F * 7, name="closure_7")(made_by_closure(7))
CASES.launch(1, 8, F, blank(8, np.float64), gives=F * 0.5, name="closure_half")(made_by_closure(0.5))

# Constants.


class Color(enum.IntEnum):
    RED = 1
    BLUE = 5


@CASES.launch(1, 8, T % 6, blank(8, np.int64), gives=[0, 10, 0, 0, 0, 50, 0, 10])
def int_enum(x, out):
    i = cuda.grid(1)
    if x[i] == Color.RED:
        out[i] = 10
    elif x[i] == Color.BLUE:
        out[i] = Color.BLUE * 10
    else:
        out[i] = 0


WEIGHTS = (1.0, 2.0, 4.0)


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F * 7, checked=False)  # numba-cuda has its own
def global_tuple_unrolled(x, out):
    i = cuda.grid(1)
    total = 0.0
    for w in literal_unroll(WEIGHTS):
        total += x[i] * w
    out[i] = total


@CASES.launch(1, 8, F, blank(8, np.float64), gives=F * 7)
def global_tuple_in_a_loop(x, out):
    i = cuda.grid(1)
    total = 0.0
    for w in WEIGHTS:
        total += x[i] * w
    out[i] = total


@CASES.launch(1, 8, T, blank(8, np.int64), gives=T[::-1])
def shape_by_local_constants(x, out):
    rows = 2
    columns = 4
    s = cuda.shared.array((rows, columns), dtype=int64)
    t = cuda.threadIdx.x
    s[t // columns, t % columns] = x[t]
    cuda.syncthreads()
    k = rows * columns - 1 - t
    out[t] = s[k // columns, k % columns]


@CASES.launch(1, 8, T, blank(8, np.int64), gives=T * 3)
def local_array_by_a_local_constant(x, out):
    size = 3
    a = cuda.local.array(size, int64)
    t = cuda.threadIdx.x
    for k in range(size):
        a[k] = x[t]
    out[t] = a[0] + a[1] + a[2]


Pair = namedtuple("Pair", "low high")


@CASES.launch(1, 8, T, Pair(2, 5), blank(8, np.int64), gives=np.clip(T, 2, 5))
def named_tuple_argument(x, limits, out):
    i = cuda.grid(1)
    out[i] = min(max(x[i], limits.low), limits.high)


@CASES.launch(1, 8, (F.copy(), F * 10), blank(8, np.float64), gives=F * 11)
def tuple_of_arrays_argument(pair, out):
    i = cuda.grid(1)
    out[i] = pair[0][i] + pair[1][i]


# Statements and expressions.


@CASES.launch(1, 8, T % 5, blank(8, np.int64), gives=[10, 20, 20, 40, 99, 10, 20, 20])
def match_statement(x, out):
    i = cuda.grid(1)
    match x[i]:
        case 0:
            out[i] = 10
        case 1 | 2:
            out[i] = 20
        case 3:
            out[i] = 40
        case _:
            out[i] = 99


@CASES.launch(1, 8, T, blank((2, 8), np.int64), gives=[T // 3, T % 3])
def divmod_and_multiple_targets(x, out):
    i = cuda.grid(1)
    out[0, i], out[1, i] = divmod(x[i], 3)


@CASES.launch(1, 8, T, blank(8, np.int64), gives=[1 if v in (1, 4, 6) else 0 for v in T])
def membership_in_a_tuple(x, out):
    i = cuda.grid(1)
    out[i] = 1 if x[i] in (1, 4, 6) else 0


@CASES.launch(1, 8, np.arange(12), blank((3, 8), np.int64), gives=[T + 2, (T % 6) * 2, 11 - T])
def slices_as_views(x, out):
    i = cuda.grid(1)
    inner = x[2:10]
    even = x[::2]
    back = x[::-1]
    out[0, i] = inner[i]
    out[1, i] = even[i % 6]
    out[2, i] = back[i]


@CASES.launch(1, 8, np.arange(12), blank(8, np.int64), gives=np.full(8, 66))
def loop_over_an_array(x, out):
    total = 0
    for v in x:
        total += v
    out[cuda.grid(1)] = total


@CASES.launch(
    1, 8, np.arange(24).reshape(8, 3), blank(8, np.int64), gives=np.arange(24).reshape(8, 3)[:, ::-1] @ [0, 1, 2]
)
def enumerate_over_a_row(x, out):
    i = cuda.grid(1)
    total = 0
    for k, v in enumerate(x[i]):
        total += (2 - k) * v
    out[i] = total


@CASES.launch(1, 8, T, blank(8, np.int64), gives=T, checked=False)  # the checked mode may warn of them
def negative_indices(x, out):
    i = cuda.grid(1)
    out[-1 - i] = x[-(i + 1)]


@CASES.launch(1, 8, np.zeros(3, np.int64), gives=[8, 28, 0])
def atomic_as_a_value(out):
    add = cuda.atomic.add
    i = cuda.grid(1)
    add(out, 0, 1)
    add(out, 1, i)


@CASES.launch(1, 8, FLOATS, blank(8, np.float32), gives=FLOATS, reference=False)
def cached_loads_and_stores(x, out):
    i = cuda.grid(1)
    cuda.stcg(out, i, cuda.ldcg(x, i))


@CASES.launch(1, 8, FLOATS, blank(8, np.int64), gives=np.rint(FLOATS), reference=False)
def libdevice_float2int(x, out):
    i = cuda.grid(1)
    out[i] = cuda.libdevice.float2int_rn(x[i])


@CASES.launch(1, 8, F / 8 - 0.5, blank(8, np.float64), gives=F / 8 - 0.5, reference=False, tolerance=1e-13)
def libdevice_erfinv(x, out):
    i = cuda.grid(1)
    out[i] = math.erf(cuda.libdevice.erfinv(x[i]))


@CASES.launch(1, 8, FLOATS, blank(8, np.float32), gives=FLOATS * 4 + 3, reference=False)
def vector_types(x, out):
    i = cuda.grid(1)
    v = cuda.float32x4(x[i], float32(1), float32(2), x[i])
    out[i] = (v.x + v.w) * float32(2) + v.y + v.z


@CASES.launch(1, 8, T > 3, blank(8, np.bool_), gives=~(T > 3))
def arrays_of_booleans(x, out):
    i = cuda.grid(1)
    out[i] = not x[i]


ZYX = [[[100 * z + 10 * y + x for x in range(2)] for y in range(2)] for z in range(4)]


@CASES.launch((1, 2, 2), (2, 1, 2), blank((4, 2, 2), np.int64), gives=ZYX)
def three_dims(out):
    x, y, z = cuda.grid(3)
    out[z, y, x] = 100 * z + 10 * y + x


@CASES.launch(1, 8, F, blank(8, np.float64), gives=np.where(F > 2, F, F + 1) ** 2)
def types_that_unify(x, out):
    i = cuda.grid(1)
    v = 1
    if x[i] > 2:
        v = x[i]
    else:
        v = x[i] + v
    out[i] = v**2


@CASES.launch(1, 8, T, blank(8, np.int64), gives=np.where(T % 2 == 0, T // 2, 3 * T + 1), reference=False)
def numba_types_as_annotations(x: int64, out):
    i: int32 = cuda.grid(1)
    v: int64 = x[i]
    out[i] = v // 2 if v % 2 == 0 else 3 * v + 1


test_compiled, test_checked, test_reference = CASES.tests(default=3)
