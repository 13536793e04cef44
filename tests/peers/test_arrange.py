"""Arrangements, stacks and sums of products beside torch's: values and gradients, in all call forms."""

from __future__ import annotations

import numpy as np
import pytest
from checks import check_against_torch

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

DRAW = np.random.default_rng(0)
A, B, V, M = (DRAW.standard_normal(shape) for shape in ((3, 4, 5), (3, 5, 2), (4,), (4, 4)))
ZERO = np.array(2.0)

CALLS = [  # function, tensors, further arguments
    *[("roll", [A], args) for args in ((2,), ((1, -2), (0, 2)), (7, 1))],
    *[("rot90", [A], args) for args in ((1,), (2, (1, 2)), (3, (0, 2)), (-1, [1, 2]), (4,))],
    *[(name, [A], ()) for name in ("fliplr", "flipud", "ravel", "diag_embed")],
    *[("repeat_interleave", [A], args) for args in ((3,), (2, 1), (torch.tensor([1, 0, 2]), 0))],
    ("diag_embed", [A], (1, 0, 2)),
    ("diagflat", [M], (-1,)),
    ("trace", [M], ()),
    ("block_diag", [M, A[0], V, ZERO], ()),
    *[("tensor_split", [A], args) for args in ((3, 2), ([1, 3], 2), ([3, 1, 9], 1), ((-1,), -1))],
    ("hsplit", [A], (2,)),
    ("hsplit", [V], ([1, 2],)),
    ("vsplit", [A], (3,)),
    ("dsplit", [A], ([2],)),
    ("meshgrid", [V, B[0, 0], V], ()),
    ("cartesian_prod", [V, B[0, 0]], ()),
    ("broadcast_tensors", [A, V[:, None]], ()),
    *[(f"atleast_{n}d", [x], ()) for n in (1, 2, 3) for x in (ZERO, V, M, A)],
    ("inner", [A, np.tile(V[:, None], (1, 5))], ()),
    ("inner", [V, V], ()),
    ("mv", [M, V], ()),
    *[(name, [V, V], ()) for name in ("outer", "ger", "vdot")],
    ("kron", [A, M], ()),
    ("kron", [M, V], ()),
    ("tensordot", [M, A], ([[0], [1]],)),
    ("tensordot", [A, A], (3,)),
    ("tensordot", [M, V], (0,)),
]
LISTS = [(name, [V, V]) for name in ("hstack", "vstack", "dstack", "column_stack", "row_stack")]
LISTS += [(name, [M, M]) for name in ("hstack", "vstack", "dstack", "column_stack")] + [("atleast_2d", [V, A])]
EQUATIONS = [
    ("ij,jk->ik", M, M), ("bij,bjk->bik", A, B), ("bij,bjk", A, B), ("ii", M), ("ii->i", M), ("ij->ji", M),
    ("...ij->...ji", A), ("bij,bjk,kl->bil", A, B, M[:2]), ("i,j->ij", V, V), ("bij->b", A), ("i->", V), ("i,i", V, V),
    ("...ij,...jk->...ik", A, B), ("abc,cd->abd", A, M[:1].repeat(5, 0)), ("bij,ij->b", A, A[0]), ("ij,i->j", M, V),
    ("...,...->...", A, A), ("bi...,bi...->b...", A, A), ("nij,njk->nki", A, B), ("ij,j,i->", M, V, V),
    ("ij,ij", M[:1], M),
]  # fmt: skip


def ours(args):
    return [flow.tensor(x.numpy()) if isinstance(x, torch.Tensor) else x for x in args]


@pytest.mark.parametrize(("name", "tensors", "args"), CALLS, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CALLS)])
def test_functions(name, tensors, args):
    first, second = getattr(flow, name), getattr(torch, name)
    check_against_torch(lambda *xs: first(*xs, *ours(args)), lambda *xs: second(*xs, *args), tensors)


@pytest.mark.parametrize(("name", "tensors"), LISTS)
def test_lists_of_tensors(name, tensors):
    check_against_torch(lambda *xs: getattr(flow, name)(xs), lambda *xs: getattr(torch, name)(list(xs)), tensors)


@pytest.mark.parametrize(("equation", "tensors"), [(first, rest) for first, *rest in EQUATIONS])
def test_einsum(equation, tensors):
    first, second = flow.einsum, torch.einsum
    check_against_torch(lambda *xs: first(equation, *xs), lambda *xs: second(equation, *xs), tensors)
    want = second(equation, [torch.tensor(x) for x in tensors]).numpy()
    np.testing.assert_allclose(first(equation, [flow.tensor(x) for x in tensors]).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("addmv", ((4,), (4, 5), (5,))), ("addr", ((4, 5), (4,), (5,))), ("baddbmm", ((3, 4, 2), (3, 4, 5), (3, 5, 2))),
     ("addbmm", ((4, 2), (3, 4, 5), (3, 5, 2))), ("addmm", ((2,), (3, 4), (4, 2)))],
)  # fmt: skip
def test_sums_with_products(name, shapes):
    tensors = [DRAW.standard_normal(shape) for shape in shapes]
    for factors in ({}, {"beta": 0.5, "alpha": -2}, {"beta": 0}):
        check_against_torch(
            lambda *xs, f=factors: getattr(flow, name)(*xs, **f),
            lambda *xs, f=factors: getattr(torch, name)(*xs, **f),
            tensors,
            grad=[0, 1, 2] if factors.get("beta") != 0 else [1, 2],  # what is not read has none; torch has zeros
        )


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "got 1 tensors"),
        ("ij->i", [(2, 3, 4)], "expected a letter for each dim"),
        ("ij->k", [(2, 3)], "expected letters of the operands"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "got sizes 3 and 4 of 'j'"),
        ("ii->i", [(2, 3)], "expected equal sizes of 'i'"),
    ],
)
def test_wrong_equations(equation, shapes, message):
    with pytest.raises(ValueError, match=message):
        flow.einsum(equation, *[flow.zeros(shape) for shape in shapes])


def test_tensor_types():
    x = flow.FloatTensor([1, 2])
    assert x.type() == "miniflow.FloatTensor" and isinstance(x, flow.FloatTensor) and not isinstance(x, flow.LongTensor)
    assert x.type(flow.LongTensor).dtype is x.type("torch.LongTensor").dtype is x.long().dtype is flow.long
    assert flow.IntTensor(2, 3).shape == (2, 3) and flow.DoubleTensor().dtype is flow.double
    with pytest.raises(ValueError, match="expected a dtype, or one of BoolTensor"):
        x.type("torch.QuantTensor")
