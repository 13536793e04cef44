"""Each pass of the compiler before and after, on kernels of a few lines."""

import ast
import re
import textwrap

import numpy as np
import pytest
from numba import float32

from miniflow.hostcuda import cuda
from miniflow.hostcuda.accesses import CheckedAccess
from miniflow.hostcuda.affine import Affine
from miniflow.hostcuda.aliases import propagate_copies
from miniflow.hostcuda.bounds import Intervals, bounds_conditions
from miniflow.hostcuda.canonicalise import count_with_range
from miniflow.hostcuda.compile import PASSES
from miniflow.hostcuda.constants import propagate_constants
from miniflow.hostcuda.divergence import Divergence
from miniflow.hostcuda.exits import Exits
from miniflow.hostcuda.guards import facts, limits
from miniflow.hostcuda.interchange import interchange
from miniflow.hostcuda.purity import is_pure, is_repeatable
from miniflow.hostcuda.ssa import split_live_ranges
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    THREAD,
    WARP,
    Allocation,
    Compilation,
    Sync,
    expression,
    fold_constants,
    text,
)

BARRIERS = {"warp_barrier": WARP, "barrier": BLOCK}


class Marker(ast.NodeTransformer):
    """`barrier()` in a test's text is a barrier."""

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call) and text(node.value.func) in BARRIERS:
            return Sync(BARRIERS[text(node.value.func)], "syncthreads", None, lineno=node.lineno)
        return node

    def visit_Sync(self, node):
        return ast.parse("barrier()").body[0]


def tree_of(body, parameters="x, n"):
    """A kernel of these statements."""
    tree = ast.parse(f"def kernel({parameters}):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")).body[0]
    return Marker().visit(tree)


def shown(block):
    """The text of statements."""
    return "\n".join(text(Marker().visit(s)) for s in block)


def lines(body):
    return textwrap.dedent(body).strip()


EXITS = {
    "return before the rest": (
        """
        if n < 0:
            return
        barrier()
        """,
        """
        if not n < 0:
            barrier()
        """,
    ),
    "break in a loop around a barrier": (
        """
        while True:
            barrier()
            if x[0] > n:
                break
            barrier()
        """,
        """
        stop = False
        while not stop and True:
            barrier()
            if x[0] > n:
                stop = True
            else:
                barrier()
        """,
    ),
    "return from a loop without barriers": (
        """
        for k in range(n):
            if x[k] == 0:
                return
        barrier()
        """,
        """
        left = False
        for k in range(n):
            if x[k] == 0:
                left = True
                break
        if not left:
            barrier()
        """,
    ),
    "a for loop with continue stays one": (
        """
        for k in range(n):
            if x[k] == 0:
                continue
            barrier()
        """,
        """
        for k in range(n):
            if not x[k] == 0:
                barrier()
        """,
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_exits(name):
    before, after = EXITS[name]
    assert shown(Exits(Compilation("kernel", "")).function(tree_of(before).body)) == lines(after)


def test_constants_are_propagated():
    tree = tree_of("size = 4\nshape = (size, 2 * size)\nk = 0\nk += size\nx[k] = shape[1]")
    assert propagate_constants(tree, {"size", "shape", "k", "x", "n"}, {}) == {"size": 4, "shape": (4, 8)}
    assert shown(tree.body) == "k = 0\nk += size\nx[k] = shape[1]"


def test_live_ranges_get_names_of_their_own():
    tree = tree_of("for k in range(3):\n    x[k] = 0\nfor k in range(n):\n    x[k] = 1\nk = n\nx[n] = k")
    split_live_ranges(tree, Compilation("kernel", "", taken={"k", "x", "n"}))
    assert shown(tree.body) == (
        "for k in range(3):\n    x[k] = 0\nfor k_ in range(n):\n    x[k_] = 1\nk_1 = n\nx[n] = k_1"
    )


def test_a_loop_that_may_not_run_keeps_the_value_before_it():
    tree = tree_of("for k in range(3):\n    x[k] = 0\nfor k in range(n):\n    x[k] = 1\nx[n] = k")
    split_live_ranges(tree, Compilation("kernel", "", taken={"k", "x", "n"}))
    assert {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} == {"range", "k", "x", "n"}


def test_names_of_arrays():
    tree = tree_of("s = shared1\na = local1\nb = local2\nt = a\na = b\nb = t\na[0] = s[0]")
    compilation = Compilation(
        "kernel", "", arrays={n: Allocation("local", (4,), "np.int64", 1, "") for n in ("local1", "local2")}
    )
    compilation.arrays["shared1"] = Allocation("shared", (4,), "np.int64", 1, "s")
    propagate_copies(tree, compilation, set())
    assert shown(tree.body).split("\n") == [
        "a_choice = 0", "b_choice = 1", "t_choice = a_choice", "a_choice = b_choice", "b_choice = t_choice",
        "selected(a_choice, 0, local1, local2)[0] = s[0]",
    ]  # fmt: skip


def test_divergence():
    tree = tree_of(
        """
        w = warp * 2
        b = blockIdx_x + n
        g = n * 2
        m = x[0]
        if threadIdx_x < 3:
            late = 1
        for k in range(n):
            total = k
            barrier()
        while m > 0:
            inner = 0
            barrier()
            m = x[inner]
        x[0] = late
        """
    )
    scope = Divergence(tree, Compilation("kernel", ""), set()).scope
    expected = {"w": WARP, "b": BLOCK, "g": GRID, "m": THREAD, "late": THREAD, "k": GRID, "total": GRID, "inner": BLOCK}
    assert {v: scope[v] for v in expected} == expected


def test_strides_and_signs():
    tree = tree_of("i = blockIdx_x * blockDim_x + threadIdx_x\nj = 3 * i - threadIdx_y\nk = j - n\nx[i] = k")
    affine = Affine(tree, {"n"}, {"n"}, set())
    assert [affine.stride(expression(v), "x") for v in ("i", "j", "k", "n", "x[i]")] == [1, 3, 3, 0, None]
    assert [affine.stride(expression(v), "y") for v in ("i", "j")] == [0, -1]
    assert {"i", "n"} <= affine.natural and not {"j", "k"} & affine.natural


AXIS, ENDS = ["threadIdx_x"], {"threadIdx_x": ("begin_x", "end_x")}


def test_guards_become_ends_of_loops():
    tree = tree_of("pass")
    found = limits(
        [expression("0 < threadIdx_x + 5 <= n and x[threadIdx_x] > 0")], AXIS, Affine(tree, {"n"}, set(), set()), set()
    )
    assert [text(e) for e in found.lower["threadIdx_x"]] == ["0 - (0 + 5) + 1"]
    assert [text(e) for e in found.upper["threadIdx_x"]] == ["n - (0 + 5) + 1"]
    assert [text(e) for e in found.rest] == ["x[threadIdx_x] > 0"]


def test_a_loop_over_the_one_thread_of_an_equality():
    found = limits([expression("n == threadIdx_x + 1")], AXIS, Affine(tree_of("pass"), {"n"}, set(), set()), set())
    assert [text(fold_constants(e)) for e in found.lower["threadIdx_x"]] == ["n - 1"]
    assert [text(fold_constants(e)) for e in found.upper["threadIdx_x"]] == ["n"] and not found.rest


def test_multiples_of_the_thread_end_loops_too():
    affine = Affine(tree_of("pass"), {"d", "n"}, set(), set())
    found = limits([expression("(threadIdx_x + 1) * 2 * d - 1 < n")], AXIS, affine, {"d"})
    (bound,) = found.upper["threadIdx_x"]
    assert text(fold_constants(bound)) == "-(-(n - (2 * d - 1)) // (2 * d)) if 2 * d > 0 else blockDim_x"
    assert [text(e) for e in found.rest] == ["(threadIdx_x + 1) * 2 * d - 1 < n"]  # for d <= 0


@pytest.mark.parametrize("condition", ["n - threadIdx_x < n", "threadIdx_x * threadIdx_x < n", "threadIdx_x // 2 < n"])
def test_what_is_no_multiple_stays_a_condition(condition):
    found = limits([expression(condition)], AXIS, Affine(tree_of("pass"), {"n"}, set(), set()), set())
    assert not found.upper and not found.lower and [text(e) for e in found.rest] == [condition]


def counted(body):
    """The statements after `count_with_range`; n is an integer and x an array."""
    tree = tree_of(body)
    count_with_range(tree, Compilation("kernel", "", taken={"i"}), Affine(tree, {"n"}, {"n"}, set()))
    return shown(tree.body)


def test_a_while_loop_that_counts_up():
    before = """
        i = threadIdx_x
        while i < n:
            x[i] += i
            i += blockDim_x
        """
    after = """
        i = threadIdx_x
        for i1 in range(i, n, blockDim_x):
            x[i1] += i1
        """
    assert counted(before) == lines(after)


@pytest.mark.parametrize(
    "body",
    [
        "i = 0\nwhile i < n:\n    x[i] = 0\n    i += 1\nx[0] = i",  # asked for afterwards
        "i = 0\nwhile i < n:\n    if x[i] > 0:\n        continue\n    i += 1",
        "i = 0\nwhile i < n:\n    n = n - 1\n    i += 1",
        "i = 0\nwhile i < x[0]:\n    x[0] -= 1\n    i += 1",
        "i = 0.5\nwhile i < n:\n    x[0] = i\n    i += 1",
        "i = 0\nwhile i < n:\n    x[i] = 0\n    i += -1",
        "i = 0\nwhile i < n:\n    barrier()\n    i += 1",
        "i = 0\nwhile i < n:\n    i += 2\n    x[i] = 0\n    i += 1",
    ],
)
def test_while_loops_that_stay(body):
    assert counted(body) == body


def test_float_bounds_stay_conditions():
    affine = Affine(tree_of("pass"), set(), set(), set())
    found = limits([expression("threadIdx_x < x.size / 2")], AXIS, affine, set())
    assert not found.upper and [text(e) for e in found.rest] == ["threadIdx_x < x.size / 2"]


def test_interchange_of_a_strided_loop():
    tree = tree_of("for i in range(threadIdx_x, n, blockDim_x):\n    x[i] = 0")
    compilation = Compilation("kernel", "", taken={"i"})
    divergence = Divergence(tree, compilation, set())
    interchange(tree, compilation, divergence, Affine(tree, {"n"}, {"n"}, set()), "x")
    assert shown(tree.body) == lines(
        """
        for i_base in range(0, n, blockDim_x):
            i = i_base + threadIdx_x
            if i < n:
                x[i] = 0
        """
    )
    assert tree.body[0].interchanged == BLOCK


def test_interchange_takes_short_loops_in_strips():
    tree = tree_of("for k in range(n):\n    s += x[k, threadIdx_x]")
    compilation = Compilation("kernel", "", taken={"k", "s"})
    divergence = Divergence(tree, compilation, set())
    interchange(tree, compilation, divergence, Affine(tree, {"n"}, {"n"}, set()), "x")
    assert shown(tree.body) == lines(
        """
        for k_base in range(0, n, 4):
            for k in range(k_base, k_base + 4 if k_base + 4 <= n else n):
                s += x[k, threadIdx_x]
        """
    )
    assert tree.body[0].interchanged == BLOCK


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("value", "pure", "repeatable"),
    [
        ("2 * i + x.shape[0] - np.int64(t[1])", True, True),  # t is a tuple
        ("min(i, n) if i < n else np.pi", True, True),
        ("z.real", True, True),
        ("math.sqrt(v)", True, False),
        ("x[i]", False, False),
        ("device_function(i)", False, False),
        ("record.field", False, False),
        (" + ".join(["i"] * 40), True, False),
    ],
)
def test_what_may_be_computed_again(value, pure, repeatable):
    assert (is_pure(expression(value), {"t"}), is_repeatable(expression(value), {"t"})) == (pure, repeatable)


def test_intervals():
    tree = tree_of("i = 32 * blockIdx_x + threadIdx_x")
    intervals = Intervals(Affine(tree, {"n"}, set(), set()), set(), {"i"}, ENDS, {})
    assert bounds_conditions(expression("x[i]"), intervals, None) == [
        "0 <= 32 * blockIdx_x + begin_x",
        "32 * blockIdx_x + (end_x - 1) < x.shape[0]",
    ]
    assert bounds_conditions(expression("x[i % 8]"), intervals, (8,)) == ["7 < 8"]
    assert bounds_conditions(expression("x[x[i]]"), intervals, None) is None


def test_conditions_bound_indices():
    tree = tree_of("t = threadIdx_x\ni = 32 * blockIdx_x + t")
    affine = Affine(tree, {"n", "d"}, set(), set())
    intervals = Intervals(affine, set(), {"i", "t"}, ENDS, {})
    known = list(facts(expression("t >= d and i < n")))
    assert bounds_conditions(expression("x[t - d]"), intervals, (64,), known) == [
        "0 <= max(begin_x, d) - d",
        "end_x - 1 - d < 64",
    ]
    below_n = "min(32 * blockIdx_x + (end_x - 1), n - 1) < x.shape[0]"
    assert bounds_conditions(expression("x[i]"), intervals, None, known)[1] == below_n
    assert bounds_conditions(expression("x[i]"), intervals, None, list(facts(expression("not n <= i"))))[1] == below_n
    assert bounds_conditions(expression("x[i]"), intervals, None)[1] == "32 * blockIdx_x + (end_x - 1) < x.shape[0]"


def test_conditions_hold_for_what_is_not_assigned_under_them():
    tree = tree_of("i = 32 * blockIdx_x + threadIdx_x\nif i < n:\n    x[i] = 0\nif i < n:\n    i = n\n    x[i] = 0")
    affine = Affine(tree, {"n"}, set(), set())
    affine.values["i"] = affine.values["i"][:1]  # as if the second were no assignment
    access = CheckedAccess(Compilation("kernel", ""), affine, {"x"}, Intervals(affine, set(), {"i"}, ENDS, {}))
    ends = ["min(32 * blockIdx_x + (end_x - 1), n - 1)", "32 * blockIdx_x + (end_x - 1)"]
    for branch, end in zip(tree.body[1:], ends, strict=True):
        access.proven = []
        access.visit(branch)
        assert access.proven[1] == f"{end} < x.shape[0]"


@cuda.jit(boundscheck=False)
def tree_sum(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
        half //= 2
    out[t] = s[0]


SIGNATURE = "void(float32[::1], float32[::1])"


def test_the_tree_of_regions():
    assert (
        tree_sum.inspect_host(SIGNATURE, stage="regions")
        == lines(
            """
        for every block:
            for every thread of the block:
                s[threadIdx_x] = x[threadIdx_x]
            barrier of the block: cuda.syncthreads, line {0}
            once:
                half = 32
            while half > 0:
                for every thread of the block:
                    if threadIdx_x < half:
                        s[threadIdx_x] += s[threadIdx_x + half]
                barrier of the block: cuda.syncthreads, line {1}
                once:
                    half //= 2
            for every thread of the block:
                out[threadIdx_x] = s[0]

        half: once a block
        """
        ).format(*(tree_sum.py_func.__code__.co_firstlineno + n for n in (5, 10)))
        + "\n"
    )


def test_the_intermediate_representation():
    shown = tree_sum.inspect_host(SIGNATURE, stage="loops")
    assert shown.startswith("kernel(x, out):\n    s: shared array of (64,), np.float32\n".replace("kernel", "tree_sum"))
    assert shown.count("barrier('block')") == 2


@cuda.jit
def changing(x, out):
    i = cuda.threadIdx.x
    v = x[i]
    if v > 2:
        return
    v = v * 0.5
    cuda.syncthreads()
    out[i] = v


def test_the_kernel_after_each_pass():
    shown = {name: changing.inspect_host(SIGNATURE, stage=name) for name in PASSES}
    assert "@syncthreads()" in shown["resolve"] and "barrier('block')" in shown["inline"]
    assert "v = v * 0.5" in shown["inline"] and "v_ = v * 0.5" in shown["live_ranges"]
    assert "return" in shown["types"] and "return" not in shown["exits"]
    assert "v_: private, float64 for every thread" in shown["regions"]
    assert shown["python"] == changing.inspect_host(SIGNATURE)


def test_the_python_of_a_region():
    shown = tree_sum.inspect_host(SIGNATURE)
    assert "for threadIdx_x in range(min(blockDim_x, half)):" in shown
    with pytest.raises(ValueError, match="expected one of 'resolve', 'inline', .*, 'regions', 'python'"):
        tree_sum.inspect_host(SIGNATURE, stage="llvm")
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tree_sum[1, 64](x, out)
    np.testing.assert_array_equal(out, np.full(64, x.sum()))


@cuda.jit(boundscheck=False)
def by_rows(x, out, k):
    if cuda.threadIdx.x >= out.shape[1]:
        return
    rows = x.shape[0] // k
    group, j = cuda.blockIdx.x // rows, cuda.threadIdx.x
    first = x[group]
    scale = group % k
    if j > 3:
        scale = group
    share = j // k
    out[cuda.blockIdx.x, j] = first * scale + share + rows


def test_uniform_values_move_before_the_loops_over_threads():
    shown = by_rows.inspect_host("void(float32[::1], float32[:, ::1], int64)")
    before, region = re.split(r"for threadIdx_x in .*\n", shown)
    for moved in ("rows = x.shape[0] // k", "group = blockIdx_x // rows"):
        assert moved in before and moved not in region
    for stays in ("first_ = x[", "scale = group % k", "share = "):  # reads memory, is set twice, differs
        assert stays in region and stays not in before
    x, out = np.arange(6, dtype=np.float32), np.zeros((6, 8), np.float32)
    by_rows[6, 32](x, out, 2)
    group, j = np.arange(6)[:, None] // 3, np.arange(8)
    np.testing.assert_array_equal(out, x[group] * np.where(j > 3, group, group % 2) + j // 2 + 3)


@cuda.jit(boundscheck=False)
def of_the_dtype_of_an_argument(x, out):
    room = cuda.shared.array(32, x.dtype)
    t = cuda.threadIdx.x
    value = x[t]
    room[t] = value * 2
    cuda.syncthreads()
    out[t] = value + room[31 - t]


def test_private_arrays_are_on_the_stack_beside_one_of_an_arguments_dtype():
    """LLVM knows that arrays on the stack do not overlap: a tiled matrix product takes a third of the time."""
    shown = of_the_dtype_of_an_argument.inspect_host(SIGNATURE)
    assert "room = stack((32,), np.float32)" in shown and "value_of = stack((1040,), np.float32)" in shown
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    of_the_dtype_of_an_argument[1, 32](x, out)
    np.testing.assert_array_equal(out, x + 2 * x[::-1])
