"""What a user's mistake is answered with: the words, and the line of the user's file."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from numba import float32, int64

from miniflow.hostcuda import KernelArgumentError, UnsupportedKernelError, cuda
from miniflow.hostcuda import check as checks

HERE = Path(__file__).name


def line_of(kernel, text):
    """The number of the only line of a kernel that contains a text."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    (found,) = [first + number for number, line in enumerate(lines) if text in line]
    return found


def leaves_the_array(kernel, text, words, grid, block, *arguments):
    """IndexError with kernel, line, array, index, block and thread."""
    given = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises(IndexError) as caught:
        kernel[grid, block](*given)
    message = str(caught.value)
    for word in (kernel.__name__, f"{HERE}:{line_of(kernel, text)}", "block", "thread", *words):
        assert word in message, f"{word!r} is not in {message!r}"


@cuda.jit
def forgotten_guard(x, out):
    i = cuda.grid(1)
    out[i] = x[i] + 1


def test_write_and_read_outside():
    leaves_the_array(forgotten_guard, "x[i] + 1", ["x", "100"], 2, 64, np.zeros(100), np.zeros(128))
    leaves_the_array(forgotten_guard, "x[i] + 1", ["out", "100"], 2, 64, np.zeros(128), np.zeros(100))


def test_block_and_thread_are_named():
    with pytest.raises(IndexError, match=r"block \(?1\b.*thread \(?36\b"):
        forgotten_guard[2, 64](cuda.to_device(np.zeros(100)), cuda.to_device(np.zeros(128)))


@cuda.jit
def swapped_axes(a, out):
    x, y = cuda.grid(2)
    if x < out.shape[0] and y < out.shape[1]:
        out[x, y] = a[y, x]


def test_outside_along_one_axis_of_two():
    leaves_the_array(swapped_axes, "a[y, x]", ["a", "3"], 1, (3, 5), np.zeros((3, 5)), np.zeros((3, 5)))


WEIGHTS = [1, 2, 3]


@cuda.jit(device=True)
def magnitude(v):
    if v > 0:
        return v
    return -v


@pytest.mark.few(2)
@pytest.mark.parametrize("check", [False, True])
def test_a_global_list_is_named(check, monkeypatch):
    monkeypatch.setattr(checks, "cached_typing_error", lambda *_: "")

    @cuda.jit(check=check)
    def weighted(out):
        i = cuda.grid(1)
        out[i] = magnitude(i) * WEIGHTS[0]

    with pytest.raises(UnsupportedKernelError, match="weighted: WEIGHTS, a list, .*make it a tuple or a NumPy array"):
        weighted[1, 4](np.zeros(4))


@cuda.jit
def shared_too_small(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t + 1] = t
    cuda.syncthreads()
    out[t] = s[t]


def test_outside_of_a_shared_array():
    leaves_the_array(shared_too_small, "s[t + 1]", ["s", "32"], 1, 32, np.zeros(32))


@cuda.jit
def local_too_small(out):
    a = cuda.local.array(4, int64)
    t = cuda.threadIdx.x
    for k in range(5):
        a[k] = k
    out[t] = a[0]


def test_outside_of_a_local_array():
    leaves_the_array(local_too_small, "a[k] = k", ["a", "4"], 1, 32, np.zeros(32))


@cuda.jit
def local_of_lanes_too_small(out):
    a = cuda.local.array(4, int64)
    t = cuda.threadIdx.x
    for k in range(4):
        a[k] = t
    a[cuda.shfl_sync(-1, t, 0) + 4] = 1
    out[t] = a[0]


def test_outside_of_a_local_array_of_lanes():
    leaves_the_array(local_of_lanes_too_small, "a[cuda.shfl_sync(-1, t, 0) + 4]", ["a", "4"], 1, 32, np.zeros(32))


@cuda.jit
def below_zero(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t - 9]


def test_negative_index_beyond_the_start():
    leaves_the_array(below_zero, "x[t - 9]", ["x", "-9"], 1, 8, np.zeros(8), np.zeros(8))


@cuda.jit
def atomic_outside(x, counts):
    t = cuda.threadIdx.x
    cuda.atomic.add(counts, x[t], 1)


def test_atomic_outside():
    leaves_the_array(atomic_outside, "atomic.add", ["counts", "7"], 1, 8, np.arange(8), np.zeros(7, np.int32))


@cuda.jit(device=True)
def element(a, k):
    return a[k]


@cuda.jit
def outside_in_a_device_function(x, out):
    t = cuda.threadIdx.x
    out[t] = element(x, t)


def test_outside_in_a_device_function():
    x, out = cuda.to_device(np.zeros(7)), cuda.to_device(np.zeros(8))
    place = f"{HERE}:{line_of(element, 'return a')}"
    with pytest.raises(IndexError, match=f"{re.escape(place)}.*7|7.*{re.escape(place)}"):
        outside_in_a_device_function[1, 8](x, out)


@cuda.jit
def indirect_outside(index, x, out):
    t = cuda.threadIdx.x
    out[t] = x[index[t]]


def test_index_from_an_array():
    leaves_the_array(
        indirect_outside, "x[index[t]]", ["x", "50"], 1, 4, np.array([0, 1, 50, 2]), np.zeros(8), np.zeros(4)
    )


def test_bounds_checks_can_be_left_out():
    @cuda.jit(boundscheck=False)
    def inside(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    x = cuda.to_device(np.zeros(5))
    inside[1, 32](x)
    np.testing.assert_array_equal(x.copy_to_host(), np.ones(5))


def test_a_short_circuit_guards():
    @cuda.jit
    def guarded(x, out):
        i = cuda.grid(1)
        out[i] = x[i] if i < x.size and x[i] > 0 else -1

    out = cuda.to_device(np.zeros(32))
    guarded[1, 32](cuda.to_device(np.arange(5.0)), out)
    np.testing.assert_array_equal(out.copy_to_host(), [-1, 1, 2, 3, 4] + [-1] * 27)


# Refused: no GPU could.


def allocates(x):
    buffer = np.zeros(4)
    x[cuda.grid(1)] = buffer[0]


def appends(x):
    found = []
    found.append(x[0])
    x[cuda.grid(1)] = found[0]


def multiplies_an_array(x):
    y = x * 2
    x[cuda.grid(1)] = y[0]


def draws(x):
    x[cuda.grid(1)] = np.random.rand()


def collects_a_set(x):
    seen = {1, 2}
    x[cuda.grid(1)] = 1 if 1 in seen else 0


def uses_a_dict(x):
    table = {1: 2}
    x[cuda.grid(1)] = table[1]


def comprehends(x):
    values = [k * 2 for k in range(4)]
    x[cuda.grid(1)] = values[0]


def opens_a_file(x):
    with open("x") as file:
        x[cuda.grid(1)] = len(file.read())


def sorts(x):
    x[cuda.grid(1)] = np.sort(x)[0]


def sums_an_array(x):
    x[cuda.grid(1)] = np.sum(x)


def yields(x):
    x[cuda.grid(1)] = 1
    yield


def formats(x):
    text = "%d" % x[0]  # noqa: UP031
    x[cuda.grid(1)] = len(text)


REFUSED = [
    (allocates, "np.zeros(4)", "np.zeros|numpy.zeros"),
    (appends, "found", r"list|append|\[\]"),
    (multiplies_an_array, "x * 2", r"\*|array"),
    (draws, "np.random", "random"),
    (collects_a_set, "{1, 2}", "set"),
    (uses_a_dict, "{1: 2}", "dict"),
    (comprehends, "[k * 2", "comprehension|list"),
    (opens_a_file, "open", "with|open"),
    (sorts, "np.sort", "sort"),
    (sums_an_array, "np.sum", "sum"),
    (yields, "yield", "yield|generator"),
    (formats, '"%d"', "%|str"),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("function, text, words", REFUSED, ids=[function.__name__ for function, _, _ in REFUSED])
def test_refused_by_name_and_line(function, text, words):
    lines, first = inspect.getsourcelines(function)
    numbers = [first + number for number, line in enumerate(lines) if text in line]
    with pytest.raises(UnsupportedKernelError, match=words) as caught:
        cuda.jit(function)[1, 32](cuda.to_device(np.zeros(32)))
    assert any(f"{HERE}:{number}" in str(caught.value) for number in numbers), str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3, str(caught.value)


# Mistakes that numba finds: one line, which is the user's.


def too_many_indices(x):
    i = cuda.grid(1)
    x[i, 0] = 1


def float_index(x):
    i = cuda.grid(1)
    x[i / 2] = 1


def unpacks_a_number(x):
    i, j = cuda.grid(1)
    x[i] = j


def misspelled(x):
    i = cuda.gird(1)
    x[i] = 1


def undefined_name(x):
    x[cuda.grid(1)] = undefined_thing  # noqa: F821


def boolean_plus_string(x):
    x[cuda.grid(1)] = 1 + "a"


MISTAKES = [
    (too_many_indices, "x[i, 0]"),
    (float_index, "x[i / 2]"),
    (unpacks_a_number, "i, j ="),
    (misspelled, "gird"),
    (undefined_name, "undefined_thing"),
    (boolean_plus_string, '"a"'),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("function, text", MISTAKES, ids=[function.__name__ for function, _ in MISTAKES])
def test_a_mistake_is_told_in_the_users_line(function, text):
    kernel = cuda.jit(function)
    place = f"{HERE}:{line_of(kernel, text)}"
    with pytest.raises(
        (UnsupportedKernelError, TypeError, NameError, AttributeError), match=re.escape(place)
    ) as caught:
        kernel[1, 32](cuda.to_device(np.zeros(32)))
    assert len(str(caught.value).splitlines()) <= 3, str(caught.value)
    assert ".cache" not in str(caught.value)


def test_a_plain_function_is_no_kernel():
    with pytest.raises(KernelArgumentError, match="got <function misspelled.* write @cuda.jit above the function"):
        checks.launch(misspelled, [np.zeros(3)], 1, 1)
