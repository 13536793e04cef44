"""PyTorch's type promotion, cell by cell: every pair of dtypes, as tensors, 0-dim tensors and Python numbers."""

import itertools

import numpy as np
import pytest
from checks import count_comparison

import miniflow as flow
from miniflow.errors import DTypeError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
NUMBERS = [True, 2, 2.5]
SHAPES = [(2,), ()]

OPS = (
    "add sub mul div floor_divide remainder pow maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor"
).split()
TENSORS_ONLY = "maximum minimum logical_and logical_or logical_xor".split()


def ours(name: str, shape: tuple[int, ...]):
    """A tensor of ones."""
    return flow.ones(shape, dtype=getattr(flow, name))


def theirs(name: str, shape: tuple[int, ...]):
    """A torch tensor of ones."""
    return torch.ones(shape, dtype=getattr(torch, name))


def outcome(function, *operands) -> str:
    """The dtype of the result as a word, or "refused"."""
    try:
        return str(function(*operands).dtype).split(".")[1]
    except (RuntimeError, TypeError, NotImplementedError, ValueError):
        return "refused"


def kind_of(operand) -> str:
    """The dtype of an operand, given as (dtype, shape) or as a number."""
    return operand[0] if isinstance(operand, tuple) else type(operand).__name__


def is_accepted(op: str, a, b, got: str, want: str) -> bool:
    """The two places where miniflow and torch differ on purpose or by history.

    Torch refuses `x - y` if one of them is bool; here a bool beside a number counts as 0 or 1, as it does for `+`.
    Torch has bool ** True; here bools have no powers at all, as in torch for two bool tensors.
    """
    if op in ("sub", "sub_", "-"):
        return want == "refused" and "bool" in (kind_of(a), kind_of(b)) and kind_of(a) != kind_of(b)
    return op in ("pow", "**") and (kind_of(a), kind_of(b), got) == ("bool", "bool", "refused")


def disagreements(op: str, operands) -> list:
    """Where the two libraries differ: (operands, ours, theirs)."""
    found = []
    for a, b in operands:
        count_comparison()
        want = outcome(getattr(torch, op), *(theirs(*x) if isinstance(x, tuple) else x for x in (a, b)))
        got = outcome(getattr(flow, op), *(ours(*x) if isinstance(x, tuple) else x for x in (a, b)))
        if got != want and not is_accepted(op, a, b, got, want):
            found.append((a, b, got, want))
    return found


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("b", NAMES)
def test_promote_types(a, b):
    expected = torch.promote_types(getattr(torch, a), getattr(torch, b))
    assert flow.promote_types(getattr(flow, a), getattr(flow, b)) is getattr(flow, str(expected).split(".")[1])


@pytest.mark.parametrize("shapes", list(itertools.product(SHAPES, SHAPES)), ids=str)
@pytest.mark.parametrize("op", OPS)
def test_tensors(op, shapes):
    pairs = [((a, shapes[0]), (b, shapes[1])) for a in NAMES for b in NAMES]
    assert disagreements(op, pairs) == []


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", [op for op in OPS if op not in TENSORS_ONLY])
def test_numbers_on_the_right(op, shape):
    assert disagreements(op, [((a, shape), number) for a in NAMES for number in NUMBERS]) == []


OPERATORS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "**": lambda x, y: x**y,
    "==": lambda x, y: x == y,
    "<": lambda x, y: x < y,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operate", OPERATORS)
def test_numbers_on_the_left(operate, shape):
    function, found = OPERATORS[operate], []
    for name, number in itertools.product(NAMES, NUMBERS):
        count_comparison()
        want, got = outcome(function, number, theirs(name, shape)), outcome(function, number, ours(name, shape))
        if want != got and not is_accepted(operate, number, (name, shape), got, want):
            found.append((number, name, got, want))
    assert found == []


@pytest.mark.parametrize("op", ["add_", "sub_", "mul_", "div_", "floor_divide_", "remainder_", "pow_", "bitwise_and_"])
def test_in_place(op):
    """The result keeps the dtype of the tensor, or the write is refused, in the same cells."""
    found = []
    for (a, b), shape in itertools.product(itertools.product(NAMES, NAMES), SHAPES):
        count_comparison()
        want = outcome(getattr(torch.Tensor, op), theirs(a, (2,)), theirs(b, shape))
        got = outcome(getattr(flow.Tensor, op), ours(a, (2,)), ours(b, shape))
        if got != want and not is_accepted(op, (a, shape), (b, shape), got, want):
            found.append((a, b, shape, got, want))
    assert found == []


SEVERAL = {
    "cat": lambda lib, a, b: lib.cat([a, b]),
    "stack": lambda lib, a, b: lib.stack([a, b]),
    "where": lambda lib, a, b: lib.where(lib.tensor([True, False]), a, b),
    "clamp": lambda lib, a, b: a.clamp(min=b),
}


@pytest.mark.parametrize("op", SEVERAL)
def test_other_functions_of_several_tensors(op):
    found = []
    for a, b in itertools.product(NAMES, NAMES):
        count_comparison()
        want = outcome(lambda x, y: SEVERAL[op](torch, x, y), theirs(a, (2,)), theirs(b, (2,)))
        got = outcome(lambda x, y: SEVERAL[op](flow, x, y), ours(a, (2,)), ours(b, (2,)))
        if got != want:
            found.append((a, b, got, want))
    assert found == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
def test_products_keep_their_dtype(name):
    for left, right in (((2,), (2,)), ((2, 2), (2,)), ((2,), (2, 2)), ((3, 2), (2, 3)), ((2, 1, 2), (2, 3))):
        want = outcome(torch.matmul, theirs(name, left), theirs(name, right))
        assert outcome(flow.matmul, ours(name, left), ours(name, right)) == want == name


UNARY = (
    "abs neg exp log sqrt rsqrt sin cos tanh sigmoid erf floor ceil round trunc sign square reciprocal isnan isinf "
    "isfinite logical_not bitwise_not sum mean prod all any argmax amax var std"
).split()
UNLIKE = {  # miniflow's answers where they are not torch's
    ("square", "bool"): "refused",
    ("abs", "bool"): "bool",
    ("argmax", "bool"): "int64",
    ("all", "uint8"): "bool",  # torch answers uint8 to uint8 for the sake of its own history
    ("any", "uint8"): "bool",
}


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_tensor(op):
    found = []
    for name in NAMES:
        count_comparison()
        want = outcome(getattr(torch, op), theirs(name, (3,)))
        got = outcome(getattr(flow, op), ours(name, (3,)))
        if got != UNLIKE.get((op, name), want):
            found.append((name, got, want))
    assert found == []


@pytest.mark.parametrize("a", NAMES)
def test_result_type(a):
    for b, number in itertools.product(NAMES, NUMBERS):
        for x, y in (((a, (2,)), (b, ())), ((a, ()), (b, ())), ((a, (2,)), number), ((a, ()), number)):
            count_comparison()
            mine = [ours(*v) if isinstance(v, tuple) else v for v in (x, y)]
            torchs = [theirs(*v) if isinstance(v, tuple) else v for v in (x, y)]
            assert flow.result_type(*mine).name == str(torch.result_type(*torchs)).split(".")[1]


def test_integers_wrap_around_as_in_torch():
    for kind, number in (("uint8", 300), ("uint8", -1), ("int8", 200), ("int16", 70000)):
        x, y = flow.tensor([100], dtype=getattr(flow, kind)), torch.tensor([100], dtype=getattr(torch, kind))
        assert (x + number).tolist() == (y + number).tolist()
        assert (x * x).tolist() == (y * y).tolist()


def test_numpy_scalars_are_weak():
    x = flow.ones(2)
    assert (x * np.float64(2)).dtype is flow.float32 and (np.float64(2) * x).dtype is flow.float32
    assert (flow.ones(2, dtype=flow.int32) + np.int64(1)).dtype is flow.int32
    with pytest.raises(DTypeError):
        x + np.complex128(1)


def test_limits():
    for name in ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"):
        limits = flow.finfo if getattr(flow, name).is_floating_point else flow.iinfo
        ours, theirs = limits(getattr(flow, name)), getattr(torch, limits.__name__)(getattr(torch, name))
        assert vars(ours) == {key: getattr(theirs, key) for key in vars(ours)} and "bits" in vars(ours)
    assert flow.finfo() == flow.finfo(flow.float32)
    with pytest.raises(flow.errors.DTypeError, match="finfo: got miniflow.int64; expected a floating dtype: use iinfo"):
        flow.finfo(flow.int64)
    with pytest.raises(flow.errors.DTypeError, match="iinfo: got miniflow.float32; expected a dtype of integers"):
        flow.iinfo(flow.float32)
