"""Arguments and results of PyTorch's databases of samples, beside this framework's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import assert_close
from compare import as_array

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")


class Unknown(Exception):
    """Something among the arguments that there is not here."""


def converted(x: Any, leaves: list[tuple[Any, flow.Tensor]]) -> Any:
    """Arguments with tensors of this framework; `leaves` collects those that require grad beside PyTorch's."""
    if isinstance(x, torch.Tensor):
        again = [made for known, made in leaves if known is x]
        if again:
            return again[0]
        made = flow.from_numpy(x.detach().numpy().copy(order="K"))
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


def compare_values(got: list, want: list) -> None:
    """The results, element by element."""
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        if isinstance(theirs, torch.Tensor):
            rtol, atol = (1e-7, 1e-9) if theirs.dtype is torch.float64 else (2e-5, 1e-6)
            assert_close(ours, theirs, rtol=rtol, atol=atol * scale_of(theirs))


def compare_gradients(got: list, want: list, leaves: list, generator: np.random.Generator) -> None:
    """The gradients of the leaves; one that is missing counts as zero."""
    pairs = [(y, t) for y, t in zip(got, want, strict=True) if isinstance(t, torch.Tensor) and t.requires_grad]
    for constant in [t for y, t in pairs if not y.requires_grad and leaves]:  # PyTorch's gradient is zero
        theirs = torch.autograd.grad(constant.sum(), [x for x, _ in leaves], retain_graph=True, allow_unused=True)
        assert not any(g is not None and g.any() for g in theirs)
    pairs = [(y, t) for y, t in pairs if y.requires_grad]
    if not pairs or not leaves:
        return
    cotangents = [generator.standard_normal(t.shape) for _, t in pairs]
    given = [torch.tensor(c, dtype=t.dtype) for c, (_, t) in zip(cotangents, pairs, strict=True)]
    theirs = torch.autograd.grad([t for _, t in pairs], [x for x, _ in leaves], given, allow_unused=True)
    given = [flow.tensor(c).to(y.dtype) for c, (y, _) in zip(cotangents, pairs, strict=True)]
    ours = flow.autograd.grad([y for y, _ in pairs], [x for _, x in leaves], given, allow_unused=True)
    for mine, right, (x, _) in zip(ours, theirs, leaves, strict=True):
        mine, right = (np.zeros(x.shape) if g is None else g for g in (mine, right))
        assert_close(mine, right, rtol=1e-6, atol=1e-8 * scale_of(right), what="gradient")


def compare_memory(got: list, want: list, given: list, theirs: list) -> None:
    """A result is a view of an operand only where PyTorch has one too; of contiguous operands, as these are copies."""
    operands = [x for x in theirs if isinstance(x, torch.Tensor)]
    if not all(x.is_contiguous() for x in operands):
        return
    places = {x.untyped_storage().data_ptr() for x in operands}
    for ours, other in zip(got, want, strict=True):
        if isinstance(other, torch.Tensor) and other.untyped_storage().data_ptr() not in places:
            views = [x for x in given if isinstance(x, flow.Tensor) and np.shares_memory(x._array, ours._array)]
            assert not views, "the result is a view of an operand"
