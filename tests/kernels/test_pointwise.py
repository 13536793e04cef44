"""The loops of pointwise operators on a cuda device, and `kernels.scalars`: values, layouts, special numbers."""

import numpy as np
import pytest
from both import agree, numbers_of, on_device
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

import miniflow.ops.arithmetic  # noqa: F401  (defines operators)
from miniflow.backends.body import Body, Step
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.pointwise import cover, halved, launcher_of, merged, pointwise

SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388607.5, -8388609.0, 1e30]
INTEGERS = [np.int8, np.uint8, np.int64]
ONCE = ("contiguous",)


def values(*shape, seed=0, kind=np.float32):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(kind)


def computed(name, *operands, kind=np.float32, **attrs):
    """What the operator gives on the device, in an output full of NaN."""
    shape = np.broadcast_shapes(*[np.shape(x) for x in operands])
    out = on_device(np.full(shape, np.nan, kind))
    pointwise(name, out, *operands, **attrs)
    return out.numpy()


@pytest.mark.parametrize("name, reference", [
    ("round", np.rint), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
])  # fmt: skip
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_to_whole(name, reference, kind):
    x = np.concatenate([np.asarray(SPECIAL, kind), kind(100) * values(100, kind=kind), np.arange(-4, 4, 0.25, kind)])
    got, want = computed(name, on_device(x), kind=kind), reference(x)
    np.testing.assert_array_equal(got, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))  # -0.0 too


@pytest.mark.parametrize("name, of_numpy", [("floor_divide", np.floor_divide), ("remainder", np.remainder)])
def test_division_with_remainder(name, of_numpy):
    sizes = np.float32([0.0, 0.1, 0.3, 1, -1, 7, -7, 0.05, 3.3, -0.6, 1e20])
    x, y = [a.ravel() for a in np.meshgrid(sizes, sizes)]
    with np.errstate(all="ignore"):
        want = of_numpy(x, y)
    np.testing.assert_array_equal(computed(name, on_device(x), on_device(y)), want)


SHAPES = [
    ((), ()), ((3, 257), (257,)), ((257, 3), (257, 1)), ((2, 1, 3), (5, 1)), ((0, 3), (1, 1)), ((1,), ()),
    ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting(shapes):
    x, y = values(*shapes[0]), values(*shapes[1], seed=1)
    np.testing.assert_array_equal(computed("add", on_device(x), on_device(y)), x + y)


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (2, 3, 2, 3, 2, 3)], ids=str)
def test_layouts(shape, layout):
    x, y, mask = values(*shape), values(*shape, seed=1), values(*shape, seed=2) > 0
    placed = on_device(x, layout)
    np.testing.assert_array_equal(computed("neg", placed), -x)
    np.testing.assert_array_equal(computed("clamp", placed, -1.0, 1.0), np.clip(x, np.float32(-1), np.float32(1)))
    np.testing.assert_array_equal(computed("sub", placed, on_device(y)), x - y)
    np.testing.assert_array_equal(computed("where", on_device(mask), placed, on_device(y)), np.where(mask, x, y))


def test_copies_of_any_layout():
    x = values(5, 7)
    for layout in ("contiguous", "transposed", "strided", "reversed"):
        out = on_device(np.zeros((5, 7), np.float32), layout)
        copy_into(out, on_device(x))
        np.testing.assert_array_equal(out.numpy(), x)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 255, 256, 257, 300])
def test_four_elements_a_thread(size):
    body = Body(["float32"] * 2, [], [Step("add", ("x0", "x1"), "float32")], ["v0"])
    x, y, out = values(size), values(size, seed=1), np.full(size, np.nan, np.float32)
    launcher_of(body, "vv", "wide")[-(-size // 128), 32](out, x, y)
    np.testing.assert_array_equal(out, x + y)


def test_launches_are_halved_where_cuda_cannot_number_their_blocks():
    assert list(halved((2, 3, 4, 5), [(7, 1, 1, 1, 1)])) == [((2, 3, 4, 5), [(7, 1, 1, 1, 1)])]
    for shape in [(1, 1, 300_000, 257), (1, 100_001, 3, 2), (70_000, 3, 1, 1)]:
        found = list(halved(shape, [(5, 1000, 100, 10, 1)]))
        dim = int(np.argmax(shape))
        starts = np.cumsum([0] + [part[dim] for part, _ in found])
        assert starts[-1] == shape[dim]
        assert [steps[0][0] for _, steps in found] == [5 + s * (1000, 100, 10)[dim] for s in starts[:-1].tolist()]
        assert all(max(cover(part)[0][1:]) <= 65_535 for part, _ in found)


def test_dims_are_merged_where_every_array_allows_it():
    assert merged((2, 3, 4), [(12, 4, 1)]) == ((24,), [(1,)])
    assert merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), [(12, 1), (0, 1)])
    assert merged((2, 1, 4), [(4, 99, 1), (4, 0, 1)]) == ((8,), [(1,), (1,)])
    assert merged((2, 3, 4), [(0, 0, 0)]) == ((24,), [(0,)])
    assert merged((), [(), ()]) == ((), [(), ()])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_shifts_and_powers_of_integers_agree_with_the_cpu(dtype):
    low = np.iinfo(dtype).min
    x, y = numbers_of(dtype, 40), np.abs(numbers_of(dtype, 40, seed=1)) % 7 + 1
    x[:3] = low, np.iinfo(dtype).max, 0
    y = y.astype(dtype)
    for name in ("FloorDivide", "Remainder", "TruncDivide", "BitwiseLeftShift", "BitwiseRightShift", "Pow"):
        agree(name, x, y, layouts=ONCE)
    if low:
        agree("FloorDivide", x[1:], -y[1:], layouts=ONCE)
        agree("TruncDivide", x[1:], -y[1:], layouts=ONCE)
        agree("Pow", np.array([1, -1, -1, 2, 0, -3], dtype), np.array([-1, -2, -3, -1, -2, 3], dtype), layouts=ONCE)


def case(name, *operands, kind="float32", numbers=()):
    """The flat launch of one operator."""
    names = [f"x{i}" for i in range(operands.count("x"))] + [f"n{i}" for i in range(len(numbers))]
    body = Body([kind] * operands.count("x"), [(v, kind) for v in numbers], [Step(name, tuple(names), kind)], ["v0"])

    def arguments():
        arrays = [values(70, seed=i, kind=kind) for i in range(operands.count("x"))]
        return [np.full(70, np.nan, kind), *arrays, *map(np.dtype(kind).type, numbers)]

    return Case(name, launcher_of(body, "v" * operands.count("x"), "flat"), arguments, grid=2, block=64, tolerance=2e-5)


CASES = [
    *[case(name, "x") for name in ("round", "floor", "ceil", "trunc", "exp", "sin", "cos", "tanh", "abs")],
    *[case(name, "x", "x") for name in ("floor_divide", "remainder", "trunc_divide", "maximum")],
    case("clamp", "x", numbers=(-0.5, 0.5)), case("floor", "x", kind="float64"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.ptx
@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
