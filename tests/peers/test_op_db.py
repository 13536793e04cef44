"""PyTorch's own database of operators and samples of their inputs: every one that there is here too gives the same.

Results and gradients are compared, for random cotangents. What is refused here must be named in REFUSED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from checks import assert_close
from compare import as_array, count_comparison

import miniflow as flow
from miniflow import errors

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
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
    "as_strided": "its strides are of the memory, of which a copy is made here",
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
    "gather": "an index without elements and with more dims", "isclose": "bools", "linalg.matrix_rank": "no elements",
    "linalg.pinv": "no elements", "linalg.qr": "the gradient of fewer rows than columns", "logit": "integers",
    "logsumexp": "integers", "masked_fill": "a number in bools", "masked_scatter": "a source that is broadcast",
    "nn.functional.adaptive_avg_pool3d": "no elements", "nn.functional.avg_pool1d": "integers",
    "nn.functional.avg_pool2d": "integers, and an empty stride", "nn.functional.avg_pool3d": "integers",
    "nn.functional.batch_norm": "no channels", "nn.functional.conv1d": "integers", "nn.functional.conv2d": "integers",
    "nn.functional.conv3d": "integers", "nn.functional.conv_transpose1d": "integers",
    "nn.functional.conv_transpose2d": "integers, and an output padding that only the dilation allows",
    "nn.functional.conv_transpose3d": "integers, and an output padding that only the dilation allows",
    "nn.functional.feature_alpha_dropout": "fewer than two dims", "nn.functional.hardtanh": "integers",
    "nn.functional.local_response_norm": "integers",
    "nn.functional.max_pool2d": "integers", "nn.functional.max_pool3d": "integers",
    "nn.functional.multi_margin_loss": "a score without dims", "nn.functional.relu6": "integers",
    "nn.functional.softsign": "integers", "nn.functional.tanhshrink": "integers", "norm": "the nuclear norm",
    "pinverse": "no elements", "sign": "bools", "square": "bools", "take_along_dim": "negative indices",
}  # fmt: skip


def function_of(name: str) -> Callable | None:
    """The function of that name here, or the method."""
    found: Any = flow
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else flow.Tensor.__dict__.get(name)


KNOWN = sorted({op.name for op in database.op_db if function_of(op.name)} - OTHERWISE.keys())


class Unknown(Exception):
    """Something among the arguments that there is not here."""


def converted(x: Any, leaves: list[tuple[Any, flow.Tensor]]) -> Any:
    """Arguments with tensors of this framework; `leaves` collects those that require grad beside PyTorch's."""
    if isinstance(x, torch.Tensor):
        made = flow.from_numpy(x.detach().numpy().copy())
        if x.requires_grad:
            leaves.append((x, made.requires_grad_()))
        return made
    if isinstance(x, torch.dtype):
        return getattr(flow, str(x).removeprefix("torch."))
    if isinstance(x, list | tuple):
        return [converted(v, leaves) for v in x] if type(x) is list else tuple([converted(v, leaves) for v in x])
    if isinstance(x, dict):
        return {name: converted(v, leaves) for name, v in x.items()}
    if isinstance(x, torch.layout | torch.memory_format) or callable(x):
        raise Unknown
    return "cpu" if isinstance(x, torch.device) else x


def flat(results: Any) -> list[Any]:
    """The tensors and numbers in a result."""
    return [y for x in results for y in flat(x)] if isinstance(results, list | tuple) else [results]


def scale_of(x: Any) -> float:
    """The largest finite element, at least 1."""
    array = as_array(x).astype(np.float64)
    return float(np.abs(array[np.isfinite(array)]).max(initial=1))


def compare(op: Any, sample: Any, seed: int) -> None:
    """The results and the gradients of one sample."""
    leaves: list = []
    arguments = converted((sample.input, *sample.args), leaves)
    options = converted(sample.kwargs, leaves)
    want = flat(op.op(sample.input, *sample.args, **sample.kwargs))
    if any(isinstance(y, torch.Tensor) and y.is_complex() for y in want):
        raise Unknown
    got = flat(function_of(op.name)(*arguments, **options))
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        if isinstance(theirs, torch.Tensor) and op.name not in RANDOM:
            rtol, atol = (1e-7, 1e-9) if theirs.dtype is torch.float64 else (2e-5, 1e-6)
            assert_close(ours, theirs, rtol=rtol, atol=atol * scale_of(theirs))
        elif isinstance(theirs, torch.Tensor):
            count_comparison()
            assert (ours.shape, str(ours.dtype)[9:]) == (tuple(theirs.shape), str(theirs.dtype)[6:])
    differentiable = [y.requires_grad for y in want if isinstance(y, torch.Tensor)]
    if leaves and any(differentiable) and op.name not in RANDOM:
        compare_gradients(got, want, leaves, np.random.default_rng(seed))


def compare_gradients(got: list, want: list, leaves: list, generator: np.random.Generator) -> None:
    """The gradients of the leaves; one that is missing counts as zero."""
    pairs = [(y, t) for y, t in zip(got, want, strict=True) if isinstance(t, torch.Tensor) and t.requires_grad]
    for constant in [t for y, t in pairs if not y.requires_grad]:  # PyTorch's gradient is zero
        theirs = torch.autograd.grad(constant.sum(), [x for x, _ in leaves], retain_graph=True, allow_unused=True)
        assert not any(g is not None and g.any() for g in theirs)
    pairs = [(y, t) for y, t in pairs if y.requires_grad]
    if not pairs:
        return
    cotangents = [generator.standard_normal(t.shape) for _, t in pairs]
    given = [torch.tensor(c, dtype=t.dtype) for c, (_, t) in zip(cotangents, pairs, strict=True)]
    theirs = torch.autograd.grad([t for _, t in pairs], [x for x, _ in leaves], given, allow_unused=True)
    given = [flow.tensor(c).to(y.dtype) for c, (y, _) in zip(cotangents, pairs, strict=True)]
    ours = flow.autograd.grad([y for y, _ in pairs], [x for _, x in leaves], given, allow_unused=True)
    for mine, right, (x, _) in zip(ours, theirs, leaves, strict=True):
        mine, right = (np.zeros(x.shape) if g is None else g for g in (mine, right))
        assert_close(mine, right, rtol=1e-6, atol=1e-8 * scale_of(right), what="gradient")


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
                error.add_note(f"{kind} {sample.summary()[:400]}")
                raise
    assert bool(refusals) == (name in REFUSED), "\n".join(refusals) or "nothing is refused any more"
