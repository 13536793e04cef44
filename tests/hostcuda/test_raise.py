"""`raise` in kernels, and functions of `operator` and `cmath`, beside what Python says of the same values."""

import cmath
import operator
import re

import numpy as np
import pytest

from miniflow.hostcuda import UnsupportedKernelError
from miniflow.hostcuda import host as cuda


class OwnError(Exception):
    """Not one of Python's."""


LIMIT = "too large"


def test_with_debug_the_launch_raises_and_names_line_block_and_thread():
    @cuda.jit(debug=True, opt=False)
    def kernel(x):
        i, j = cuda.grid(2)
        if x[i, j] == 7:
            raise ValueError(LIMIT, 7)
        x[i, j] += 1

    for options in ({}, {"boundscheck": False}, {"check": True}):
        checked = cuda.jit(debug=True, **options)(kernel.py_func)
        x = cuda.to_device(np.arange(64.0).reshape(8, 8) % 13 + 10 * (np.arange(64).reshape(8, 8) > 10))
        line = kernel.py_func.__code__.co_firstlineno + 4
        place = re.escape(f"{__file__}:{line}: kernel: too large; block (0, 1, 0), thread (0, 3, 0)")
        x[0, 7] = 7
        with pytest.raises(ValueError, match=place) as caught:
            checked[(2, 2), (4, 4)](x)
        assert caught.value.args[1] == 7


ASSERTS = """
def kernel(x, which):
    if which == 0:
        raise OwnError
    if which == 1:
        raise KeyError()
    assert which == 2, "expected 2"
    x[0] = 1
    assert x[0] == 2
"""


@pytest.mark.parametrize(
    ("which", "kind", "words"),
    [(0, OwnError, "kernel; block"), (1, KeyError, "kernel; block"), (3, AssertionError, "kernel: expected 2; block"),
     (2, AssertionError, r":9: kernel; block \(0, 0, 0\), thread \(0, 0, 0\)")],
)  # fmt: skip
def test_every_way_to_raise(tmp_path, which, kind, words):
    path = tmp_path / "asserts.py"  # in a file of tests, pytest rewrites assertions
    path.write_text(ASSERTS)
    namespace = {"OwnError": OwnError}
    exec(compile(ASSERTS, str(path), "exec"), namespace)
    kernel, x = cuda.jit(debug=True)(namespace["kernel"]), cuda.to_device(np.zeros(1))
    with pytest.raises(kind, match=words):
        kernel[1, 1](x, which)
    assert x[0] == (which == 2)


@pytest.mark.parametrize("check", [False, True])
def test_without_debug_the_thread_ends(check):
    @cuda.jit(check=check)
    def kernel(x, y):
        tile = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        cuda.syncthreads()
        for k in range(3):
            if x[i] == k * 10:
                raise ValueError("three threads end here")
        y[i] = tile[63 - i]

    x, y = np.arange(64, dtype=np.float32), cuda.to_device(np.full(64, -1, np.float32))
    kernel[1, 64](cuda.to_device(x), y)
    np.testing.assert_array_equal(y, np.where(np.isin(x, (0, 10, 20)), -1, x[::-1]))


def test_what_cannot_be_raised_is_refused():
    @cuda.jit(device=True)
    def device(x):
        if x < 0:
            raise ValueError("negative")
        return x

    @cuda.jit
    def calls_it(x):
        x[0] = device(x[0])

    @cuda.jit(debug=True)
    def number(x):
        raise ValueError(f"x is {x[0]}")

    @cuda.jit(debug=True)
    def no_class(x):
        raise x

    for kernel, words in (
        (calls_it, "raise in a device function is not supported in a kernel: numba.cuda has it in kernels only"),
        (number, r"what an exception says, given by f'x is \{x\[0\]\}' is not supported.*must be a constant"),
        (no_class, "raise of anything but a class of exceptions"),
    ):
        with pytest.raises(UnsupportedKernelError, match=words):
            kernel[1, 1](cuda.to_device(np.zeros(1)))


def test_only_what_no_gpu_has_is_said_to_be_so():
    @cuda.jit
    def reads(x):
        x[0] = open(3)

    @cuda.jit
    def sorts(x):
        x[0] = sorted(x)[0]

    x = cuda.to_device(np.zeros(1))
    with pytest.raises(UnsupportedKernelError, match="open, which no GPU has, is not supported in a kernel"):
        reads[1, 1](x)
    with pytest.raises(UnsupportedKernelError, match=": sorts: sorted is not supported in a kernel: compute with"):
        sorts[1, 1](x)


# The functions that numba.cuda's documentation lists

BOTH = "add and_ floordiv lshift mod mul or_ rshift sub truediv xor pow".split()
IN_PLACE = [f"i{name.rstrip('_')}" for name in BOTH]
UNARY = "invert neg not_ pos".split()
OPERATORS = [*BOTH, *IN_PLACE, *"eq ge gt le lt ne".split(), *UNARY]
assert len(OPERATORS) == 34


def kernel_of(tmp_path, module, names, arguments):
    """A kernel that puts what each function gives for a thread's arguments into a row of `out`."""
    rows = "".join(
        f"    out[{row}, i] = {module.__name__}.{name}({arguments[name]})\n" for row, name in enumerate(names)
    )
    path = tmp_path / f"{module.__name__}_functions.py"
    path.write_text(f"def kernel(a, b, out):\n    i = cuda.grid(1)\n{rows}")
    namespace = {"cuda": cuda, module.__name__: module}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return cuda.jit(namespace["kernel"])


def test_functions_of_operator(tmp_path):
    arguments = {name: "a[i]" if name in UNARY else "a[i], b[i]" for name in OPERATORS}
    a, b = np.array([7, -9, 0, 12]), np.array([2, 3, 5, 1])
    out = np.full((len(OPERATORS), 4), np.nan)
    kernel_of(tmp_path, operator, OPERATORS, arguments)[1, 4](a, b, out)
    for name, row in zip(OPERATORS, out, strict=True):
        function = getattr(operator, name)
        given = zip(a.tolist()) if name in UNARY else zip(a.tolist(), b.tolist(), strict=True)
        np.testing.assert_allclose(row, [function(*values) for values in given], rtol=1e-12, err_msg=name)


CMATH = """
    acos acosh asin asinh atan atanh cos cosh exp isfinite isinf isnan log log10 phase polar rect sin sinh sqrt tan tanh
""".split()
assert len(CMATH) == 22


def test_functions_of_cmath(tmp_path):
    arguments = {name: "a[i]" for name in CMATH} | {"rect": "abs(a[i]), b[i]"}
    names = [name for name in CMATH if name != "polar"]
    a, b = np.array([0.3 + 0.4j, -1.2 + 0.1j, 2 - 3j, np.inf + 1j]), np.array([0.5, 2, -1, 0.25])
    out = np.full((len(names), 3), np.nan, np.complex128)
    kernel_of(tmp_path, cmath, names, arguments)[1, 3](a, b, out)
    for name, row in zip(names, out, strict=True):
        given = [(abs(x), y) if name == "rect" else (x,) for x, y in zip(a.tolist(), b.tolist(), strict=True)][:3]
        np.testing.assert_allclose(row, [getattr(cmath, name)(*v) for v in given], rtol=1e-12, err_msg=name)

    @cuda.jit
    def rest(a, out):
        i = cuda.grid(1)
        length, angle = cmath.polar(a[i])
        out[0, i], out[1, i] = length, angle
        out[2, i], out[3, i], out[4, i] = cmath.isinf(a[i]), cmath.isfinite(a[i]), cmath.pi

    out = np.full((5, 4), np.nan)
    rest[1, 4](a, out)
    pairs = np.array([cmath.polar(x) for x in a.tolist()]).T
    np.testing.assert_allclose(out, [*pairs, np.isinf(a), np.isfinite(a), [cmath.pi] * 4], rtol=1e-12)
