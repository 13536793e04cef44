"""What a kernel may not do is refused with its line and what to do, never by an error of Python's or numba's."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from expectations import Table, blank
from numba import float32, int32

from miniflow.hostcuda import UnsupportedKernelError, cuda
from miniflow.hostcuda import check as checks

CASES = Table()
X, T = np.arange(1, 9, dtype=np.float32), np.arange(8)
LIST, CONFIG, SIZES, N = [1, 2, 3], {"a": 3}, (), 4
RECORD = np.dtype([("a", np.float32), ("b", np.int32)])
plus = lambda a: a + 1  # noqa: E731


@cuda.jit(device=True)
def product(a, b=2):
    return a * b


# Arrays without dims.


@CASES.launch(1, 8, blank(8, np.int32), gives=T + 3)
def local_array_without_dims(out):
    i = cuda.grid(1)
    c = cuda.local.array((), int32)
    c[()] = 3
    c[()] += i
    out[i] = c[()]


@CASES.launch(1, 8, blank(8, np.int32), gives=T * 10 + 1)
def local_array_without_dims_across_a_barrier(out):
    i = cuda.grid(1)
    c = cuda.local.array(SIZES, int32)
    c[()] = i * 10
    cuda.syncthreads()
    out[i] = c[()] + c.size + c.ndim


LANES = np.arange(32, dtype=np.float32)


@CASES.launch(1, 32, LANES**2, blank(32, np.float32), gives=2 * (LANES + LANES**2 + (LANES.astype(int) ^ 1) ** 2))
def local_array_without_dims_in_a_warp(x, out):
    i = cuda.grid(1)
    c = cuda.local.array((), float32)
    total = float32(0)
    for _ in range(2):
        c[()] = i
        v = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 1)
        c[()] += v
        v = cuda.shfl_xor_sync(0xFFFFFFFF, v, 1)
        total += c[()] + v
    out[i] = total


@CASES.launch(1, 8, blank((2, 8), np.float32), gives=[[8.0] * 8, [4.0] * 8])
def shared_arrays_without_dims(out):
    i = cuda.grid(1)
    count = cuda.shared.array((), int32)
    record = cuda.shared.array((), RECORD)
    if i == 0:
        count[()] = 8
        record[()].a = 4
    cuda.syncthreads()
    out[0, i] = count[()]
    out[1, i] = record[()].a


# Functions.


@CASES.launch(1, 8, X, blank(8, np.float32), gives=X + 1)
def lambda_that_is_called_where_it_stands(x, out):
    i = cuda.grid(1)
    out[i] = (lambda a: a + 1)(x[i])


@CASES.launch(1, 8, X, blank(8, np.float32), gives=(X + 1) * (X + 2) + 3)
def functions_of_one_name_in_two_others(x, out):
    def f(a: float) -> float:
        def h(b):
            return b + 1

        return h(a)

    def g(f):
        def h(b):
            return b + 2

        return h(f)

    i = cuda.grid(1)
    out[i] = f(x[i]) * g(x[i]) + 3


test_compiled, test_checked, test_reference = CASES.tests(default=3)

REFUSED = {}


def refused(words):
    return lambda function: REFUSED.setdefault(function.__name__, (cuda.jit(function), words))


@refused("a lambda as a value .*give it one name, as in `f = lambda x: x . 1`, and call that")
def lambda_as_argument(x, out):
    out[0] = max(x[0], x[1], key=lambda a: -a)  # here


@refused("a lambda as a value")
def lambda_of_two_names(x, out):
    f = g = lambda a: a * 2  # here
    out[0] = f(x[0]) + g(x[0])


@refused("a lambda as a value")
def lambda_that_is_chosen(x, out):
    f = (lambda a: a * 2) if N > 3 else (lambda a: a + 2)  # here
    out[0] = f(x[0])


@refused("a call of the plain function <lambda> .*decorate it")
def lambda_from_outside(x, out):
    out[0] = plus(x[0])  # here


@refused("a second function f .*give it another name")
def function_in_two_branches(x, out):
    if N > 3:

        def f(a):
            return a + 1
    else:

        def f(a):  # here
            return a + 2

    out[0] = f(x[0])


@refused("the function f as a value .*call it by this name")
def function_of_another_name(x, out):
    def f(a):
        return a

    g = f  # here
    out[0] = g(x[0])


@refused("the function product as a value .*call it by this name")
def device_function_that_is_chosen(x, out):
    f = product if N > 3 else plus  # here
    out[0] = f(x[0])


@refused("a call of f in or before its definition .*define it outside")
def function_that_calls_itself(x, out):
    def f(a):
        return 1 if a <= 0 else a * f(a - 1)  # here

    out[0] = f(3)


@refused("a call of f in or before its definition")
def function_before_its_definition(x, out):
    out[0] = f(3)  # here  # noqa: F821

    def f(a):
        return a


@refused("a call of h in or before its definition")
def function_of_another_function(x, out):
    def f(a):
        def h(b):
            return b

        return h(a)

    out[0] = f(x[0]) + h(x[0])  # here  # noqa: F821


@refused("a parameter list with .*name each parameter")
def function_of_any_arguments(x, out):
    def f(*a):  # here
        return a[0]

    out[0] = f(x[0])


@refused("a parameter list with")
def function_with_a_keyword(x, out):
    def f(a, *, b):  # here
        return a + b

    out[0] = f(x[0], b=2)


@refused("a parameter list with")
def function_without_keywords(x, out):
    def f(a, /):  # here
        return a

    out[0] = f(x[0])


@refused(r"\*\* in a call of product .*name each argument")
def keywords_from_a_dict(x, out):
    out[0] = product(**CONFIG)  # here


# The whole of arrays, and other values.


@refused("a condition that is the whole array x .*write x.i.")
def array_as_condition(x, out):
    if x:  # here
        out[0] = 1


@refused("a condition that is the whole array x")
def array_in_a_condition(x, out):
    out[0] = 1 if x and N > 3 else 2  # here


@refused("a comparison of the whole array x")
def array_compared(x, out):
    out[0] = x[x > 2][0]  # here


@refused("arithmetic on the whole array x")
def array_negated(x, out):
    y = -x  # here
    out[0] = y[0]


@refused("LIST, a list, .*make it a tuple or a NumPy array")
def list_from_outside(x, out):
    out[0] = LIST[1]  # here


@refused("CONFIG, a dict, .*make it a tuple or a NumPy array")
def dict_from_outside(x, out):
    out[0] = CONFIG["a"]  # here


@refused("cuda.atomic.add of 2 arguments .*it takes 3")
def atomic_without_a_value(x, out):
    cuda.atomic.add(out, 0)  # here


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, monkeypatch):
    monkeypatch.setattr(checks, "cached_typing_error", lambda *_: "")  # of numba-cuda, which would be told instead
    kernel, words = REFUSED[case]
    lines, first = inspect.getsourcelines(kernel.py_func)
    (line,) = [number for number, text in enumerate(lines, first) if "# here" in text]
    for checked in (kernel, cuda.jit(check=True)(kernel.py_func)):
        with pytest.raises(UnsupportedKernelError, match=f"{Path(__file__).name}:{line}: {case}: {words}"):
            checked[1, 1](cuda.to_device(X), cuda.to_device(X))


class Todo(NotImplementedError):
    """What an exercise raises until it is done."""


def test_a_kernel_that_is_not_written_says_so_at_the_launch():
    def unfinished(x, out):
        raise Todo("write the kernel")

    for kernel in (cuda.jit(unfinished), cuda.jit(check=True)(unfinished)):
        with pytest.raises(Todo, match="write the kernel"):
            kernel[1, 1](cuda.to_device(X), cuda.to_device(X))


def test_what_is_too_deep(tmp_path, monkeypatch):
    text = "from miniflow.hostcuda import cuda\n\n@cuda.jit\ndef deep(x):\n    x[0] = " + " + ".join(["x[0]"] * 900)
    (tmp_path / "deep_kernel.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import deep_kernel

    words = r"deep_kernel.py:3: deep: cannot be compiled \(RecursionError: .*\): split its long or deeply nested"
    with pytest.raises(UnsupportedKernelError, match=words):
        deep_kernel.deep[1, 1](cuda.to_device(X))


def test_errors_of_numba_are_told_of_the_kernel(monkeypatch):
    from miniflow.hostcuda import compile as compiler

    def broken(tree, compilation):
        raise KeyError("no such thing")

    monkeypatch.setattr(compiler, "split_live_ranges", broken)
    words = re.escape("fresh: cannot be compiled (KeyError: 'no such thing'): write it with simpler statements")

    @cuda.jit
    def fresh(x):
        x[0] = 1

    with pytest.raises(UnsupportedKernelError, match=words):
        fresh[1, 1](cuda.to_device(X))
