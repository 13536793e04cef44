"""Factories, generators' ranges and printing against torch."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_close, assert_same, check_against_torch

import miniflow as flow
from miniflow.ops.printing import set_printoptions, values_text

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

DATA = [1, 1.5, True, [], [[], []], [True, 2], [1, 2.5], [[1, 2], [3, 4]], np.float64(1.5), [np.float64(1.5)],
        [np.int32(1)], np.zeros((2, 3), np.uint8), [np.zeros(3), np.ones(3)], [1e10, -1], ((1, 2), (3, 4))]  # fmt: skip


@pytest.mark.parametrize("data", DATA, ids=repr)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_tensor(data):
    for dtype in (None, "float64", "float16", "bool"):
        ours = flow.tensor(data, dtype=dtype and getattr(flow, dtype))
        assert_same(ours, torch.tensor(data, dtype=dtype and getattr(torch, dtype)))


@pytest.mark.parametrize(
    "args", [(7,), (2, 9), (9, 2, -2), (0, 1, 0.1), (0, 1, 0.3), (5.0,), (-1, 1, 0.001), (0, 3, 1e-4)]
)
@pytest.mark.parametrize("dtype", [None, "float64", "float32", "int64", "float16"])
def test_arange(args, dtype):
    if dtype == "int64" and any(isinstance(a, float) for a in args):
        args = tuple(int(a) or 1 for a in args)
    ours = flow.arange(*args, dtype=dtype and getattr(flow, dtype))
    theirs = torch.arange(*args, dtype=dtype and getattr(torch, dtype))
    assert_close(ours, theirs, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-5 if dtype == "float16" else 1e-7)


@pytest.mark.parametrize("args", [(0.1, -7.9, -4.0), (0.5, 5.5, 1.5), (-0.5, 3.7, 1), (1.9, 10.0, 2.9), (5.5, 0.0, -1)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_arange_of_floats_as_integers(args, dtype):
    assert_same(flow.arange(*args, dtype=getattr(flow, dtype)), torch.arange(*args, dtype=getattr(torch, dtype)))


def setitem(x, value):
    x[0] = value
    return x


WRITES = {
    "setitem": setitem,
    "setitem of a list": lambda x, value: x.__setitem__([1, 0], value) or x,
    "fill_": lambda x, value: x.fill_(value),
    "full_like": lambda x, value: (flow if isinstance(x, flow.Tensor) else torch).full_like(x, value),
    "new_full": lambda x, value: x.new_full((3,), value),
    "clamp": lambda x, value: x.clamp(max=value),
    "masked_fill": lambda x, value: x.masked_fill(x == 0, value),
    "scatter": lambda x, value: x.scatter(0, x.long(), value),
    "pad": lambda x, value: nn_of(x).pad(x, (1, 0), value=value),
}
NUMBERS = [300, 256, 255, 128, 127, -128, -129, -255, -256, 1.7, 127.5, 300.5, 1e30, 2**63, float("inf"), float("nan")]


def nn_of(x):
    return flow.nn.functional if isinstance(x, flow.Tensor) else torch.nn.functional


ALIKE = [
    (write, dtype, value)
    for write in WRITES
    for dtype in ("uint8", "int8", "int64")
    for value in NUMBERS
    if not (write == "masked_fill" and isinstance(value, float))  # refused whatever its value is
    and not (write == "pad" and (dtype == "uint8" and value < 0 or value == 2**63))  # torch's own rules
]


@pytest.mark.parametrize(("write", "dtype", "value"), ALIKE)
def test_numbers_that_an_integer_cannot_hold(write, dtype, value):
    try:
        expected = WRITES[write](torch.zeros(2, dtype=getattr(torch, dtype)), value)
    except (RuntimeError, ValueError):
        with pytest.raises(flow.errors.DTypeError, match="cannot hold"):
            WRITES[write](flow.zeros(2, dtype=getattr(flow, dtype)), value)
    else:
        assert_same(WRITES[write](flow.zeros(2, dtype=getattr(flow, dtype)), value), expected)


@pytest.mark.parametrize("args", [(0, 1, 5), (-3, 7.5, 100), (1, 1, 3), (2, 5, 1), (2, 5, 0), (10, -10, 11)])
@pytest.mark.parametrize("dtype", [None, "float64", "int32"])
def test_linspace_and_logspace(args, dtype):
    ours, theirs = dtype and getattr(flow, dtype), dtype and getattr(torch, dtype)
    assert_close(flow.linspace(*args, dtype=ours), torch.linspace(*args, dtype=theirs), rtol=1e-6, atol=1e-6)
    if dtype != "int32":
        args = (args[0] / 5, args[1] / 5, args[2])
        assert_close(flow.logspace(*args, dtype=ours), torch.logspace(*args, dtype=theirs), rtol=3e-6)
        assert_close(flow.logspace(*args, base=2), torch.logspace(*args, base=2), rtol=3e-6)


def test_filled():
    for value in (True, 3, 2.5):
        assert_same(flow.full((2, 3), value), torch.full((2, 3), value))
        like = (flow.zeros(2, dtype=flow.int32), torch.zeros(2, dtype=torch.int32))
        assert_same(flow.full_like(like[0], value), torch.full_like(like[1], value))
        assert_same(like[0].new_full((3,), value), like[1].new_full((3,), value))
        assert_same(like[0].new_tensor([1.7, value]), like[1].new_tensor([1.7, value]))
    assert_same(flow.eye(3, 4), torch.eye(3, 4))


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_triangles(diagonal):
    x = np.random.default_rng(0).standard_normal((2, 4, 5))
    check_against_torch(lambda x: flow.tril(x, diagonal), lambda x: torch.tril(x, diagonal), [x])
    check_against_torch(lambda x: flow.triu(x, diagonal), lambda x: torch.triu(x, diagonal), [x])
    for part in (x[0], x[0, 0]):
        check_against_torch(lambda x: flow.diag(x, diagonal), lambda x: torch.diag(x, diagonal), [part])


def test_default_seed_of_a_generator_and_wrapping():
    assert flow.Generator().initial_seed() == torch.Generator().initial_seed()
    for seed in (0, 5, -1, -(2**63), 2**64 - 1):
        assert flow.Generator().manual_seed(seed).initial_seed() == torch.Generator().manual_seed(seed).initial_seed()


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropout_of_given_elements(p):
    """What torch makes of the elements that our mask kept: the same values and gradients."""
    x = np.random.default_rng(0).standard_normal((7, 9))
    keep = flow.nn.functional.dropout(flow.ones(7, 9), p, generator=flow.Generator().manual_seed(1)).numpy() != 0
    scale = 0.0 if p == 1 else 1 / (1 - p)
    check_against_torch(
        lambda x: flow.nn.functional.dropout(x, p, generator=flow.Generator().manual_seed(1)),
        lambda x: x * torch.from_numpy(keep) * scale,
        [x],
    )


# printing


def some_values(draw: np.random.Generator, kind: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values of each kind that the number formats tell apart."""
    a = draw.standard_normal(shape)
    some = draw.random(shape) < 0.2
    kinds = [
        np.round(a * 10),
        a * 10.0 ** draw.integers(-8, 12),
        np.exp(a * 5),
        np.where(some, np.nan, a),
        np.where(some, np.inf, np.round(a)),
        (a * 100).astype(draw.choice([np.int64, np.int32, np.uint8, np.int8])),
        a > 0,
        np.zeros(shape),
        np.round(a * 1e6),
        np.where(some, -np.inf, np.nan),
        np.where(some, 0.0, a * 1e-3),
        a,
    ]
    values = np.asarray(kinds[kind])
    return values.astype(draw.choice([np.float64, np.float32, np.float16])) if values.dtype == np.float64 else values


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # casts to uint8 and float16 overflow on purpose
@pytest.mark.parametrize(
    "options", [{}, {"precision": 2}, {"linewidth": 40}, {"threshold": 20, "edgeitems": 2}, {"sci_mode": True}]
)
def test_the_numbers_print_as_torch_prints_them(seed, options):
    draw = np.random.default_rng(seed)
    set_printoptions(profile="default", **options)
    torch.set_printoptions(profile="default", **options)
    try:
        for case in range(240):
            shape = tuple(draw.integers(1, 6, draw.integers(0, 5)))
            if case % 20 == 0:
                shape = (int(draw.integers(1, 1500)),)
            if case % 20 == 1:
                shape = tuple(draw.integers(1, 40, 2))
            values = some_values(draw, case % 12, shape)
            assert values_text(values, 7) == torch._tensor_str._tensor_str(torch.from_numpy(values), 7), (case, shape)
    finally:
        set_printoptions(profile="default")
        torch.set_printoptions(profile="default")


def test_bfloat16_prints_as_torch_prints_it():
    values = [[1.5, 2.25, -1e-3], [3e8, 0.0, float("nan")]]
    ours = values_text(flow.tensor(values, dtype=flow.bfloat16).numpy(), 7)
    assert ours == torch._tensor_str._tensor_str(torch.tensor(values, dtype=torch.bfloat16), 7)
