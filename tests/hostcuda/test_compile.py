"""The compiler's own promises: readable text, caches, clear refusals, cooperative grids."""

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import float32, int64

from miniflow.hostcuda import UnsupportedKernelError, cuda

draw = np.random.default_rng(4)


@cuda.jit(boundscheck=False)
def tiled(a, b, c):
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    total = float32(0)
    for t in range((a.shape[1] + 7) // 8):
        k = t * 8 + x
        left[y, x] = a[row, k] if row < a.shape[0] and k < a.shape[1] else 0
        k = t * 8 + y
        right[y, x] = b[k, col] if k < b.shape[0] and col < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(8):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def test_the_generated_text_is_a_lesson():
    a, b = draw.normal(size=(9, 17)).astype(np.float32), draw.normal(size=(17, 11)).astype(np.float32)
    c = np.full((9, 11), np.nan, np.float32)
    tiled[(2, 2), (8, 8)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)
    text = tiled.inspect_host()
    line = tiled.py_func.__code__.co_firstlineno
    for part in (
        "total_of = stack((1040,), np.float32)",
        f"left = stack((8, 8), np.float32)  # shared, line {line + 2}",
        f"# cuda.syncthreads of line {line + 12}",
        "for threadIdx_x in range(blockDim_x):",
        "total += left[unsigned(y), unsigned(k_1)] * right[unsigned(k_1), unsigned(x)]",
        "for threadIdx_y in range(min(blockDim_y, c.shape[0] - blockIdx_y * blockDim_y)):",
        "for threadIdx_x in range(min(blockDim_x, c.shape[1] - blockIdx_x * blockDim_x)):",
    ):
        assert part in text, part


PROGRAM = """
import time, sys
import numpy as np
from miniflow.hostcuda import cuda

@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

x = cuda.to_device(np.ones(100))
scale[1, 128](x, 3)
import numba.core.event as event
assert (x.copy_to_host() == 3).all()
from miniflow.hostcuda import compile as c
print(sorted(p.name for p in c.cache_folder().rglob("*")))
from numba.core.runtime import rtsys
print("compiled", scale_compiled, rtsys._init, "numba.np.arrayobj" in sys.modules)
"""


def run_program(path: Path, folder: Path) -> str:
    """Run a program in a process of its own; what it says of the cache, and of what numba compiled and prepared."""
    counting = textwrap.dedent(
        """
        import numba.core.compiler as compiler
        scale_compiled = 0
        original = compiler.CompilerBase._compile_bytecode
        def counted(self):
            global scale_compiled
            scale_compiled += 1
            return original(self)
        compiler.CompilerBase._compile_bytecode = counted
        """
    )
    path.write_text(counting + PROGRAM)
    environment = os.environ | {"MINIFLOW_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_process_compiles_nothing(tmp_path):
    first = run_program(tmp_path / "program.py", tmp_path / "cache")
    second = run_program(tmp_path / "program.py", tmp_path / "cache")
    assert "compiled 0" not in first
    assert second.splitlines()[-1] == "compiled 0 False False"  # nor numba's runtime, which takes 15 ms
    assert second.splitlines()[0] == first.splitlines()[0]


@cuda.jit
def with_list(x):
    values = [1, 2]
    x[0] = values[0]


@cuda.jit
def with_try(x):
    try:
        x[0] = 1
    except ZeroDivisionError:
        x[0] = 2


@cuda.jit
def with_undefined_name(x):
    x[0] = nowhere  # noqa: F821


@cuda.jit
def with_variable_shape(x, n):
    room = cuda.shared.array(n, float32)
    room[0] = x[0]


@cuda.jit
def with_plain_function(x):
    x[0] = helper_of_the_host(1)


def helper_of_the_host(v):
    return v


@cuda.jit
def with_array_across_barrier(x, y):
    row = x[0]
    for k in range(2):
        if y[k] > 0:
            row = x[k]
        cuda.syncthreads()
        y[k] = row[0]


@cuda.jit
def with_half_a_shuffle(x):
    x[0] = cuda.shfl_sync(0xFFFFFFFF, x[0])


@cuda.jit
def with_keyword_arguments(x, **more):
    x[0] = 1


REFUSALS = [
    (with_half_a_shuffle, "cuda.shfl_sync of 2 arguments is not supported in a kernel: it takes 3", 2),
    (with_list, "a list is not supported in a kernel", 2),
    (with_try, "try is not supported in a kernel", 2),
    (with_undefined_name, "the undefined name nowhere is not supported", 2),
    (
        with_plain_function,
        r"a call of the plain function helper_of_the_host .*: decorate it: @cuda.jit\(device=True\)",
        2,
    ),
]


@pytest.mark.parametrize("kernel, message, offset", REFUSALS, ids=lambda v: getattr(v, "__name__", ""))
def test_unsupported_constructs_are_named_with_their_line(kernel, message, offset):
    line = kernel.py_func.__code__.co_firstlineno + offset
    with pytest.raises(UnsupportedKernelError, match=rf"test_compile.py:{line}: {kernel.py_func.__name__}: {message}"):
        kernel[1, 32](np.zeros((4, 4)))


def test_shapes_of_shared_arrays_are_constants():
    with pytest.raises(UnsupportedKernelError, match="the shape of cuda.shared.array given by n .* must be a constant"):
        with_variable_shape[1, 32](np.zeros(4), 3)


def test_a_view_that_cannot_be_kept_is_refused():
    with pytest.raises(UnsupportedKernelError, match=r"the variable row holds array.* across a barrier"):
        with_array_across_barrier[1, 32](np.zeros((4, 4)), np.zeros(4))


@cuda.jit
def row_given_by_memory(buf, sel, out):
    t = cuda.threadIdx.x
    row = buf[sel[0]]
    cuda.syncthreads()
    if t == 0:
        sel[0] = 1
    cuda.syncthreads()
    out[t] = row[t]


@cuda.jit
def row_given_by_a_counter(buf, sel, out):
    t = cuda.threadIdx.x
    row = buf[cuda.atomic.add(sel, 0, 1) % 2]
    row[t] = t
    cuda.syncthreads()
    out[t] = row[t]


@cuda.jit(device=True)
def selected_row(buf, sel):
    if sel[0] > 0:
        return buf[1]
    return buf[0]


@cuda.jit
def row_given_by_a_device_function(buf, sel, out):
    t = cuda.threadIdx.x
    row = selected_row(buf, sel)
    cuda.syncthreads()
    if t == 0:
        sel[0] = 1
    cuda.syncthreads()
    out[t] = row[t]


@pytest.mark.parametrize(
    "kernel", [row_given_by_memory, row_given_by_a_counter, row_given_by_a_device_function], ids=lambda k: k.__name__
)
def test_a_view_that_depends_on_memory_is_refused_across_a_barrier(kernel):
    with pytest.raises(UnsupportedKernelError, match=r"the variable row holds array.* across a barrier"):
        kernel[1, 32](np.zeros((2, 32)), np.zeros(1, np.int64), np.zeros(32))


@cuda.jit
def row_given_by_a_variable(buf, sel, out):
    t = cuda.threadIdx.x
    at = sel[0]
    row = buf[at, ::-1].T if at > 0 else buf[at]
    cuda.syncthreads()
    if t == 0:
        sel[0] = 1
    cuda.syncthreads()
    out[t] = row[t]


def test_a_view_at_an_index_that_is_kept():
    out = np.zeros(32)
    row_given_by_a_variable[1, 32](np.arange(64.0).reshape(2, 32), np.zeros(1, np.int64), out)
    np.testing.assert_array_equal(out, np.arange(32))


@cuda.jit
def wrong_types(x):
    x[0] = math.sin((1, 2))


def test_what_numba_cannot_type_is_reported_with_the_types():
    with pytest.raises(
        UnsupportedKernelError,
        match=r"wrong_types: numba cannot compile .*Tuple.*; the arguments are \(array\(float64, 1d, C\)\)",
    ):
        wrong_types[1, 1](np.zeros(3))


@cuda.jit
def iterate(x, rounds):
    """All blocks exchange values between rounds."""
    grid = cuda.cg.this_grid()
    room = cuda.shared.array(32, int64)
    i, t = cuda.grid(1), cuda.threadIdx.x
    mine = 0
    for k in range(rounds):
        room[t] = x[(i + 1) % x.size] + k
        grid.sync()
        mine += room[31 - t]
        x[i] = room[t]
        cuda.cg.this_grid().sync()
    x[i] += mine


def test_cooperative_groups():
    x = draw.integers(0, 9, 96)
    state, mine = x.copy(), np.zeros_like(x)
    for k in range(3):
        room = np.roll(state, -1) + k
        mine += room.reshape(3, 32)[:, ::-1].ravel()
        state = room
    iterate[3, 32](x, 3)
    np.testing.assert_array_equal(x, state + mine)


@cuda.jit
def notebook_style(x):
    x[cuda.grid(1)] = 5


def test_kernels_typed_into_a_notebook_cell_are_read(tmp_path):
    import linecache

    source = "@cuda.jit\ndef cell(x):\n    x[cuda.grid(1)] = 5\n"
    name = "<ipython-input-1>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"cuda": cuda}
    exec(compile(source, name, "exec"), space)
    x = np.zeros(4)
    space["cell"][1, 4](x)
    np.testing.assert_array_equal(x, [5] * 4)


def test_debug_tells_of_indices_out_of_bounds():
    kernel = cuda.jit(debug=True, opt=False)(notebook_style.py_func)
    with pytest.raises(IndexError):
        kernel[1, 8](np.zeros(4))


def test_a_file_that_changed_after_the_import_is_noticed(tmp_path):
    import importlib.util

    path = tmp_path / "moved.py"
    text = """
from miniflow.hostcuda import cuda

@cuda.jit
def one(x):
    x[cuda.grid(1)] = 1

@cuda.jit
def two(x):
    x[cuda.grid(1)] = 2
"""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("moved", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.zeros(2)
    module.one[1, 2](x)
    np.testing.assert_array_equal(x, [1, 1])
    path.write_text(text.replace("= 2", "= 3"))
    with pytest.raises(UnsupportedKernelError, match="moved.py:8: what stands there is not two as it was imported"):
        module.two[1, 2](x)
    path.write_text(text.replace("def one(x):\n", "def one(x):\n" + "    x[0] = 1\n" * 4))
    with pytest.raises(UnsupportedKernelError, match="not two as it was imported: the file has changed"):
        module.two[1, 2](x)
