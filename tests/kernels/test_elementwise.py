"""`kernels.elementwise`, `kernels.activation` and `kernels.pointwise`: values, layouts, dtypes, special numbers."""

import math

import numpy as np
import pytest
from both import agree, numbers_of, on_device
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda.pointwise import apply, apply_into, cover, halved, merged
from miniflow.kernels import activation, elementwise
from miniflow.kernels.pointwise import flat, flipped, spread, wide

WHOLE = np.float32(2.0**23)
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30, 0.5, 1.5, -2.5, -0.49999997, 2.0**23 + 1, -3.0]


def values(*shape, seed=0):
    """Of either sign, from 0.5 to 3: away from kinks and poles."""
    draw = np.random.default_rng(seed)
    return (draw.uniform(0.5, 3, shape) * draw.choice([-1, 1], shape)).astype(np.float32)


def positive(*shape, seed=0):
    return np.abs(values(*shape, seed=seed))


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def launched(function, *arrays, numbers=()):
    out = nan(arrays[0].size)
    flat(function, len(arrays), len(numbers))[-(-out.size // 64), 64](out, *arrays, *numbers)
    return out


@pytest.mark.parametrize("name, reference", [
    ("nearest", np.rint), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
])  # fmt: skip
def test_to_whole(name, reference):
    x = np.concatenate([np.float32(SPECIAL), 100 * values(100), np.arange(-4, 4, 0.25, np.float32)])
    got, want = launched(getattr(elementwise, name), x, numbers=[WHOLE]), reference(x)
    np.testing.assert_array_equal(got, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))  # -0.0 too


@pytest.mark.parametrize("name, of_numpy", [("floor_divide", np.floor_divide), ("remainder", np.remainder)])
def test_division_with_remainder(name, of_numpy):
    sizes = np.float32([0.0, 0.1, 0.3, 1, -1, 7, -7, 0.05, 3.3, -0.6, 1e20])
    x, y = [a.ravel() for a in np.meshgrid(sizes, sizes)]
    numbers = [WHOLE] if name == "floor_divide" else []
    with np.errstate(all="ignore"):
        want = of_numpy(x, y)
    np.testing.assert_array_equal(launched(getattr(elementwise, name), x, y, numbers=numbers), want)


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_float64_at_block_borders(size):
    x, y, out = values(size).astype(np.float64), values(size, seed=1).astype(np.float64), np.full(size, np.nan)
    flat(elementwise.div, 2)[2, 64](out, x, y)
    np.testing.assert_array_equal(out, x / y)


def test_a_number_may_come_first():
    x = values(70)
    np.testing.assert_array_equal(launched(elementwise.sub, x, numbers=[np.float32(0.3)]), x - np.float32(0.3))
    np.testing.assert_array_equal(launched(flipped(elementwise.sub), x, numbers=[np.float32(0.3)]), np.float32(0.3) - x)


@pytest.mark.parametrize("size", [1, 127, 128, 129, 255, 256, 257, 300])
def test_four_elements_a_thread(size):
    x, y, one, two = values(size), values(size, seed=1), nan(size), nan(size)
    wide(elementwise.neg)[-(-size // 128), 32](one, x)
    np.testing.assert_array_equal(one, -x)
    wide(elementwise.sub, 2)[-(-size // 128), 32](two, x, y)
    np.testing.assert_array_equal(two, x - y)


# layouts


SHAPES = [
    ((), ()), ((3, 257), (257,)), ((257, 3), (257, 1)), ((2, 1, 3), (5, 1)), ((0, 3), (1, 1)), ((1,), ()),
    ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting(shapes):
    x, y = values(*shapes[0]), values(*shapes[1], seed=1)
    got = apply(elementwise.add, [on_device(x), on_device(y)], np.float32)
    np.testing.assert_array_equal(got.numpy(), x + y)


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (2, 3, 2, 3, 2, 3)], ids=str)
def test_layouts(shape, layout):
    x, y, mask = values(*shape), values(*shape, seed=1), values(*shape, seed=2) > 0
    placed = on_device(x, layout)
    one = apply(elementwise.neg, [placed], np.float32)
    np.testing.assert_array_equal(one.numpy(), -x)
    assert one.strides == placed.strides or layout != "transposed"  # the memory order is kept, as NumPy does
    numbers = [np.float32(-1), np.float32(1)]
    np.testing.assert_array_equal(
        apply(elementwise.clamp, [placed], np.float32, numbers).numpy(), np.clip(x, np.float32(-1), np.float32(1))
    )
    two = apply(elementwise.sub, [placed, on_device(y)], np.float32)
    np.testing.assert_array_equal(two.numpy(), x - y)
    three = apply(elementwise.where, [on_device(mask.astype(np.uint8)), placed, on_device(y)], np.float32)
    np.testing.assert_array_equal(three.numpy(), np.where(mask, x, y))


def test_results_of_any_layout():
    x, y = values(5, 7), values(7, seed=1)
    for layout in ("contiguous", "transposed", "strided", "reversed"):
        out = on_device(np.zeros((5, 7), np.float32), layout)
        apply_into(elementwise.mul, out, [on_device(x), on_device(y)])
        np.testing.assert_array_equal(out.numpy(), x * y)


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


# dtypes, and what NumPy says about odd values

INTEGERS = [np.int8, np.uint8, np.int64]
ONCE = ("contiguous",)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_shifts_and_powers_of_integers_agree_with_the_cpu(dtype):
    low = np.iinfo(dtype).min
    x, y = [a.ravel() for a in np.meshgrid([low, low + 1, 0, 5, 100], [0, 1, 3, 7] if low == 0 else [0, -1, 3, -7])]
    with np.errstate(all="ignore"):
        for name in ("FloorDivide", "Remainder"):
            agree(name, x.astype(dtype), y.astype(dtype), layouts=ONCE)
    places = np.array([0, 1, 7, 8, 31, 63, 64, 100, *([] if low == 0 else [-1])], dtype)
    for name in ("BitwiseLeftShift", "BitwiseRightShift"):
        agree(name, np.full(places.shape, 90, dtype), places, layouts=ONCE)
        agree(name, np.full(places.shape, -90).astype(dtype), places, layouts=ONCE)
    agree("Pow", numbers_of(dtype, 9), np.arange(9).astype(dtype), layouts=ONCE)
    agree("PowScalar", numbers_of(dtype, 9), exponent=3, layouts=ONCE)
    agree("Clamp", numbers_of(dtype, 9), min=3, max=50, layouts=ONCE)


def test_negative_powers_of_integers_are_refused():
    with pytest.raises(ValueError, match="negative integer powers"):
        agree("Pow", np.array([2]), np.array([-1]))
    from miniflow.backends.registry import KERNELS

    with pytest.raises(ValueError, match="negative integer powers"):
        KERNELS["cuda"]["Pow"](on_device(np.array([2])), on_device(np.array([-1])))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_special_values_agree_with_the_cpu(dtype):
    x, y = [a.astype(dtype) for a in np.meshgrid(SPECIAL, SPECIAL)]
    with np.errstate(all="ignore"):
        for name in ("Maximum", "Minimum", "Eq", "Ne", "Lt", "Ge", "Add", "LogicalAnd"):
            agree(name, x, y, layouts=ONCE)
        for name in ("Isnan", "Isinf", "Isfinite", "Sign", "Abs", "Relu", "Floor", "LogicalNot", "Exp", "Log", "Sqrt"):
            agree(name, x[0], layouts=ONCE, exact=name not in ("Exp", "Log"))
        agree("Clamp", x[0], min=-1.0, max=None, layouts=ONCE)
        agree("Eq", x[0], 0.3, layouts=ONCE)
        agree("Mul", 0.1, x[0], layouts=ONCE)


CASES = [
    Case("exp", flat(elementwise.exp), lambda: [nan(70), values(70)], 3, 32),
    Case("add", flat(elementwise.add, 2), lambda: [nan(70), values(70), values(70, seed=1)], 3, 32),
    Case("floor divide", flat(elementwise.floor_divide, 2, 1),
         lambda: [nan(70), 9 * values(70), values(70, seed=1), WHOLE], 3, 32),
    Case("clamp", flat(elementwise.clamp, 1, 2),
         lambda: [nan(70), values(70), np.float32(-1), np.float32(1)], 3, 32),
    Case("a number first", flat(flipped(elementwise.sub), 1, 1), lambda: [nan(70), values(70), np.float32(1)], 3, 32),
    Case("where", flat(elementwise.where, 3),
         lambda: [nan(70), np.arange(70, dtype=np.uint8) % 3, values(70), values(70, seed=1)], 3, 32),
    Case("lt", flat(elementwise.lt, 2),
         lambda: [np.full(70, 77, np.uint8), values(70), values(70, seed=1)], 3, 32),
    Case("gelu gradient", flat(activation.gelu_grad, 2), lambda: [nan(70), values(70), values(70, seed=1)], 3, 32),
    Case("softplus gradient", flat(activation.softplus_grad, 2, 2),
         lambda: [nan(70), values(70), values(70, seed=1), np.float32(1.5), np.float32(4)], 3, 32),
    Case("wide neg", wide(elementwise.neg), lambda: [nan(200), values(200)], 2, 32),
    Case("wide sub", wide(elementwise.sub, 2), lambda: [nan(200), values(200), values(200, seed=1)], 2, 32),
    Case("spread neg", spread(elementwise.neg),
         lambda: [(1, 2, 3, 5), nan(30), (0, 30, 15, 5, 1), values(70), (9, 0, 2, 20, 4)], (1, 2, 2), (8, 2)),
    Case("spread add", spread(elementwise.add, 2),
         lambda: [(1, 2, 3, 5), nan(30), (0, 30, 15, 5, 1), values(70), (69, 0, -2, -20, -4),
                  values(5), (0, 0, 0, 0, 1)], (1, 2, 2), (8, 2)),
    Case("spread where", spread(elementwise.where, 3),
         lambda: [(1, 2, 3, 5), nan(30), (0, 30, 15, 5, 1), np.arange(5, dtype=np.uint8) % 2, (0, 0, 0, 0, 1),
                  values(30), (0, 0, 15, 5, 1), values(2), (0, 0, 1, 0, 0)], (1, 2, 2), (8, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
