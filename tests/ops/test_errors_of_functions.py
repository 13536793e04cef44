"""What users call with wrong arguments is named in the error, with what it was given, whatever it is made of."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from samples import ROWS, Row

import miniflow as flow
from miniflow import errors
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentTypeError, DeviceError, DTypeError, IndexRangeError, ShapeError
from miniflow.nn import functional as F
from miniflow.ops.pointwise import OPERATORS

OURS = tuple(kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__)
SHAPES = r"(?:input|shapes?|weight|tensor|target|index|source|and|scores|classes) (\((?:\d+, )*\d*,?\))"
LIKE_EXP = {name for name in OPERATORS if name not in "exp add where pow div lerp".split()}  # made by the same lines
ONES = flow.ones


def as_tensors(x: Any) -> Any:
    """The arguments of a sample; floats as float32."""
    if isinstance(x, np.ndarray):
        return flow.tensor(x.astype(np.float32) if x.dtype == np.float64 else x)
    return type(x)(map(as_tensors, x)) if isinstance(x, list | tuple) else x


def wrongs(x: Any) -> Iterator[Any]:
    """What may be wrong in the place of an argument: shapes, dtypes, indices, numbers."""
    if isinstance(x, flow.Tensor):
        yield from (x.unsqueeze(0), x.reshape((1,) * (7 - x.ndim) + tuple(x.shape)), flow.zeros((), dtype=x.dtype))
        yield flow.zeros(*x.shape[:-1], 0, dtype=x.dtype)
        yield from (flow.zeros(*x.shape[:d], x.shape[d] + 4, *x.shape[d + 1 :], dtype=x.dtype) for d in range(x.ndim))
        yield from (x.to(kind) for kind in (flow.bool, flow.int64, flow.float32) if kind is not x.dtype)
        yield from (x + 1000, x - 1000) if x.dtype is flow.int64 else ()
    elif type(x) is int:
        yield from (11, -11, 0, 1.5)
    elif isinstance(x, tuple) and x and all(type(n) is int for n in x):
        yield from ((11,) * len(x), (-11,) * len(x), (*x, 1), x[1:], (1.5,) * len(x))
    elif isinstance(x, list | tuple) and x and all(isinstance(one, flow.Tensor) for one in x):
        yield type(x)()
        yield from (type(x)([*x[:i], wrong, *x[i + 1 :]]) for i, one in enumerate(x) for wrong in wrongs(one))


def sizes_in(arguments: Any) -> Iterator[str]:
    """The shapes of tensors, and tuples of numbers, as text."""
    for x in arguments:
        if isinstance(x, flow.Tensor):
            yield str(tuple(x.shape))
        elif isinstance(x, list | tuple):
            yield str(tuple(x))
            yield from sizes_in(x)


def check_message(name: str, error: Exception, arguments: list) -> None:
    """It is one of our errors that names the function, and of all shapes those it was given."""
    assert isinstance(error, OURS), (type(error), error, arguments)
    message = str(error)
    assert message.startswith(f"{name}: "), (message, arguments)
    told = re.split("; expected|; in its step", message)[0]
    known = {*sizes_in(arguments), "()"}
    if "()" in sizes_in(arguments):
        known.add("(1,)")  # a 0-dim tensor is treated as having one dim
    assert set(re.findall(SHAPES, told)) <= known, (message, arguments)


# what an operator makes of the shapes that it was given, and says so: flat tensors, batch dims, products
ITS_OWN = {"addmm", "median", "nanmedian", "topk", "kthvalue", "matmul", "sparse_softmax_cross_entropy"}


@pytest.mark.filterwarnings("ignore:.* will be broadcast")
@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in LIKE_EXP | ITS_OWN], ids=repr)
def test_wrong_arguments_of_every_operator(row: Row):
    refused = 0
    sample = row.samples()[0]
    args, kwargs = list(map(as_tensors, sample.args)), {key: as_tensors(x) for key, x in sample.kwargs.items()}
    places = [*enumerate(args), *kwargs.items()]
    for place, value in places:
        for wrong in wrongs(value):
            given, named = [*args], {**kwargs}
            (given if isinstance(place, int) else named)[place] = wrong
            try:
                with flow.no_grad():
                    row.function(*given, **named)
            except Exception as error:
                check_message(row.function.__name__, error, [*given, *named.values()])
                refused += 1
    assert refused or not any(type(value) in (int, tuple) for _, value in places)


@pytest.mark.parametrize(
    ("name", "call", "kind", "message"),
    [
        (
            "conv3d of other channels", lambda: F.conv3d(ONES(1, 2, 4, 4, 4), ONES(1, 3, 2, 2, 2)), ShapeError,
            r"conv3d: got input \(1, 2, 4, 4, 4\) and weight \(1, 3, 2, 2, 2\) .*; expected 3 input channels",
        ),
        (
            "conv1d of other channels", lambda: F.conv1d(ONES(1, 2, 4), ONES(1, 3, 2)), ShapeError,
            r"conv1d: got input \(1, 2, 4\) and weight \(1, 3, 2\) with groups=1; expected 3 input channels",
        ),
        (
            "max_pool1d", lambda: F.max_pool1d(ONES(1, 2, 3), 7), ShapeError,
            r"max_pool1d: got input \(1, 2, 3\) and kernel_size=7; in its step max_pool2d: .*; expected images at",
        ),
        (
            "avg_pool3d", lambda: F.avg_pool3d(ONES(1, 2, 3, 3, 3), 7), ShapeError,
            r"avg_pool3d: got input \(1, 2, 3, 3, 3\) and kernel_size=7; in its step avg_pool2d: ",
        ),
        (
            "index_add", lambda: flow.zeros(0, 3).index_add(0, flow.tensor([1]), ONES(1, 3)), IndexRangeError,
            r"index_add: index 1 is out of range for dim 0 of size 0 \(shape \(0, 3\)\)",
        ),
        (
            "index_add_", lambda: ONES(2, 3).index_add_(0, flow.tensor([7]), ONES(1, 3)), IndexRangeError,
            r"index_add_: index 7 is out of range for dim 0 of size 2 \(shape \(2, 3\)\)",
        ),
        ("add_", lambda: ONES(3).add_(ONES(2)), ShapeError, r"add_: shapes \(3,\) and \(2,\) cannot be broadcast"),
        ("view", lambda: ONES(2, 3).view(4), ShapeError, r"view: got a tensor of shape \(2, 3\) and the shape \(4,\);"),
        (
            "attention", lambda: F.scaled_dot_product_attention(ONES(1, 2, 3), ONES(1, 2, 4), ONES(1, 2, 3)),
            ShapeError, r"got query \(1, 2, 3\), key \(1, 2, 4\) and value \(1, 2, 3\); in its step matmul:",
        ),
        (
            "an error of Python", lambda: flow.roll(ONES(2), "a"), TypeError,
            r"roll: got input \(2,\), shifts='a' and dims=0: bad operand",
        ),
        (
            "an unbatched image", lambda: flow.nn.Conv2d(1, 8, 3)(ONES(32, 28, 28)), ShapeError,
            r"conv2d: got input \(32, 28, 28\) .*; expected 1 input channels.* of one channel, use x.unsqueeze\(1\)",
        ),
        (
            "float labels", lambda: F.cross_entropy(ONES(4, 3), ONES(4)), DTypeError,
            r"got miniflow.float32 labels \(4,\) for input \(4, 3\); expected class indices .*: use labels.long\(\)",
        ),
        (
            "a layer elsewhere", lambda: flow.nn.Linear(2, 3).to("cuda")(ONES(1, 2, device="cpu")), DeviceError,
            r"linear: got tensors on cpu and on cuda:0; expected .*: move the other with x.to\('cuda:0'\)",
        ),
        (
            "channels that come last", lambda: flow.nn.Conv2d(3, 4, 3)(ONES(1, 32, 32, 3)), ShapeError,
            r"expected 3 input channels, 3 for each group: if the channels come last, use x.movedim\(-1, 1\)",
        ),
        (
            "tensors for a constructor", lambda: flow.nn.ReLU(ONES(2)), TypeError,
            r"ReLU: got a Tensor as the option inplace; make it first: ReLU\(\)\(...\)",
        ),
        (
            "both for a constructor", lambda: flow.nn.CrossEntropyLoss(ONES(2, 3), flow.tensor([1, 2])), TypeError,
            "CrossEntropyLoss: got a Tensor as the option .*; make it first",
        ),
        (
            "a list of layers", lambda: flow.nn.Sequential([flow.nn.ReLU()]), TypeError,
            r"expected a Module or None, or each of them by itself: \*layers",
        ),
        (
            "a class in Sequential", lambda: flow.nn.Sequential(flow.nn.ReLU), TypeError,
            r"cannot assign a type as module '0' of .*; expected .* such as ReLU\(...\), an object of the class",
        ),
        (
            "a function in Sequential", lambda: flow.nn.Sequential(F.relu), TypeError,
            "expected a Module or None, such as the layer that calls the function",
        ),
        (
            "layers in a list", lambda: flow.optim.SGD([], lr=0.1), ValueError,
            "layers in a plain list are not found: use nn.ModuleList",
        ),
        (
            "the output of an LSTM", lambda: flow.nn.Linear(4, 1)(flow.nn.LSTM(3, 4)(ONES(5, 2, 3))), TypeError,
            "linear: got input of type tuple; expected a Tensor: take one of its tensors",
        ),
        (
            "no return", lambda: F.cross_entropy(None, flow.tensor([1])), TypeError,
            "got input of type NoneType; expected a Tensor: does what made it return its result",
        ),
        (
            "tensors one by one", lambda: flow.cat(ONES(2, 3), ONES(2, 3)), TypeError,
            r"cat: got a dim of shape \(2, 3\); expected an integer dim",
        ),
        ("None", lambda: ONES(2) + None, TypeError, r"add: got (y|other) of type NoneType; expected a Tensor"),
    ],
)  # fmt: skip
def test_messages(name, call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_no_arguments_at_all():
    with pytest.raises(ShapeError, match="^block_diag: got no tensors"):
        flow.block_diag()


def test_errors_of_the_users_own_functions_stay_as_they_are():
    def distance(x, y):
        raise ValueError("mine")

    x = ONES(2, 3)
    with pytest.raises(ValueError, match="^mine$") as caught:
        F.triplet_margin_with_distance_loss(x, x, x, distance_function=distance)
    assert type(caught.value) is ValueError


def test_an_error_within_several_functions_names_the_outermost_and_the_innermost():
    @takes_tensors
    def outer(x):
        return inner(x.unsqueeze(0))

    @takes_tensors
    def inner(x):
        return flow.matmul(x.unsqueeze(0), ONES(5, 5))

    with pytest.raises(ShapeError, match=r"^outer: got x \(2, 3\); in its step matmul: got shapes \(1, 1, 2, 3\)"):
        outer(ONES(2, 3))


def test_lists_of_tensors_are_told_by_their_shapes():
    with pytest.raises(ShapeError, match=r"^vstack: got tensors \[\(2,\), \(3,\)\]; in its step cat"):
        flow.vstack([flow.ones(2), flow.ones(3)])
    with pytest.raises(
        ShapeError, match=r"^vstack: got tensors \[\(1,\), .*\.\.\.\], 501 in all; in its step"
    ) as raised:
        flow.vstack([flow.ones(i % 3 + 1) for i in range(501)])
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("name", "hstack vstack dstack column_stack meshgrid atleast_2d broadcast_tensors".split())
def test_what_is_no_tensor_in_a_list_is_named(name):
    with pytest.raises(
        ArgumentTypeError, match=rf"^{name}: got tensors of type list; expected a Tensor: use flow.tensor"
    ):
        getattr(flow, name)([[1, 2], flow.ones(2)])
    with pytest.raises(ArgumentTypeError, match="^multi_dot: got tensors of type int; expected a Tensor"):
        flow.linalg.multi_dot([flow.ones(2, 2), 3])


@pytest.mark.parametrize(("call", "message"), [
    (lambda: flow.matmul(ONES(3), 2), "matmul: got a number; expected tensors of at least 1 dim: use x [*] y"),
    (lambda: flow.einsum(ONES(2), ONES(2)), "einsum: got an equation of type Tensor; expected a str"),
    (lambda: flow.einsum(5, ONES(2)), "einsum: got an equation of type int; expected a str"),
])  # fmt: skip
def test_operands_of_another_kind(call, message):
    with pytest.raises(ArgumentTypeError, match=message):
        call()
