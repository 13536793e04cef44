"""The error for an argument that is not a tensor.

Tensors are not checked for being tensors. `dispatch.call` refuses operands that are neither tensors nor numbers, and
functions that look at a tensor's memory before they call an op are decorated with `takes_tensors`. The message names
the function that the program has called and its parameter, which are found in the frames of `miniflow/ops`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from miniflow.errors import ArgumentTypeError
from miniflow.tensor import Tensor

OPS = str(Path(__file__).with_name("ops"))
PASSED = {inspect.Parameter.KEYWORD_ONLY: "{0}={0}", inspect.Parameter.VAR_POSITIONAL: "*{0}"}
GUARDED = """
def guard(function, refuse):
    def {name}({parameters}):
        try:
            return function({arguments})
        except AttributeError as error:
            refuse(error)
            raise
    return {name}
"""


def takes_tensors(function: Callable) -> Callable:
    """Decorate a function so that it refuses arguments that lack an attribute of tensors.

    The new function has the same parameters in its code: one that takes `*args, **kwargs` and passes them on would cost
    a tenth of a microsecond at each call.
    """
    parameters = inspect.signature(function).parameters.values()
    bare = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in parameters])
    source = GUARDED.format(
        name=function.__name__,
        parameters=str(bare)[1:-1],
        arguments=", ".join(PASSED.get(p.kind, "{0}").format(p.name) for p in parameters),
    )
    names: dict[str, Any] = {}
    exec(compile(source, f"{function.__code__.co_filename} (takes_tensors)", "exec"), function.__globals__, names)
    guarded = names["guard"](function, refuse_attribute)
    guarded.__defaults__, guarded.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return functools.update_wrapper(guarded, function)


def refuse_attribute(error: AttributeError) -> None:
    """Refuse the argument in which an attribute of tensors is missing; nothing for any other error.

    Raises:
        ArgumentTypeError: naming the function, its parameter, and what it got.
    """
    guarded, x = sys._getframe(1), error.obj
    if hasattr(Tensor, error.name) and not isinstance(x, Tensor) and any(x is y for y in guarded.f_locals.values()):
        refuse_operand(x, guarded.f_code.co_name)


def refuse_operand(x: Any, function: str, wanted: str = "a Tensor") -> NoReturn:
    """Refuse an operand that is not a tensor.

    Args:
        x: the operand.
        function: the name of the op, for operands that no function of `miniflow/ops` was given.
        wanted: what it takes.

    Raises:
        ArgumentTypeError: naming the function, its parameter, and what it got.
    """
    name, parameter = _argument(x) or (function, "an operand")
    kind = f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")
    raise ArgumentTypeError(f"{name}: got {parameter} of type {kind}; expected {wanted}{_remedy(x)}") from None


def _argument(x: Any) -> tuple[str, str] | None:
    """The outermost function of `miniflow/ops` on the stack that has `x` as an argument, and its parameter."""
    frame, found = sys._getframe(2), None
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(OPS):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            found = next(((code.co_name, name) for name in names if frame.f_locals.get(name, frame) is x), found)
        elif found:
            break
        frame = frame.f_back
    return found


def _remedy(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return ": use flow.from_numpy(x)"
    if isinstance(x, list | tuple | bool | int | float | np.generic):
        return ": use flow.tensor(x)"
    return ": use flow.from_dlpack(x)" if hasattr(x, "__dlpack__") else ""
