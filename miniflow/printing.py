"""How tensors print: `tensor([[1., 2.]], dtype=miniflow.float32)`, as OneFlow writes them, in PyTorch's number formats.

All numbers of a tensor share one format and one width. Tensors of more than `threshold` elements show the first and
last `edgeitems` of each dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniflow.backends.memory import to_host
from miniflow.errors import ArgumentError
from miniflow.tensor import Tensor


@dataclass
class PrintOptions:
    """What `set_printoptions` sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()
PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print; what is not given stays as it is.

    Args:
        precision: digits after the point (4).
        threshold: more elements than this are summarised (1000).
        edgeitems: how many items are shown at each end of a summarised dim (3).
        linewidth: characters a line (80).
        profile: "default", "short" or "full" resets all of them first.
        sci_mode: True for scientific notation, False for none; without it, or after a profile, the values decide.

    Raises:
        ArgumentError: for an unknown profile or a negative number.

    >>> import miniflow as flow
    >>> flow.set_printoptions(precision=2)
    >>> flow.tensor(1 / 3)
    tensor(0.33, dtype=miniflow.float32)
    >>> flow.set_printoptions(profile="default")

    Source: `torch.set_printoptions`.
    """
    if profile is not None and profile not in PROFILES:
        raise ArgumentError(f"set_printoptions: got profile={profile!r}; expected one of {', '.join(PROFILES)}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None and not value >= 0:
            raise ArgumentError(f"set_printoptions: got {name}={value}; expected a number of at least 0")
    if profile is not None:
        vars(OPTIONS).update(vars(PROFILES[profile]))
    vars(OPTIONS).update({name: value for name, value in given.items() if value is not None})
    OPTIONS.sci_mode = sci_mode


def tensor_repr(tensor: Tensor) -> str:
    """The printed form of a tensor: its values, then what they do not show.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 2.5], requires_grad=True) * 2
    tensor([2., 5.], dtype=miniflow.float32, grad_fn=<mul_backward>)
    """
    prefix = "tensor("
    if getattr(tensor._array, "is_symbolic", False):  # within nn.Graph.build there are no values
        return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype}, is_lazy='True')"
    body = "[]" if tensor.numel() == 0 else values_text(to_host(tensor._array), len(prefix))
    return add_suffixes(prefix + body, suffixes_of(tensor), len(prefix))


def suffixes_of(tensor: Tensor) -> list[str]:
    """Device, size (of empty tensors, where the brackets do not show it), dtype, and the place on the tape."""
    suffixes = []
    if tensor.device.type != "cpu":
        suffixes.append(f"device='{tensor.device}'")
    if tensor.numel() == 0 and tensor.ndim != 1:
        suffixes.append(f"size={tuple(tensor.shape)}")
    suffixes.append(f"dtype={tensor.dtype}")
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn={tensor.grad_fn}")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def add_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    """Append the suffixes, on a new line where the last one would become too long, and the closing parenthesis."""
    last_line = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last_line + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            last_line = indent + len(suffix)
        else:
            text += ", " + suffix
            last_line += len(suffix) + 2
    return text + ")"


def values_text(array: np.ndarray, indent: int) -> str:
    """The nested brackets with the numbers; continuation lines start `indent` columns in."""
    if array.dtype.kind == "V" or array.dtype == np.float16:  # half types print as the float32 of equal value
        array = array.astype(np.float32)
    summarize = array.size > OPTIONS.threshold
    write, width = number_format(shown(array) if summarize else array)
    return block_text(array, indent, summarize, write, width)


def shown(array: np.ndarray) -> np.ndarray:
    """The elements that a summary shows: the first and last `edgeitems` along each dim."""
    edge = OPTIONS.edgeitems
    for dim, size in enumerate(array.shape):
        if size > 2 * edge:
            array = np.take(array, [*range(edge), *range(size - edge, size)], axis=dim)
    return array


def number_format(array: np.ndarray) -> tuple[Callable[[Any], str], int]:
    """The function that writes one number, and the width to which all are padded."""
    if array.dtype.kind != "f":
        return str, max((len(str(value)) for value in array.ravel().tolist()), default=1)
    finite = array[np.isfinite(array) & (array != 0)].astype(np.float64)
    whole = bool((finite == np.ceil(finite)).all())
    form = f".{OPTIONS.precision}e" if scientific(finite, whole) else ".0f" if whole else f".{OPTIONS.precision}f"
    point = "." if form == ".0f" else ""

    def write(value: float) -> str:
        return f"{value:{form}}" + (point if math.isfinite(value) else "")

    return write, max((len(write(value)) for value in finite.tolist()), default=1)


def scientific(finite: np.ndarray, whole: bool) -> bool:
    """PyTorch's rule: when the magnitudes span more than 1000, or are very large, or (for fractions) very small."""
    if finite.size == 0:
        return False
    if OPTIONS.sci_mode is not None:
        return OPTIONS.sci_mode
    magnitudes = np.abs(finite)
    largest, smallest = magnitudes.max().item(), magnitudes.min().item()
    return largest / smallest > 1000.0 or largest > 1.0e8 or (not whole and smallest < 1.0e-4)


def block_text(array: np.ndarray, indent: int, summarize: bool, write: Callable[[Any], str], width: int) -> str:
    """One level of brackets around what `array` holds."""
    if array.ndim == 0:
        return write(array.item()).rjust(width)
    if array.ndim == 1:
        return line_text(array, indent, summarize, write, width)
    edge = OPTIONS.edgeitems
    if summarize and len(array) > 2 * edge:
        first, last = array[:edge], array[len(array) - edge :]
        parts = [block_text(a, indent + 1, summarize, write, width) for a in first]
        parts += ["..."] + [block_text(a, indent + 1, summarize, write, width) for a in last]
    else:
        parts = [block_text(a, indent + 1, summarize, write, width) for a in array]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def line_text(array: np.ndarray, indent: int, summarize: bool, write: Callable[[Any], str], width: int) -> str:
    """The innermost brackets, broken into lines of equally many numbers."""
    edge = OPTIONS.edgeitems
    per_line = max(1, (OPTIONS.linewidth - indent) // (width + 2))
    if summarize and edge == 0:
        items = ["..."]
    elif summarize and len(array) > 2 * edge:
        first, last = array[:edge].tolist(), array[len(array) - edge :].tolist()
        items = [write(v).rjust(width) for v in first] + [" ..."] + [write(v).rjust(width) for v in last]
    else:
        items = [write(v).rjust(width) for v in array.tolist()]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + ("," + "\n" + " " * (indent + 1)).join(lines) + "]"
