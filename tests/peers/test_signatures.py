"""Functions and methods take the parameters of torch's, in torch's order, but for the differences listed here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

PLACES = {
    "torch": (torch, flow),
    "torch.nn.functional": (torch.nn.functional, flow.nn.functional),
    "torch.Tensor": (torch.Tensor, flow.Tensor),
    "torch.linalg": (torch.linalg, getattr(flow, "linalg", None)),
}
NOWHERE = {
    # deprecated in favour of `reduction`, or internal
    "size_average", "reduce", "_stacklevel",
    # results go to `out`, memory layouts and named dims are not there
    "out", "layout", "pin_memory", "memory_format", "names",
    # other kinds of gradients and results
    "sparse_grad", "out_dtype",
}  # fmt: skip
# what torch.overrides lists otherwise than torch's documentation, which is followed here
MISPRINTED = {
    "addbmm", "baddbmm", "broadcast_to", "diag_embed", "dot", "vdot", "dropout", "isfinite", "isinf", "permute", "tile",
    "max_pool3d", "where", "expand", "repeat", "uniform_", "isin", "xlogy", "xlogy_", "msort", "topk", "put_",
    "addbmm_", "baddbmm_", "index_reduce", "index_reduce_", "polygamma", "split_with_sizes",
}  # fmt: skip
INTENDED = {
    "l1_loss": "no weight: multiply the losses of reduction='none'",
    "mse_loss": "as l1_loss",
    "huber_loss": "as l1_loss",
    "to": "dtype and device come in any order",
    "type": "no non_blocking",
    "swapdims": "the parameters are dim0 and dim1, as those of transpose",
    "swapdims_": "as swapdims",
}


def parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def differences() -> Iterator[tuple[str, str]]:
    """(name, what differs) of all functions that both libraries have."""
    for theirs, listed in torch.overrides.get_testing_overrides().items():
        name = getattr(theirs, "__name__", "")
        for place, (one, other) in PLACES.items():
            if name.startswith("__") or getattr(one, name, None) is not theirs or not hasattr(other, name):
                continue
            wanted = [p.name for p in parameters(listed) if p.kind != p.VAR_KEYWORD and p.name not in NOWHERE]
            ours = parameters(getattr(other, name))
            if any(p.kind == p.VAR_KEYWORD for p in ours):  # options such as dtype and device
                wanted = [n for n in wanted if n not in ("dtype", "device", "requires_grad")]
            if place == "torch.Tensor":  # without self
                wanted, ours = wanted[1:], ours[1:]
            if wanted != [p.name for p in ours if p.name in wanted]:
                yield name, f"{place}.{name} takes {wanted}; here it takes {[p.name for p in ours]}"


def test_parameters_are_those_of_torch():
    found = [text for name, text in differences() if name not in MISPRINTED | INTENDED.keys()]
    assert found == []


def test_the_list_is_current():
    found = {name for name, _ in differences()}
    assert sorted((MISPRINTED | INTENDED.keys()) - found) == []


def test_numpy_names_and_sizes_by_keyword():
    x = flow.zeros(size=(2, 3))
    assert x.sum(axis=0, keepdims=True).shape == (1, 3) and flow.cat([x, x], axis=1).shape == (2, 6)
    assert x.permute(dims=(1, 0)).shape == flow.permute(input=x, dims=(1, 0)).shape == (3, 2)
    assert x.reshape(shape=(3, 2)).shape == (3, 2) and flow.rand(size=(4,)).shape == (4,)
    assert flow.mean(x, axis=1).shape == (2,) and flow.flip(x, dims=[0]).shape == (2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sideways'"):
        x.sum(sideways=1)
