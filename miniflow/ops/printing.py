"""How tensors print: `tensor([[1., 2.]], dtype=miniflow.float32)`, as OneFlow writes them, in PyTorch's number formats.

All numbers of a tensor share one format and one width. Tensors of more than `threshold` elements show the first and
last `edgeitems` of each dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from miniflow.backends.buffer import BufferArray
from miniflow.backends.memory import to_host
from miniflow.tensor import Tensor

DEFAULT = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
PROFILES = {"default": {}, "short": {"precision": 2, "edgeitems": 2}, "full": {"threshold": math.inf}}
OPTIONS = SimpleNamespace(**DEFAULT)


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

    >>> import miniflow as flow
    >>> flow.set_printoptions(precision=2)
    >>> flow.tensor(1 / 3)
    tensor(0.33, dtype=miniflow.float32)
    >>> flow.set_printoptions(profile="default")

    Source: `torch.set_printoptions`.
    """
    if profile is not None:
        vars(OPTIONS).update(DEFAULT | PROFILES[profile])
    options = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    vars(OPTIONS).update({name: value for name, value in options.items() if value is not None})
    OPTIONS.sci_mode = sci_mode


def tensor_repr(tensor: Tensor) -> str:
    """The printed form of a tensor: its values, then what they do not show.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 2.5], requires_grad=True) * 2
    tensor([2., 5.], dtype=miniflow.float32, grad_fn=<mul_backward>)
    """
    prefix = "tensor("
    if tensor.is_lazy:  # within nn.Graph.build there are no values
        return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype}, is_lazy='True')"
    body = "[]" if tensor.numel() == 0 else values_text(to_host(tensor._array), len(prefix))
    return add_suffixes(prefix + body, suffixes_of(tensor), len(prefix))


def suffixes_of(tensor: Tensor) -> list[str]:
    """Device, size (of empty tensors, where the brackets do not show it), dtype, and the place on the tape."""
    suffixes = []
    if tensor.is_global:
        suffixes += [f"placement={tensor.placement}", f"sbp={tensor.sbp}"]
    elif tensor.device.type != "cpu":
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
    is_buffer = isinstance(array, BufferArray)
    if array.dtype == np.float16 or array.dtype.kind == "V" and not is_buffer:  # print as the float32 of equal value
        array = array.astype(np.float32)
    edge = OPTIONS.edgeitems if array.size > OPTIONS.threshold else array.size
    skips = [size > 2 * edge for size in array.shape]
    ends = [[*range(edge), *range(-edge, 0)] if skip else range(n) for skip, n in zip(skips, array.shape, strict=True)]
    shown = array[(*np.ix_(*ends), ...)]
    if is_buffer:
        texts = [f"{element.dtype} {element.shape}" for element in shown.elements()]
        return block_text(np.array(texts).reshape(shown.shape).tolist(), skips, indent + 1, str, max(map(len, texts)))
    write, width = number_format(shown)
    return block_text(shown.tolist(), skips, indent + 1, lambda value: write(value).rjust(width), width)


def number_format(array: np.ndarray) -> tuple[Callable[[Any], str], int]:
    """The function that writes one number, and the width to which all are padded."""
    if array.dtype.kind != "f":
        return str, max((len(str(value)) for value in array.ravel().tolist()), default=1)
    finite = array[np.isfinite(array) & (array != 0)].astype(np.float64)
    integral = bool((finite == np.ceil(finite)).all())
    form = f".{OPTIONS.precision}e" if scientific(finite, integral) else ".0f" if integral else f".{OPTIONS.precision}f"
    point = "." if form == ".0f" else ""

    def write(value: float) -> str:
        return f"{value:{form}}" + (point if math.isfinite(value) else "")

    return write, max((len(write(value)) for value in finite.tolist()), default=1)


def scientific(finite: np.ndarray, integral: bool) -> bool:
    """PyTorch's rule: when the magnitudes span more than 1000, or are very large, or (for fractions) very small."""
    if finite.size == 0:
        return False
    if OPTIONS.sci_mode is not None:
        return OPTIONS.sci_mode
    magnitudes = np.abs(finite)
    largest, smallest = magnitudes.max().item(), magnitudes.min().item()
    return largest / smallest > 1000.0 or largest > 1.0e8 or (not integral and smallest < 1.0e-4)


def block_text(items: Any, skips: list[bool], indent: int, write: Callable[[Any], str], width: int) -> str:
    """The brackets around nested lists of numbers; `skips` says for each level whether its middle is left out."""
    if not skips:
        return write(items)
    texts = [block_text(item, skips[1:], indent + 1, write, width) for item in items]
    innermost = len(skips) == 1
    if skips[0]:
        texts.insert(len(texts) // 2, " ..." if innermost else "...")
    if innermost:  # lines of equally many numbers
        count = max(1, (OPTIONS.linewidth - indent + 1) // (width + 2))
        texts = [", ".join(texts[i : i + count]) for i in range(0, len(texts), count)]
    return "[" + ("," + "\n" * max(1, len(skips) - 1) + " " * indent).join(texts) + "]"
