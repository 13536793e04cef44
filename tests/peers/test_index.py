"""Indexing against torch: what `x[index]` and `x[index] = value` pick, their gradients, and gather and its kin."""

import numpy as np
import pytest
from checks import as_array, assert_same, check_against_torch, torch_tensor

import miniflow as flow
from miniflow.tensor import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

RNG = np.random.default_rng(3)
A = RNG.normal(size=(4, 5, 3))
MASK = RNG.random(A.shape) > 0.4
ROWS, COLUMN = np.array([2, 0, -1, 2]), np.array([[0], [-1]])

INDICES = [
    1,
    (-1, slice(1, 4, 2)),
    (..., 2),
    (None, 0, ..., None),
    ROWS,
    (slice(None), ROWS),
    (ROWS, ROWS),
    (ROWS, COLUMN),
    (ROWS, slice(None), np.array([0, 1, 2, 0])),
    (1, slice(None), ROWS),
    (ROWS, 1),
    (slice(None), 1, COLUMN),
    (ROWS, 1, np.array([0, 1, 2, 0])),
    (ROWS, None, np.array([0, 1, 2, 0])),
    (None, ROWS, ..., None),
    (slice(1, None), np.array([1, 1]), slice(0, 2)),
    MASK,
    MASK[:, 0, 0],
    (MASK[:, :, 0], 1),
    (slice(None), MASK[0]),
    (MASK[:, 0, 0], slice(None), np.array([0])),
    True,
    (False, 0),
    np.array(2),
    (np.array(2), ROWS),
]


def torchs(index):
    def convert(part):
        return torch_tensor(part) if isinstance(part, np.ndarray) else part

    return tuple(convert(part) for part in index) if isinstance(index, tuple) else convert(index)


def ours(index):
    def convert(part):
        return Tensor._wrap(part) if isinstance(part, np.ndarray) else part

    return tuple(convert(part) for part in index) if isinstance(index, tuple) else convert(index)


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", "")[:40])
def test_get_item(index):
    check_against_torch(lambda x: x[ours(index)], lambda x: x[torchs(index)], [A])
    check_against_torch(lambda x: x[index], lambda x: x[torchs(index)], [A])


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", "")[:40])
def test_set_item(index):
    value = RNG.normal(size=tuple(torch.from_numpy(A)[torchs(index)].shape))

    def written(x, value, index):
        y = x.clone()
        y[index] = value
        return y

    counts = torch.zeros(A.shape)
    counts.index_put_(_full(index), torch.ones(()), accumulate=True)
    if counts.max() <= 1:  # torch does not say which of several values counts
        check_against_torch(
            lambda x, value: written(x, value, ours(index)),
            lambda x, value: written(x, value, torchs(index)),
            [A, value],
        )
    for scalar in (3, -0.5, True):
        x, y = Tensor._wrap(A.copy()), torch_tensor(A)
        x[ours(index)], y[torchs(index)] = scalar, scalar
        assert_same(x, as_array(y))


def _full(index):
    cells = torch.arange(A.size).reshape(A.shape)[torchs(index)]
    return tuple(torch.from_numpy(np.array(np.unravel_index(cells.numpy(), A.shape))))


def test_gather_and_its_kin():
    i, src = RNG.integers(0, 5, (3, 4, 2)), RNG.normal(size=(3, 5, 2))
    rows, source = np.array([3, 0, 3]), RNG.normal(size=(3, 5, 3))
    places = np.argsort(RNG.random((3, 4, 2)), 1)
    cases = [
        (lambda x, i: x.gather(1, i), [A, i]),
        (lambda x, i, s: x.scatter(1, i, s), [A, places, src[:, :4]]),
        (lambda x, i, s: x.scatter_add(1, i, s), [A, i, src[:, :4]]),
        (lambda x, i: x.index_select(0, i), [A, rows]),
        (lambda x, i, s: x.index_add(0, i, s, alpha=-2), [A, rows, source]),
        (lambda x, i: x.take_along_dim(i[:1], 1), [A[..., :2], i]),
        (lambda x, m: x.masked_fill(m, -2.0), [A, MASK]),
        (lambda x, m: x.masked_select(m[0]), [A, MASK]),
        (lambda x, m: m.nonzero(), [A, MASK]),
    ]
    for position, (function, inputs) in enumerate(cases):
        for dtype in ("float32", "float64"):
            check_against_torch(function, function, inputs, dtype=dtype, grad=(0,) if position < 8 else False)
    for function, inputs in (cases[1], cases[2], cases[4]):
        check_against_torch(function, function, inputs, grad=(0, 2), dtype="float64")


REFUSED = {
    "int": lambda x, t: x[4],
    "too many": lambda x, t: x[0, 0, 0, 0],
    "step": lambda x, t: x[::-1],
    "list": lambda x, t: x[[0, 4]],
    "negative": lambda x, t: x[[-5]],
    "shapes": lambda x, t: x[[0, 1], [0, 1, 2]],
    "mask": lambda x, t: x[t([True, False])],
    "float": lambda x, t: x[t([0.0])],
    "gather": lambda x, t: x.gather(0, t([[[4]]])),
    "gather negative": lambda x, t: x.gather(0, t([[[-1]]])),
    "gather dims": lambda x, t: x.gather(0, t([1])),
    "index_select": lambda x, t: x.index_select(0, t([4])),
    "set shape": lambda x, t: x.__setitem__(0, t([1.0, 2.0])),
    "set range": lambda x, t: x.__setitem__(4, 0.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        REFUSED[name](torch_tensor(A), torch.tensor)
    with pytest.raises((flow.errors.ShapeError, flow.errors.DTypeError, flow.errors.IndexRangeError)):
        REFUSED[name](Tensor._wrap(A.copy()), flow.tensor)
