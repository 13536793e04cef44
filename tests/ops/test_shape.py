"""Views and copies: shape, permute, slice and pad."""

import numpy as np
import pytest
from checks import as_array, assert_same, check_op, on_device, share_memory

import miniflow as flow
from miniflow.errors import DimError, DTypeError, IndexRangeError, ShapeError
from miniflow.ops import embedding, padding
from miniflow.ops.shape import sum_to_shape

A = np.random.default_rng(1).uniform(0.5, 2.0, (3, 4, 5))
M = A[0]
MOVING = ("float32", "float64", "float16", "bfloat16", "int64", "uint8")  # ops that move elements take every dtype

RESHAPES = {
    "view sizes": (lambda x: flow.reshape(x, 4, 15), lambda x: x.reshape(4, 15)),
    "view tuple": (lambda x: x.reshape((2, -1, 5)), lambda x: x.reshape(2, 6, 5)),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "flatten middle": (lambda x: x.flatten(1, -1), lambda x: x.reshape(3, 20)),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), lambda x: x.reshape(3, 2, 2, 5)),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda x: x[..., None]),
    "squeeze": (lambda x: x.unsqueeze(0).unsqueeze(2).squeeze(), lambda x: x),
    "squeeze dim": (lambda x: x.unsqueeze(0).unsqueeze(2).squeeze(2), lambda x: x[None]),
    "squeeze dims": (lambda x: x.unsqueeze(0).unsqueeze(2).squeeze((0, 1)), lambda x: x[:, None]),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.swapaxes(0, 2)),
    "swapaxes": (lambda x: x.swapaxes(1, 2), lambda x: x.swapaxes(1, 2)),
    "permute": (lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "permute negative": (lambda x: x.permute((-1, 0, -2)), lambda x: x.transpose(2, 0, 1)),
    "T": (lambda x: x.T, lambda x: x.T),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(1, 2)),
    "movedim": (lambda x: x.movedim(0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "movedim several": (lambda x: x.movedim((0, 1), (2, 0)), lambda x: np.moveaxis(x, (0, 1), (2, 0))),
    "expand": (
        lambda x: x.unsqueeze(1).expand(2, -1, 3, 4, -1),
        lambda x: np.broadcast_to(x[:, None], (2, 3, 3, 4, 5)),
    ),
    "narrow": (lambda x: x.narrow(1, -3, 2), lambda x: x[:, 1:3]),
    "select": (lambda x: x.select(-1, -2), lambda x: x[..., -2]),
    "unfold": (lambda x: x.unfold(2, 3, 1), lambda x: np.stack([x[..., i : i + 3] for i in range(3)], 2)),
    "unfold apart": (lambda x: x.unfold(1, 1, 3), lambda x: x[:, ::3, :, None]),
    "diagonal": (lambda x: x.diagonal(), lambda x: np.diagonal(x)),
    "diagonal below": (lambda x: x.diagonal(-1, 2, 0), lambda x: np.diagonal(x, -1, 2, 0)),
}

COPIES = {
    "clone": (lambda x: x.clone(), lambda x: x),
    "contiguous": (lambda x: x.transpose(0, 1).contiguous(), lambda x: x.swapaxes(0, 1)),
    "flip": (lambda x: x.flip(0, -1), lambda x: x[::-1, :, ::-1]),
    "pad": (
        lambda x: padding.pad(x, (2, -1, 0, 3), value=7),
        lambda x: np.pad(x[..., :-1], ((0, 0), (0, 3), (2, 0)), constant_values=7),
    ),
    "reflect": (lambda x: padding.pad(x, (2, 1), "reflect"), lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "reflect")),
    "reflect cut": (
        lambda x: padding.pad(x, (2, -1), "reflect"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (2, 0)), "reflect")[..., :-1],
    ),
    "replicate": (
        lambda x: padding.pad(x, (6, 1, 1, 0), "replicate"),
        lambda x: np.pad(x, ((0, 0), (1, 0), (6, 1)), "edge"),
    ),
    "circular": (lambda x: padding.pad(x, (0, 5), "circular"), lambda x: np.pad(x, ((0, 0), (0, 0), (0, 5)), "wrap")),
    "repeat": (lambda x: x.repeat(2, 1, 3, 2), lambda x: np.tile(x, (2, 1, 3, 2))),
    "tile": (lambda x: x.tile(3, 1), lambda x: np.tile(x, (3, 1))),
    "sum_to_shape": (lambda x: sum_to_shape(x, (4, 1)), lambda x: x.sum((0, 2))[:, None]),
}


@pytest.mark.parametrize("name", [*RESHAPES, *COPIES])
def test_values_and_gradients(name):
    function, reference = (RESHAPES | COPIES)[name]
    dtypes = ("float32", "float64") if name == "sum_to_shape" else MOVING
    sparse = name == "select" or name.startswith("diagonal")
    check_op(function, [A], reference, dtypes=dtypes, gradient="sparse" if sparse else "dense")


@pytest.mark.parametrize("name", RESHAPES)
def test_views_share_memory_with_the_tensor(name):
    x = on_device(A.copy())
    y = RESHAPES[name][0](x)
    assert y.data_ptr() is not None and share_memory(y._array, x._array)
    x.fill_(-1.0)
    assert (as_array(y) == -1.0).all()


@pytest.mark.parametrize("name", COPIES)
def test_copies_have_memory_of_their_own(name):
    x = on_device(A.copy())
    assert not share_memory(COPIES[name][0](x)._array, x._array)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.view(0), (0,)),
        (lambda x: x.reshape(-1, 3), (0, 3)),
        (lambda x: x.flatten(), (0,)),
        (lambda x: x.T, (3, 0)),
        (lambda x: x.flip(0), (0, 3)),
        (lambda x: x.expand(2, 0, 3), (2, 0, 3)),
        (lambda x: x.unfold(1, 2, 1), (0, 2, 2)),
        (lambda x: x.diagonal(), (0,)),
        (lambda x: x.repeat(2, 2), (0, 6)),
        (lambda x: padding.pad(x, (0, 0, 1, 1)), (2, 3)),
        (lambda x: x.narrow(0, 0, 0), (0, 3)),
        (lambda x: x.clone(), (0, 3)),
    ],
)
def test_empty_tensors(function, shape):
    x = on_device(np.zeros((0, 3))).requires_grad_()
    y = function(x)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.view(1, 1), (1, 1)),
        (lambda x: x.view(()), ()),
        (lambda x: x.flatten(), (1,)),
        (lambda x: x.squeeze(0), ()),
        (lambda x: x.unsqueeze(-1), (1,)),
        (lambda x: x.transpose(0, -1), ()),
        (lambda x: x.t(), ()),
        (lambda x: x.permute(()), ()),
        (lambda x: x.movedim(0, 0), ()),
        (lambda x: x.flip(0), ()),
        (lambda x: x.expand(3), (3,)),
        (lambda x: x.unfold(0, 1, 1), (1,)),
        (lambda x: x.repeat(2), (2,)),
        (lambda x: x.clone(), ()),
    ],
)
def test_zero_dim_tensors(function, shape):
    y = function(flow.tensor(5.0))
    assert y.shape == shape and (as_array(y) == 5.0).all()
    check_op(function, [np.array(1.5)], lambda x: np.broadcast_to(x, shape), layouts=())


def test_reshape_copies_only_where_it_must():
    x = flow.arange(6).view(2, 3)
    assert share_memory(x.reshape(3, 2)._array, x._array)
    assert not share_memory(x.t().reshape(6)._array, x._array)
    assert_same(x.t().reshape(6), np.array([0, 3, 1, 4, 2, 5]))
    assert share_memory(x.t().reshape(3, 1, 2)._array, x._array)


def test_contiguous_returns_a_contiguous_tensor_itself():
    x = flow.arange(6).view(2, 3)
    assert x.contiguous() is x and x.t().contiguous().stride() == (2, 1)


def test_a_clone_is_row_major():
    assert flow.zeros(2, 3).t().clone().stride() == (2, 1)


def test_expanded_views_cannot_be_written():
    with pytest.raises(ShapeError, match="expanded or read-only"):
        flow.zeros(2, 1).expand(2, 3).add_(1)


def test_one_hot():
    x = flow.tensor([[2, 0], [1, 1]])
    assert_same(embedding.one_hot(x), np.eye(3, dtype=np.int64)[as_array(x)])
    assert_same(embedding.one_hot(x, 5), np.eye(5, dtype=np.int64)[as_array(x)])
    assert embedding.one_hot(flow.zeros(0, dtype=flow.int64), 4).shape == (0, 4)


X = flow.zeros(2, 3)
ERRORS = [
    (
        lambda: X.view(4, 2),
        ShapeError,
        r"view: got a tensor of shape \(2, 3\) and the shape \(4, 2\); expected a shape of 6",
    ),
    (lambda: X.reshape(-1, 4), ShapeError, "expected a shape of 6 elements: use -1"),
    (lambda: X.reshape(-1, -1), ShapeError, "-1 for at most one"),
    (lambda: X.view(-2, 3), ShapeError, "at least 0"),
    (lambda: X.view(2.0, 3), DTypeError, "integer sizes"),
    (lambda: flow.zeros(0, 3).view(-1, 0), ShapeError, "could be any size"),
    (lambda: X.t().view(6), ShapeError, r"view: .* strides .* use reshape\(\)"),
    (lambda: X.flatten(1, 0), ShapeError, "start_dim=1 after end_dim=0"),
    (lambda: X.flatten(2), DimError, r"flatten: got dim=2 for a tensor of 2 dims; expected a dim from -2 to 1"),
    (lambda: X.unflatten(1, (2, 2)), ShapeError, r"unflatten: got sizes \(2, 2\) for dim 1"),
    (lambda: X.squeeze(2), DimError, "squeeze: got dim=2"),
    (lambda: X.unsqueeze(4), DimError, "unsqueeze: got dim=4 for a tensor of 3 dims"),
    (lambda: X.transpose(0, 2), DimError, "transpose: got dim=2"),
    (lambda: X.transpose(0, 1.5), DTypeError, "transpose: got dim=1.5; expected an integer"),
    (lambda: flow.zeros(2, 3, 4).t(), ShapeError, "t: got a tensor of shape .* at most 2 dims"),
    (lambda: flow.zeros(2).mT, ShapeError, "mT: .* at least 2 dims"),
    (lambda: X.permute(0), ShapeError, "permute: got dims .* expected each dim once"),
    (lambda: X.permute(0, 0), DimError, "permute: .* comes twice"),
    (lambda: X.permute(0, 2), DimError, "permute: got dim=2"),
    (lambda: X.movedim((0, 1), 0), ShapeError, "movedim: .* as many of each"),
    (lambda: X.expand(2, 4), ShapeError, r"expand: got shapes \(2, 3\) and \(2, 4\)"),
    (lambda: X.expand(3), ShapeError, "expand"),
    (lambda: X.expand(-1, 2, 3), ShapeError, "-1 keeps the size of a dim that exists"),
    (lambda: sum_to_shape(X, (2, 2)), ShapeError, "sum_to_shape"),
    (lambda: X.narrow(1, 2, 2), IndexRangeError, "narrow: got start=2 and length=2 for dim 1 of size 3"),
    (lambda: X.narrow(1, -4, 1), IndexRangeError, "narrow"),
    (lambda: X.narrow(1, 0, -1), IndexRangeError, "narrow"),
    (lambda: flow.tensor(1.0).narrow(0, 0, 1), ShapeError, "narrow: got a 0-dim tensor"),
    (lambda: X.select(1, 3), IndexRangeError, r"select: index 3 is out of range for dim 1 of size 3 .* from -3 to 2"),
    (lambda: X.select(2, 0), DimError, "select: got dim=2"),
    (lambda: X.unfold(1, 4, 1), ShapeError, "unfold: got size=4 and step=1 .* from 0 to 3"),
    (lambda: X.unfold(1, 1, 0), ShapeError, "a step of at least 1"),
    (lambda: X.diagonal(0, 1, 1), ShapeError, "diagonal: .* two different dims"),
    (lambda: X.diagonal(0, 0, 2), DimError, "diagonal: got dim=2"),
    (lambda: X.flip(0, 0), DimError, "flip: .* comes twice"),
    (lambda: X.repeat(2), ShapeError, "repeat: got sizes"),
    (lambda: X.repeat(2, -1), ShapeError, "repeat: got sizes"),
    (lambda: padding.pad(X, (1, 1, 1)), ShapeError, "pad: got widths .* pairs"),
    (lambda: padding.pad(X, (1, 1) * 3), ShapeError, "at most one for each dim"),
    (lambda: padding.pad(X, (-4, 0)), ShapeError, "no more than there is"),
    (lambda: padding.pad(X, (3, 0), "reflect"), ShapeError, "mode='reflect'; expected from -3 to 2"),
    (lambda: padding.pad(X, (1, 1), "mirror"), DTypeError, "mode='mirror'; expected 'constant'"),
    (lambda: padding.pad(X, (1, 1), "reflect", 2.0), DTypeError, "only mode='constant' has a value"),
    (
        lambda: embedding.one_hot(flow.tensor([3]), 3),
        IndexRangeError,
        "one_hot: index 3 is out of range .* expected from 0 to 2",
    ),
    (lambda: embedding.one_hot(flow.tensor([-1])), IndexRangeError, "one_hot: index -1 is out of range"),
    (lambda: embedding.one_hot(flow.tensor([1.0])), DTypeError, "one_hot: got float32"),
    (lambda: embedding.one_hot(flow.tensor([1]), 0), ShapeError, "num_classes=0"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message, device_in_use, monkeypatch):
    monkeypatch.setitem(globals(), "X", X.to(device_in_use))
    with pytest.raises(error, match=message):
        call()
