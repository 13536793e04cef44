"""`cuda.libdevice`: conversions, bits, arithmetic that is rounded by name, inverses of erf; each by its definition."""

import itertools
import math
import struct

import numpy as np
import pytest

from miniflow.hostcuda import cuda
from miniflow.hostcuda.host import libdevice

F = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3.7, -3.7, 1e6, 123456.5, 7e8]
WIDE = [3e9, -3e9, 1e20, -1e20, math.inf, -math.inf]
I = [0, 1, -1, 7, -8, 123456, -654321, 2**31 - 1, -(2**31)]  # noqa: E741
LIMITS = {"int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1), "ll": (-(2**63), 2**63 - 1), "ull": (0, 2**64 - 1)}
MODES = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def signed(value, bits):
    """The signed integer with the low bits of a number."""
    value %= 2**bits
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def kernel_of(tmp_path, names, arity):
    """A kernel that puts what each function gives into a row of its own."""
    given = ", ".join(f"x{i}[t]" for i in range(arity))
    lines = [f"    out{row}[t] = libdevice.{name}({given})\n" for row, name in enumerate(names)]
    parameters = ", ".join([*(f"x{i}" for i in range(arity)), *(f"out{row}" for row in range(len(names)))])
    path = tmp_path / f"rows_{names[0]}.py"
    path.write_text(f"def kernel({parameters}):\n    t = cuda.threadIdx.x\n{''.join(lines)}")
    namespace = {"cuda": cuda, "libdevice": libdevice}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return cuda.jit(boundscheck=False)(namespace["kernel"])  # else each expression is compiled twice


def check(tmp_path, functions, arguments, dtype, tolerance=0.0):
    """`functions`: name -> its definition for numbers; the arguments are those of one thread after the other."""
    arrays = [np.array(column) for column in zip(*arguments, strict=True)]
    outs = [np.zeros(len(arguments), dtype) for _ in functions]
    kernel_of(tmp_path, list(functions), len(arrays))[1, len(arguments)](*arrays, *outs)
    for (name, definition), out in zip(functions.items(), outs, strict=True):
        expected = np.array([definition(*given) for given in arguments], dtype)
        np.testing.assert_allclose(out, expected, rtol=tolerance, atol=0, err_msg=name)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(expected[zero]), err_msg=name)


@pytest.mark.parametrize("source", ["float", "double"])
def test_conversions_to_integers_round_and_saturate(tmp_path, source):
    single = np.float32 if source == "float" else np.float64

    def definition(target, rounding):
        low, high = LIMITS[target]
        bits = 64 if target.endswith("ll") else 32

        def convert(x):
            whole = rounding(single(x))
            return signed(min(max(int(whole), low), high) if np.isfinite(whole) else low if whole < 0 else high, bits)

        return convert

    functions = {f"{source}2{t}_{m}": definition(t, MODES[m]) for t, m in itertools.product(LIMITS, MODES)}
    check(tmp_path, functions, [(single(x),) for x in F + WIDE], np.int64)


def test_conversions_between_other_types(tmp_path):
    kinds = {"float": np.float32, "double": np.float64}
    functions = {f"{t}2{f}_rn": kinds[f] for t in ("int", "ll") for f in kinds}
    functions |= {f"uint2{f}_rn": lambda i, f=f: kinds[f](i % 2**32) for f in kinds}
    functions |= {f"ull2{f}_rn": lambda i, f=f: kinds[f](i % 2**64) for f in kinds}
    check(tmp_path, functions, [(i,) for i in I], np.float64)
    bits = {
        "float_as_int": lambda x: struct.unpack("i", struct.pack("f", x))[0],
        "double_as_longlong": lambda x: struct.unpack("q", struct.pack("d", x))[0],
        "float2half_rn": lambda x: int(np.float16(x).view(np.int16)),
    }
    check(tmp_path, bits, [(x,) for x in (0.1, -0.0, 1 / 3, -1e4, 6e4)], np.int64)
    back = {
        "int_as_float": lambda i: np.int32(i).view(np.float32),
        "longlong_as_double": lambda i: np.int64(i).view(np.float64),
        "half2float": lambda i: np.int16(i).view(np.float16),
        "double2float_rn": np.float32,
    }
    check(tmp_path, back, [(i,) for i in (0, 1, 15360, -15360, 27000)], np.float64)


def test_integer_arithmetic(tmp_path):
    functions = {
        "mulhi": lambda a, b: a * b >> 32,
        "umulhi": lambda a, b: signed(a % 2**32 * (b % 2**32) >> 32, 32),
    }
    check(tmp_path, functions, list(itertools.product(I, I)), np.int64)


@pytest.mark.parametrize("single", [np.float32, np.float64])
def test_float_arithmetic(tmp_path, single):
    f, prefix = ("f", "f") if single is np.float32 else ("", "d")
    binary = {
        f"{prefix}add_rn": lambda x, y: single(x) + single(y),
        f"{prefix}sub_rn": lambda x, y: single(x) - single(y),
        f"{prefix}mul_rn": lambda x, y: single(x) * single(y),
    }
    binary.pop("dsub_rn", None)  # which CUDA forgot
    check(tmp_path, binary, list(itertools.product(F, [0.3, -7.0, 1e3])), single)
    unary = {
        f"round{f}": lambda x: (
            math.copysign(math.floor(abs(float(single(x))) + 0.5), x) if abs(x) != 0.49999997 else 0.0
        ),
        f"llround{f}": lambda x: math.copysign(math.floor(abs(x) + 0.5), x) + 0.0 if abs(x) != 0.49999997 else 0.0,
        f"llrint{f}": lambda x: np.rint(single(x)) + 0.0,
    }
    check(tmp_path, unary, [(x,) for x in F], single)
    positive = {
        f"normcdf{f}": lambda x: math.erfc(-float(single(x)) / math.sqrt(2)) / 2,
    }
    check(tmp_path, positive, [(x,) for x in (0.3, 7.0, -2.5, 30.0)], single, 1e-15 if f == "" else 2e-7)
    scaled = {f"{n}{f}": lambda x, n: single(x) * 2.0**n for n in ("ldexp", "scalbn")}
    scaled[f"powi{f}"] = lambda x, n: single(float(single(x)) ** n)
    check(tmp_path, scaled, [(x, n) for x in (0.3, -7.5) for n in (-3, 0, 5)], single, 1e-15 if f == "" else 2e-7)


def test_functions_of_float32_alone(tmp_path):
    check(
        tmp_path,
        {"saturatef": lambda x: 0.0 if math.isnan(x) else min(max(x, 0), 1)},
        [(0.25,), (0.75,), (3.0,), (-1.0,), (math.nan,)],
        np.float32,
    )
    check(tmp_path, {"fast_fdividef": lambda x, y: x / y}, [(1.0, 4.0), (3.0, -0.5)], np.float32)


def test_products_rounded_by_name_are_not_contracted():
    @cuda.jit(boundscheck=False)
    def kernel(x, y, z, out):
        t = cuda.threadIdx.x
        out[0, t] = libdevice.fadd_rn(libdevice.fmul_rn(x[t], y[t]), z[t])
        out[1, t] = libdevice.fmul_rn(x[t], y[t]) + z[t]

    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    out = np.zeros((2, 64), np.float32)
    kernel[1, 64](x, x, -x * x, out)
    np.testing.assert_array_equal(out, 0)


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_the_inverse_of_the_error_function(tmp_path, single):
    f, dtype = ("f", np.float32) if single else ("", np.float64)
    x = np.array([0.0, 1e-30, 1e-9, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999, 0.9999999], dtype)
    out = np.zeros((2, x.size), dtype)
    inverse = getattr(libdevice, "erfinv" + f)

    @cuda.jit(boundscheck=False)
    def kernel(x, out):
        t = cuda.threadIdx.x
        if t < x.size:
            out[0, t] = inverse(x[t])
            out[1, t] = inverse(-x[t])

    kernel[1, 32](x, out)
    np.testing.assert_array_equal(out[0], -out[1])
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    expected = [float(mpmath.erfinv(mpmath.mpf(float(v)))) for v in x]
    tolerance = 2e-7 if single else 1e-13
    np.testing.assert_allclose(out[0], expected, rtol=tolerance)


def test_ends_of_the_inverse():
    @cuda.jit(boundscheck=False)
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[t] = libdevice.erfinv(x[t])

    out = np.zeros(4)
    kernel[1, 4](np.array([1.0, -1.0, 1.5, math.nan]), out)
    np.testing.assert_array_equal(out, [math.inf, -math.inf, math.nan, math.nan])


def test_functions_with_two_results():
    @cuda.jit(boundscheck=False)
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[0, t], out[1, t] = libdevice.sincos(x[t])
        out[2, t], out[3, t] = libdevice.frexp(x[t])
        out[4, t], out[5, t] = libdevice.modf(x[t])
        sine, cosine = libdevice.sincosf(x[t])
        out[6, t] = sine * cosine

    x, out = np.array([0.3, -1.75, 40.5]), np.zeros((7, 3))
    kernel[1, 3](x, out)
    fraction, exponent = np.frexp(x)
    expected = [np.sin(x), np.cos(x), fraction, exponent, np.modf(x)[0], np.trunc(x)]
    np.testing.assert_allclose(out[:6], expected, rtol=1e-15)
    np.testing.assert_allclose(out[6], np.sin(2 * x) / 2, rtol=1e-5)
