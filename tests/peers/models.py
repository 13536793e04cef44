"""Models of torchvision and timm, whose source is unmodified, on miniflow beside torch.

Each library is imported twice: as it is, and while `import torch` gives miniflow.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from compare import count_comparison

import miniflow as flow
from benchmarks.models import declare_operators

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
LIBRARIES = ("torchvision", "timm")
BATCH = 2  # of one image torch takes the gradient of batch_norm wrongly if it comes with the channels last
OUTPUT, GRADIENT = 1e-4, 1e-2  # tolerances
SMALLEST = 1e-5  # gradients this much smaller than the largest may be zero but for rounding
ours: dict[str, ModuleType] = {}


def needed(name: str) -> ModuleType:
    """A library on torch; the test is skipped where it is absent."""
    pytest.importorskip(name, reason=f"{name} is not installed: pip install --no-deps {name}", exc_type=ImportError)
    return importlib.import_module(name)


def taken() -> dict[str, ModuleType]:
    """The modules of the libraries, out of `sys.modules`."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in LIBRARIES}


if importlib.util.find_spec("torchvision"):
    declare_operators(torch)


@contextmanager
def on_miniflow() -> Iterator[None]:
    """Where `import torch` gives miniflow, and importing a library its copy on it."""
    theirs = taken()
    sys.modules.update(ours)
    try:
        with flow.mock_torch.enable():
            yield
    finally:
        ours.update(taken())
        sys.modules.update(theirs)


def vary(model: Any) -> None:
    """Change what is the same all over, as zeros in the last layer of a branch, or no model would use that branch."""
    for value in model.state_dict().values():
        if value.is_floating_point() and (value == value.flatten()[0]).all():
            value += 0.4 * torch.rand_like(value) - 0.2


def state_of(theirs: Any) -> dict[str, flow.Tensor]:
    """The parameters and buffers of a model on torch."""
    return {name: flow.tensor(value.numpy()) for name, value in theirs.state_dict().items()}


def compare(library: str, make: Callable[[ModuleType], Any], size: int) -> None:
    """Outputs of a model in evaluation, and the gradients of all its parameters, are those under torch.

    Args:
        library: that has the model.
        make: of the library, a model of images.
        size: of the images.
    """
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    images = draw.standard_normal((BATCH, 3, size, size), np.float32)
    theirs = make(needed(library)).eval()
    vary(theirs)
    want = theirs(torch.tensor(images))
    cotangent = draw.standard_normal(want.shape, np.float32)
    want.backward(torch.tensor(cotangent))
    with on_miniflow():
        model = make(importlib.import_module(library)).eval()
        model.load_state_dict(state_of(theirs))
        got = model(flow.tensor(images))
        got.backward(flow.tensor(cotangent))
    compare_values(got, want)
    compare_gradients(model, theirs)


def compare_values(got: Any, want: Any, what: str = "output") -> None:
    """Within the tolerance of the largest."""
    got, want = got.detach().numpy(), want.detach().numpy()
    assert got.shape == want.shape and got.dtype == want.dtype
    error, largest = (np.abs(x).max(initial=0) for x in (got - want, want))
    assert error <= OUTPUT * largest, f"{what} is off by {error:.1e}, of values up to {largest:.1e}"
    count_comparison()


def compare_gradients(model: Any, theirs: Any) -> None:
    """Of all parameters, each within the tolerance of its norm."""
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    largest = max(float(g.norm()) for g in gradients.values() if g is not None)
    for name, p in model.named_parameters():
        want = gradients.pop(name)
        assert (want is None) == (p.grad is None), name
        if want is not None:
            error = np.linalg.norm(p.grad.numpy() - want.numpy()) / max(float(want.norm()), SMALLEST * largest)
            assert error <= GRADIENT, f"the gradient of {name} is off by {error:.1e} of its norm"
    assert not gradients
    count_comparison()
