"""Views, copies and joins against torch: values, dtypes, strides and gradients; and the same refusals."""

import numpy as np
import pytest
from checks import as_array, assert_same, check_against_torch

import miniflow as flow
from miniflow.ops import embedding, padding
from miniflow.tensor import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

A = np.random.default_rng(1).normal(size=(3, 4, 5))

SAME = {  # the same code runs on both
    "view": lambda x: x.view(-1, 10),
    "reshape transposed": lambda x: x.transpose(0, 1).reshape(6, -1),
    "flatten": lambda x: x.flatten(0, 1),
    "unflatten": lambda x: x.unflatten(-2, (-1, 2)),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze dims": lambda x: x[:1, :, :1].squeeze((0, 1)),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(1, -1, 0),
    "T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim((-1, 0), (0, 1)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "expand": lambda x: x[:, :1].expand(2, -1, 4, -1),
    "expand_as": lambda x: x[:1].expand_as(x),
    "broadcast_to": lambda x: x[0].broadcast_to((2, 4, 5)),
    "narrow": lambda x: x.narrow(-1, -4, 3),
    "select": lambda x: x.select(1, -1),
    "unfold": lambda x: x.unfold(1, 2, 2).unfold(2, 3, 1),
    "diagonal": lambda x: x.diagonal(1, 2, 0),
    "split": lambda x: x.split(2, -1),
    "split sizes": lambda x: x.split([1, 3], 1),
    "chunk": lambda x: x.chunk(4, 2),
    "unbind": lambda x: x.unbind(1),
    "flip": lambda x: x.flip(0, 2),
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "tile": lambda x: x.tile(2),
    "contiguous": lambda x: x.mT.contiguous(),
    "clone": lambda x: x.clone(),
    "keyword dims": lambda x: x.flip(dims=(0, 2)).permute(dims=(2, 0, 1)).tile(dims=(2,)).reshape(shape=(-1, 8)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", SAME)
def test_same_code(name, dtype):
    atol = 0.05 if dtype == "bfloat16" else None  # torch rounds between the additions of a gradient
    check_against_torch(SAME[name], SAME[name], [A], dtype=dtype, atol=atol)


@pytest.mark.parametrize("name", SAME)
def test_strides_are_torchs(name):
    ours, theirs = _tuple(SAME[name](Tensor._wrap(A))), _tuple(SAME[name](torch.from_numpy(A)))
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        steps = [(s, t) for s, t, n in zip(a.stride(), b.stride(), b.shape, strict=True) if n > 1]
        assert [s for s, _ in steps] == [t for _, t in steps] and a.storage_offset() == b.storage_offset()


def _tuple(y):
    return y if isinstance(y, tuple) else (y,)


@pytest.mark.parametrize(
    ("widths", "mode"),
    [
        ((1, 2), "constant"),
        ((1, -2, 0, 3, -1, 1), "constant"),
        ((2, 1), "reflect"),
        ((4, 3, 2, 1), "reflect"),
        ((7, 1), "replicate"),
        ((2, 1, 6, 0), "replicate"),
        ((5, 1), "circular"),
        ((-2, 3), "circular"),
        ((2, -1, -1, 1), "circular"),
        ((-1, -3), "circular"),
        ((-2, 3), "reflect"),
    ],
)
def test_pad(widths, mode):
    x = A if len(widths) == 2 or mode == "constant" else A[None]
    check_against_torch(
        lambda x: padding.pad(x, widths, mode), lambda x: torch.nn.functional.pad(x, widths, mode), [x], dtype="float64"
    )


def test_one_hot():
    x = np.random.default_rng(2).integers(0, 4, (2, 3))
    for classes in (-1, 6):
        assert_same(
            embedding.one_hot(Tensor._wrap(x), classes),
            as_array(torch.nn.functional.one_hot(torch.from_numpy(x), classes)),
        )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_and_stack(dim):
    xs = [A, A * 2, A[::-1] + 1]
    check_against_torch(lambda *xs: flow.cat(xs, dim), lambda *xs: torch.cat(xs, dim), xs)
    check_against_torch(lambda *xs: flow.stack(xs, dim), lambda *xs: torch.stack(xs, dim), xs)


def test_promotion_of_joined_dtypes():
    names = ("uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool")
    for a in names:
        for b in names:
            ours = [flow.ones(1, dtype=flow.bool if n == "bool" else getattr(flow, n)) for n in (a, b)]
            theirs = torch.cat([torch.ones(1, dtype=getattr(torch, n)) for n in (a, b)])
            assert f"torch.{flow.cat(ours).dtype.name}" == str(theirs.dtype)


REFUSED = {
    "view size": lambda x: x.view(7, -1),
    "view strides": lambda x: x.mT.view(60),
    "two unknown": lambda x: x.reshape(-1, -1),
    "flatten": lambda x: x.flatten(2, 1),
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "unsqueeze": lambda x: x.unsqueeze(4),
    "transpose": lambda x: x.transpose(0, 3),
    "permute": lambda x: x.permute(0, 1),
    "permute twice": lambda x: x.permute(0, 1, 1),
    "expand": lambda x: x.expand(3, 4, 6),
    "expand fewer": lambda x: x.expand(5),
    "narrow": lambda x: x.narrow(0, 1, 3),
    "select": lambda x: x.select(0, 3),
    "unfold": lambda x: x.unfold(0, 4, 1),
    "split": lambda x: x.split([1, 1]),
    "chunk": lambda x: x.chunk(0),
    "flip": lambda x: x.flip(0, 0),
    "repeat": lambda x: x.repeat(2),
    "t": lambda x: x.t(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        REFUSED[name](torch.from_numpy(A))
    with pytest.raises((flow.errors.ShapeError, flow.errors.DimError, flow.errors.IndexRangeError)):
        REFUSED[name](Tensor._wrap(A))
