"""Every error that a user can cause, each derived from the builtin it resembles.

A message names the operation, what it got, what it expected and what to do about it.
"""

from typing import Any


class ShapeError(ValueError):
    """Shapes do not fit together."""


class DTypeError(TypeError):
    """A dtype is not supported here, or dtypes do not fit together."""


class DivisionByZeroError(ZeroDivisionError):
    """An integer is divided by zero."""


class DimError(IndexError):
    """A dimension number is out of range for the tensor."""


class IndexRangeError(IndexError):
    """An index points outside the tensor."""


class ArgumentError(ValueError):
    """An argument has a value that the operation cannot work with: a negative rate, a step of zero."""


class ArgumentTypeError(TypeError):
    """An argument is of a type that the operation does not take."""


class DeviceError(RuntimeError):
    """A device does not exist here, or tensors live on different devices."""


class PlacementError(DeviceError):
    """Global tensors that do not fit together, or an operator that global tensors do not have."""


class OutOfMemoryError(MemoryError):
    """A device has no memory left for an array; the message says what is in use."""


class AutogradError(RuntimeError):
    """The tape cannot do what was asked: nothing recorded, already freed, or changed in place."""


class GradScalerError(RuntimeError):
    """The methods of a GradScaler are called in an order that makes no sense."""


class GradientCheckError(AssertionError):
    """An analytical gradient disagrees with finite differences, or the check is inconclusive."""


class GraphError(RuntimeError):
    """An nn.Graph is used in a way that it cannot be."""


class GraphTraceError(GraphError):
    """What `nn.Graph.build` does cannot be recorded."""


class CheckpointError(RuntimeError):
    """A checkpoint file is missing, truncated, foreign, or does not fit the model."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no such checkpoint."""


class FileWriteError(CheckpointError, OSError):
    """A file cannot be written: the disk is full, or the folder is missing or not yours. What was there is kept."""


class DownloadError(RuntimeError):
    """A file could not be fetched, or arrived with the wrong contents."""


class DataError(ValueError):
    """A data file or a data set is malformed."""


class WorkerError(RuntimeError):
    """A data-loading worker process failed."""


class PickleError(TypeError):
    """Tensors and modules are never pickled: `flow.save` writes them instead."""


class OnnxError(ValueError):
    """An ONNX model is broken or hostile, or holds what is not supported; or a model cannot be exported.

    Attributes:
        message: what is wrong.
        node: the node where, such as `Conv "conv1"`; "" if none is to blame.
    """

    def __init__(self, message: str, node: str = ""):
        super().__init__(f"{node}: {message}" if node else message)
        self.message, self.node = message, node


def refusal(error_class: type[Exception], op: str, expected: Any, /, **got: Any) -> Exception:
    """The error for what does not fit: `op: got input (2, 3), weight (4,) and dim=1; expected ...`.

    Args:
        error_class: the class of the error.
        expected: what is, in words, and what to do.
        got: tensors or arrays, of which the shape is named, lists of them, and values.
    """
    shown = [_shown(name, x) for name, x in got.items()]
    return error_class(
        f"{op}: got {' and '.join(filter(None, [', '.join(shown[:-1]), shown[-1]]))}; expected {expected}"
    )


def _shown(name: str, x: Any) -> str:
    """A value in a few words: the shape of a tensor, those of the first ones in a list."""
    if hasattr(x, "shape"):
        return f"{name} {tuple(x.shape)}"
    if isinstance(x, list | tuple) and any(hasattr(item, "shape") for item in x):
        shapes = [str(tuple(item.shape)) if hasattr(item, "shape") else type(item).__name__ for item in x[:6]]
        return f"{name} [{', '.join(shapes)}{f', ...], {len(x)} in all' if len(x) > 6 else ']'}"
    text = f"{name} {x}" if isinstance(x, tuple) else f"{name}={x!r}"
    return text if len(text) <= 200 else text[:200] + "..."
