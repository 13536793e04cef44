"""`cuda.libdevice`: every function against NumPy, the standard library, or its definition in bits."""

import math

import numpy as np

from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.host import libdevice
from miniflow.hostcuda.libdevice import TABLE

jit = cuda.jit(boundscheck=False)  # with checks, each expression is compiled twice

UNARY = """
    acos asin atan atanh ceil cos cosh erf erfc exp expm1 fabs floor lgamma log log10 log1p
    log2 sin sinh sqrt tan tanh trunc asinh tgamma cbrt rsqrt rint nearbyint exp2
""".split()
BINARY = "atan2 copysign fmod hypot pow fmax fmin nextafter".split()
FAST = "fast_cosf fast_expf fast_logf fast_log10f fast_log2f fast_sinf fast_tanf".split()
INTEGER = "clz clzll ffs ffsll popc popcll brev brevll".split()
TESTS_OF_FLOATS = "isinfd isnand isfinited isinff isnanf finitef".split()


def reference(name):
    """The same function of float64 arrays."""
    special = {
        "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "atanh": np.arctanh, "asinh": np.arcsinh,
        "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "lgamma": np.vectorize(math.lgamma),
        "tgamma": np.vectorize(math.gamma), "rsqrt": lambda x: 1 / np.sqrt(x), "nearbyint": np.rint,
        "atan2": np.arctan2, "pow": np.power,
    }  # fmt: skip
    return special.get(name) or getattr(np, name)


@jit
def unary(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.acos(x[i])
        out[1, i] = libdevice.asin(x[i])
        out[2, i] = libdevice.atan(x[i])
        out[3, i] = libdevice.atanh(x[i])
        out[4, i] = libdevice.ceil(x[i])
        out[5, i] = libdevice.cos(x[i])
        out[6, i] = libdevice.cosh(x[i])
        out[7, i] = libdevice.erf(x[i])
        out[8, i] = libdevice.erfc(x[i])
        out[9, i] = libdevice.exp(x[i])
        out[10, i] = libdevice.expm1(x[i])
        out[11, i] = libdevice.fabs(x[i])
        out[12, i] = libdevice.floor(x[i])
        out[13, i] = libdevice.lgamma(x[i])
        out[14, i] = libdevice.log(x[i])
        out[15, i] = libdevice.log10(x[i])
        out[16, i] = libdevice.log1p(x[i])
        out[17, i] = libdevice.log2(x[i])
        out[18, i] = libdevice.sin(x[i])
        out[19, i] = libdevice.sinh(x[i])
        out[20, i] = libdevice.sqrt(x[i])
        out[21, i] = libdevice.tan(x[i])
        out[22, i] = libdevice.tanh(x[i])
        out[23, i] = libdevice.trunc(x[i])
        out[24, i] = libdevice.asinh(x[i])
        out[25, i] = libdevice.tgamma(x[i])
        out[26, i] = libdevice.cbrt(x[i])
        out[27, i] = libdevice.rsqrt(x[i])
        out[28, i] = libdevice.rint(x[i])
        out[29, i] = libdevice.nearbyint(x[i])
        out[30, i] = libdevice.exp2(x[i])


@jit
def unary_single(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.acosf(x[i])
        out[1, i] = libdevice.asinf(x[i])
        out[2, i] = libdevice.atanf(x[i])
        out[3, i] = libdevice.atanhf(x[i])
        out[4, i] = libdevice.ceilf(x[i])
        out[5, i] = libdevice.cosf(x[i])
        out[6, i] = libdevice.coshf(x[i])
        out[7, i] = libdevice.erff(x[i])
        out[8, i] = libdevice.erfcf(x[i])
        out[9, i] = libdevice.expf(x[i])
        out[10, i] = libdevice.expm1f(x[i])
        out[11, i] = libdevice.fabsf(x[i])
        out[12, i] = libdevice.floorf(x[i])
        out[13, i] = libdevice.lgammaf(x[i])
        out[14, i] = libdevice.logf(x[i])
        out[15, i] = libdevice.log10f(x[i])
        out[16, i] = libdevice.log1pf(x[i])
        out[17, i] = libdevice.log2f(x[i])
        out[18, i] = libdevice.sinf(x[i])
        out[19, i] = libdevice.sinhf(x[i])
        out[20, i] = libdevice.sqrtf(x[i])
        out[21, i] = libdevice.tanf(x[i])
        out[22, i] = libdevice.tanhf(x[i])
        out[23, i] = libdevice.truncf(x[i])
        out[24, i] = libdevice.asinhf(x[i])
        out[25, i] = libdevice.tgammaf(x[i])
        out[26, i] = libdevice.cbrtf(x[i])
        out[27, i] = libdevice.rsqrtf(x[i])
        out[28, i] = libdevice.rintf(x[i])
        out[29, i] = libdevice.nearbyintf(x[i])
        out[30, i] = libdevice.exp2f(x[i])


@jit
def binary(out, x, y):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.atan2(x[i], y[i])
        out[1, i] = libdevice.copysign(x[i], y[i])
        out[2, i] = libdevice.fmod(x[i], y[i])
        out[3, i] = libdevice.hypot(x[i], y[i])
        out[4, i] = libdevice.pow(x[i], y[i])
        out[5, i] = libdevice.fmax(x[i], y[i])
        out[6, i] = libdevice.fmin(x[i], y[i])
        out[7, i] = libdevice.nextafter(x[i], y[i])


@jit
def binary_single(out, x, y):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.atan2f(x[i], y[i])
        out[1, i] = libdevice.copysignf(x[i], y[i])
        out[2, i] = libdevice.fmodf(x[i], y[i])
        out[3, i] = libdevice.hypotf(x[i], y[i])
        out[4, i] = libdevice.powf(x[i], y[i])
        out[5, i] = libdevice.fmaxf(x[i], y[i])
        out[6, i] = libdevice.fminf(x[i], y[i])
        out[7, i] = libdevice.nextafterf(x[i], y[i])


@jit
def fast(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.fast_cosf(x[i])
        out[1, i] = libdevice.fast_expf(x[i])
        out[2, i] = libdevice.fast_logf(x[i])
        out[3, i] = libdevice.fast_log10f(x[i])
        out[4, i] = libdevice.fast_log2f(x[i])
        out[5, i] = libdevice.fast_sinf(x[i])
        out[6, i] = libdevice.fast_tanf(x[i])
        out[7, i] = libdevice.fast_powf(x[i], x[i])
        out[8, i] = libdevice.fmaf(x[i], x[i], x[i])


@jit
def others(out, flags, x, n):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = libdevice.clz(n[i])
        out[1, i] = libdevice.clzll(n[i])
        out[2, i] = libdevice.ffs(n[i])
        out[3, i] = libdevice.ffsll(n[i])
        out[4, i] = libdevice.popc(n[i])
        out[5, i] = libdevice.popcll(n[i])
        out[6, i] = libdevice.brev(n[i])
        out[7, i] = libdevice.brevll(n[i])
        flags[0, i] = libdevice.isinfd(x[i])
        flags[1, i] = libdevice.isnand(x[i])
        flags[2, i] = libdevice.isfinited(x[i])
        flags[3, i] = libdevice.isinff(x[i])
        flags[4, i] = libdevice.isnanf(x[i])
        flags[5, i] = libdevice.finitef(x[i])


def check(kernel, names, dtype, tolerance, *inputs):
    inputs = [values.astype(dtype) for values in inputs]
    out = np.full((len(names), inputs[0].size), np.nan, dtype)
    kernel[1, 64](cuda.InOut(out), *map(cuda.In, inputs))
    for name, row in zip(names, out, strict=True):
        expected = reference(name)(*(values.astype(np.float64) for values in inputs))
        np.testing.assert_allclose(row, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def test_functions_of_one_number():
    x = np.linspace(0.05, 0.95, 41)
    check(unary, UNARY, np.float64, 1e-14, x)
    check(unary_single, UNARY, np.float32, 3e-6, x)


def test_functions_of_two_numbers():
    generator = np.random.default_rng(0)
    x, y = generator.uniform(0.1, 3, 40), generator.uniform(0.1, 3, 40)
    check(binary, BINARY, np.float64, 1e-14, x, y)
    check(binary_single, BINARY, np.float32, 3e-6, x, y)


def test_minimum_and_maximum_skip_nan():
    x, y = np.array([np.nan, 1, np.nan, 2]), np.array([1, np.nan, np.nan, 3])
    out = np.zeros((len(BINARY), 4))
    binary[1, 64](cuda.InOut(out), cuda.In(x), cuda.In(y))
    np.testing.assert_array_equal(out[BINARY.index("fmax")], [1, 1, np.nan, 3])
    np.testing.assert_array_equal(out[BINARY.index("fmin")], [1, 1, np.nan, 2])


def test_fast_functions_and_fma():
    x = np.linspace(0.05, 0.95, 41, dtype=np.float32)
    out = np.full((9, x.size), np.nan, np.float32)
    fast[1, 64](cuda.InOut(out), cuda.In(x))
    wide = x.astype(np.float64)
    expected = [np.cos(wide), np.exp(wide), np.log(wide), np.log10(wide), np.log2(wide), np.sin(wide), np.tan(wide)]
    np.testing.assert_allclose(out, [*expected, wide**wide, wide * wide + wide], rtol=3e-6, atol=1e-6)


def test_integers_and_tests_of_floats():
    n = np.array([1, 2, 12, -5, 2**31 - 1])
    x = np.array([np.inf, -np.inf, np.nan, 1.5, 0])
    out, flags = np.full((8, 5), -99), np.full((6, 5), -99)
    others[1, 32](cuda.InOut(out), cuda.InOut(flags), cuda.In(x), cuda.In(n))

    def bits(value, width):
        return f"{value % 2**width:0{width}b}"

    def signed(value, width):
        return value - 2**width if value >= 2 ** (width - 1) else value

    for column, value in zip(out.T.tolist(), n.tolist(), strict=True):
        narrow, wide = bits(value, 32), bits(value, 64)
        expected = [32 - len(narrow.lstrip("0")), 64 - len(wide.lstrip("0"))]
        expected += [narrow[::-1].index("1") + 1, wide[::-1].index("1") + 1, narrow.count("1"), wide.count("1")]
        expected += [signed(int(narrow[::-1], 2), 32), signed(int(wide[::-1], 2), 64)]
        assert column == expected
    np.testing.assert_array_equal(flags[:3], [np.isinf(x), np.isnan(x), np.isfinite(x)])
    np.testing.assert_array_equal(flags[3:], flags[:3])


def test_no_function_is_forgotten():
    tested = {*UNARY, *BINARY, *FAST, *INTEGER, *TESTS_OF_FLOATS, "fast_powf", "fma", "fmaf", "acosh", "acoshf"}
    tested |= {name + "f" for name in (*UNARY, *BINARY)}
    # in `test_libdevice_more`
    elsewhere = [name + f for name in ("frexp", "ldexp", "scalbn", "powi", "llrint") for f in ("", "f")]
    namesakes = {
        name for name, c in TABLE.items() if c.function.startswith(("math.", "np.", "cuda.")) and "{" not in c.function
    }
    assert namesakes == {*(n for n in tested if n in namesakes), *elsewhere} and tested <= set(TABLE)
