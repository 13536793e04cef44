"""Reductions against torch: values, dtypes, NaN, ties, empty tensors and gradients."""

from math import inf, nan

import numpy as np
import pytest
from checks import as_array, assert_close, check_against_torch, torch_tensor

import miniflow as flow
from miniflow.tensor import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

RNG = np.random.default_rng(4)
A = RNG.normal(size=(3, 4, 5))
TIES = RNG.integers(0, 3, A.shape).astype(np.float64)

OVER_DIMS = {
    "sum": lambda x, dim, keepdim: x.sum(dim, keepdim),
    "mean": lambda x, dim, keepdim: x.mean(dim, keepdim),
    "amax": lambda x, dim, keepdim: x.amax(dim, keepdim),
    "amin": lambda x, dim, keepdim: x.amin(dim, keepdim),
    "var": lambda x, dim, keepdim: x.var(dim, keepdim=keepdim),
    "std": lambda x, dim, keepdim: x.std(dim, correction=0, keepdim=keepdim),
    "logsumexp": lambda x, dim, keepdim: x.logsumexp(dim, keepdim),
    "norm": lambda x, dim, keepdim: x.norm(2, dim, keepdim),
    "norm 3": lambda x, dim, keepdim: x.norm(3, dim, keepdim),
}


FULL = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "prod": lambda x: x.prod(),
    "prod dim": lambda x: x.prod(1, keepdim=True),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max dim": lambda x: x.max(1),
    "min dim": lambda x: x.min(-1, keepdim=True),
    "var": lambda x: x.var(),
    "var biased": lambda x: x.var(False),
    "std": lambda x: x.std(correction=2),
    "norm": lambda x: x.norm(),
    "norm 1": lambda x: x.norm(1),
    "norm inf": lambda x: x.norm(inf),
    "norm -inf": lambda x: x.norm(-inf, 0),
    "norm 1.5": lambda x: x.norm(1.5),
}


@pytest.mark.parametrize("name", ["max", "min", "max dim", "min dim", "prod"])
def test_gradients_at_ties(name):
    check_against_torch(FULL[name], FULL[name], [TIES], dtype="float64")


COUNTING = {
    "argmax": lambda x: x.argmax(),
    "argmin dim": lambda x: x.argmin(1, keepdim=True),
    "any": lambda x: x.any(),
    "all dims": lambda x: x.all((0, 1)),
    "norm 0": lambda x: x.norm(0, 1),
}


@pytest.mark.parametrize("name", COUNTING)
def test_without_gradients(name):
    check_against_torch(COUNTING[name], COUNTING[name], [TIES], grad=False)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16"])
def test_result_dtypes(dtype):
    x = torch.tensor([[1, 0, 1], [1, 1, 0]]).to(getattr(torch, dtype))
    t = Tensor._wrap(as_array(x).copy())
    for function in (
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.prod(1),
        lambda x: x.amax(),
        lambda x: x.max(0),
        lambda x: x.argmin() if dtype != "bool" else x.sum(),
    ):
        ours, theirs = function(t), function(x)
        for a, b in zip(
            ours if isinstance(ours, tuple) else (ours,),
            theirs if isinstance(theirs, tuple) else (theirs,),
            strict=True,
        ):
            assert_close(a, as_array(b))


def test_half_precision_is_added_in_float32():
    x = RNG.normal(size=(300, 70)).astype(np.float16)
    for dim in (0, 1, (0, 1)):
        assert_close(Tensor._wrap(x).sum(dim), as_array(torch_tensor(x).sum(dim)), rtol=2e-3)


def test_nan():
    x = A.copy()
    x[1, 2, 3] = nan
    for function in (*FULL.values(), *(lambda x, f=f: f(x, (0, 1), False) for f in OVER_DIMS.values())):
        check_against_torch(function, function, [x], grad=False, dtype="float64")


REFUSED = {
    "sum": lambda x: x.sum(3),
    "twice": lambda x: x.sum((0, 0)),
    "mean of integers": lambda x: x.long().mean(),
    "amax of none": lambda x: x[:0].amax(0),
    "max of none": lambda x: x[:0].max(),
    "argmax of none": lambda x: x[:0].argmax(0),
    "var of integers": lambda x: x.long().var(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        REFUSED[name](torch_tensor(A))
    with pytest.raises((flow.errors.ShapeError, flow.errors.DTypeError, flow.errors.DimError)):
        REFUSED[name](Tensor._wrap(A))
