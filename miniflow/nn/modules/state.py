"""Loading the values of parameters and buffers into a module, all or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from miniflow.dispatch.tape import no_grad
from miniflow.errors import CheckpointError
from miniflow.nn.parameter import Parameter
from miniflow.ops.creation import tensor
from miniflow.tensor import Tensor


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found on one side only."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def load(
    name: str, target: Mapping[str, Tensor], state_dict: Mapping[str, Any], strict: bool, owners: Mapping | None,
    setters: Mapping[str, Callable[[Any], None]],
) -> IncompatibleKeys:  # fmt: skip
    """`load_state_dict` of modules and graphs: compare every entry with `target`, the present state, then copy.

    If `owners` has (module, attribute name) for each key, values are assigned instead of copied. Entries that are no
    tensors are given to `setters`.
    """
    if not isinstance(state_dict, Mapping):
        raise CheckpointError(
            f"{name}.load_state_dict: got a {type(state_dict).__name__}; expected a dict of tensors from state_dict()"
        )
    missing = [key for key in (*target, *setters) if key not in state_dict]
    unexpected = [key for key in state_dict if key not in target and key not in setters]
    problems = []
    for key in target:
        if key in state_dict and not _fits(state_dict[key], target[key]):
            problems.append(f"size mismatch for {key}: {_describe(state_dict[key])}; expected {_describe(target[key])}")
        elif key in state_dict and not owners and (problem := place_problem(state_dict[key], target[key])):
            problems.append(f"{key} is {problem}")
    if strict:
        expected = {key: _describe(target[key]) if key in target else "an extra state" for key in missing}
        problems += [f"{key} is missing; expected {what}" for key, what in expected.items()]
        problems += [f"{key} is unexpected: {_describe(state_dict[key])}" for key in unexpected]
    if problems:
        remedy = "build the module as it was when saved"
        if missing or unexpected:
            remedy += ", or pass strict=False to ignore missing and unexpected keys"
        lines = "".join(f"\n    {problem}" for problem in problems)
        raise CheckpointError(f"{name}.load_state_dict: nothing was loaded, {remedy}:{lines}")
    with no_grad():
        for key, value in target.items():
            if key in state_dict and owners:
                setattr(*owners[key], _assigned(state_dict[key], value))
            elif key in state_dict:
                value.copy_(state_dict[key])
    for key, setter in setters.items():
        if key in state_dict:
            setter(state_dict[key])
    return IncompatibleKeys(missing, unexpected)


def _assigned(value: Any, target: Tensor) -> Tensor:
    """The new parameter or buffer that replaces `target` (`load_state_dict(assign=True)`)."""
    value = value if isinstance(value, Tensor) else tensor(value)
    if not isinstance(target, Parameter):
        return value
    if isinstance(value, Parameter):
        return value.requires_grad_(target.requires_grad)
    return Parameter(value, target.requires_grad)


def _fits(value: Any, target: Tensor) -> bool:
    return isinstance(value, Tensor | np.ndarray) and tuple(value.shape) == tuple(target.shape)


def place_problem(value: Any, target: Tensor) -> str:
    """Why a value cannot be copied into `target`: only one of them is a global tensor; "" if it can."""
    if (isinstance(value, Tensor) and value.is_global) == target.is_global:
        return ""
    if target.is_global:
        return "local; expected a global tensor: use to_global(placement, sbp)"
    return "a global tensor; expected a local one: use to_global(sbp=flow.sbp.broadcast).to_local()"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}, not a Tensor"
