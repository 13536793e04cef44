"""PyTorch's own database of operators and samples of their inputs: every one that there is here too gives the same.

Results and gradients are compared, for random cotangents. What is refused here must be named in REFUSED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from compare import add_note, count_comparison
from database import Unknown, compare_gradients, compare_memory, compare_values, converted, flat, torch

import miniflow as flow
from miniflow import errors

database = pytest.importorskip(
    "torch.testing._internal.common_methods_invocations", reason="expecttest is not installed: pip install expecttest"
)

REFUSALS = (
    errors.ShapeError,
    errors.DTypeError,
    errors.ArgumentError,
    errors.AutogradError,
    errors.IndexRangeError,
    TypeError,
)
SAMPLES = 30  # of each operator
DTYPES = ("float64", "int64", "bool")
RANDOM = {  # compared are shapes and dtypes
    "bernoulli", "empty", "empty_like", "multinomial", "new_empty", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "rand_like", "randint", "randint_like",
    "randn", "randn_like",
}  # fmt: skip
OTHERWISE = {  # not compared
    "T": "an attribute", "mT": "an attribute", "slice": "OneFlow's function of that name",
    "where": "its samples are in another order", "einsum": "its samples are in another order",
    "nn.functional.embedding": "its samples are in another order",
    "nn.functional.embedding_bag": "its samples are in another order; see test_embedding",
    "as_strided": "its strides are of the memory, of which a copy is made here",
    "polygamma": "its samples are in another order", "special.polygamma": "its samples are in another order",
    "linalg.lstsq": "some samples have a part of the results; see test_functions",
    "sgn": "the gradient of torch is of a kind that NumPy cannot read",
    "normal": "that in place has its name too", "zero_": "its samples are leaves that require grad",
    "nn.functional.ctc_loss": "the gradient of torch supposes that log_softmax comes before; see test_loss",
    "linalg.eigh": "vectors have any sign", "linalg.svd": "vectors have any sign",
    "nn.functional.scaled_dot_product_attention": "some samples drop weights; see test_attention",
    "kthvalue": "of equal elements any has the index", "topk": "of equal elements any has the index",
    "mode": "of equal elements any has the index", "sort": "of equal elements any comes first",
    "argsort": "of equal elements any comes first",
    "index_copy": "elements that are overwritten have no gradient here",
    "nn.functional.max_unpool1d": "elements that are overwritten have no gradient here",
    "nn.functional.max_unpool2d": "elements that are overwritten have no gradient here",
    "nn.functional.max_unpool3d": "elements that are overwritten have no gradient here",
}  # fmt: skip
ANOTHER_DTYPE = {  # of integers and bools
    "addmv": "alpha and beta that are no integers are not rounded", "addr": "bools are numbers in a product",
    "addbmm": "alpha and beta that are no integers are not rounded",
    "baddbmm": "alpha and beta that are no integers are not rounded", "nan_to_num": "bools become int64",
}  # fmt: skip
REFUSED = {
    "gather": "an index without elements and with more dims", "linalg.matrix_rank": "hermitian",
    "linalg.pinv": "thresholds by position, and hermitian",
    "linalg.qr": "the gradient of fewer rows than columns",
    "masked_fill": "a number in bools", "masked_scatter": "a source that is broadcast",
    "nn.functional.avg_pool1d": "integers", "nn.functional.avg_pool2d": "integers, and an empty stride",
    "nn.functional.avg_pool3d": "integers", "nn.functional.batch_norm": "no channels",
    "nn.functional.conv1d": "integers", "nn.functional.conv2d": "integers", "nn.functional.conv3d": "integers",
    "nn.functional.conv_transpose1d": "integers", "nn.functional.conv_transpose2d": "integers",
    "nn.functional.conv_transpose3d": "integers", "nn.functional.feature_alpha_dropout": "fewer than two dims",
    "nn.functional.local_response_norm": "integers",
    "nn.functional.multi_margin_loss": "a score without dims", "norm": "the nuclear norm",
    "square": "bools",
}  # fmt: skip


def function_of(name: str) -> Callable | None:
    """The function of that name here, or the method."""
    found: Any = flow
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else flow.Tensor.__dict__.get(name)


KNOWN = sorted({op.name for op in database.op_db if function_of(op.name)} - OTHERWISE.keys())


def compare(op: Any, sample: Any, seed: int) -> None:
    """The results and the gradients of one sample."""
    leaves: list = []
    arguments = converted((sample.input, *sample.args), leaves)
    options = converted(sample.kwargs, leaves)
    want = flat(op.op(sample.input, *sample.args, **sample.kwargs))
    if any(isinstance(y, torch.Tensor) and y.is_complex() for y in want):
        raise Unknown
    got = flat(function_of(op.name)(*arguments, **options))
    compare_memory(got, want, flat(arguments), flat([sample.input, *sample.args]))
    if op.name not in RANDOM:
        compare_values(got, want)
        compare_gradients(got, want, leaves, np.random.default_rng(seed))
        return
    for ours, theirs in zip(got, want, strict=True):
        count_comparison()
        assert (ours.shape, str(ours.dtype)[9:]) == (tuple(theirs.shape), str(theirs.dtype)[6:])


def samples(op: Any, dtype: Any) -> Iterator[tuple[int, Any]]:
    if dtype not in op.dtypes:
        return iter(())
    torch.manual_seed(0)
    requires_grad = dtype.is_floating_point and op.supports_autograd
    return islice(enumerate(op.sample_inputs("cpu", dtype, requires_grad=requires_grad)), SAMPLES)


@pytest.mark.parametrize("name", KNOWN)
def test_samples(name):
    refusals = []
    count_comparison()  # some have complex samples only
    kinds = DTYPES[:1] if name in ANOTHER_DTYPE else DTYPES
    for op, kind in product([op for op in database.op_db if op.name == name], kinds):
        for seed, sample in samples(op, getattr(torch, kind)):
            try:
                compare(op, sample, seed)
            except Unknown:
                pass
            except REFUSALS as error:
                refusals.append(f"{kind} {sample.summary()[:200]}: {type(error).__name__}: {error}")
            except Exception as error:
                add_note(error, f"{kind} {sample.summary()[:400]}")
                raise
    assert bool(refusals) == (name in REFUSED), "\n".join(refusals) or "nothing is refused any more"
