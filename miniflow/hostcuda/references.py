"""How generated code spells objects from outside a kernel: literals, functions of math and NumPy, libdevice."""

from __future__ import annotations

import ast
import builtins
import math
import operator
from typing import Any

import numpy as np

from miniflow.hostcuda import runtime
from miniflow.hostcuda.libdevice import Counterpart
from miniflow.hostcuda.syntax import Replace, call, expression

OURS = (
    *(math.fmod, math.modf, math.remainder),  # numba has them for GPUs only
    *(math.exp, math.log, math.erf, math.tanh, np.exp, np.log, np.tanh),  # numba's do not vectorise
)
"""The functions that `runtime` has under the same name."""
BUILTINS = {
    "abs", "bool", "complex", "divmod", "enumerate", "float", "int", "len", "max", "min", "pow", "print", "range",
    "round", "type", "zip",
}  # fmt: skip
"""What numba.cuda has of Python's functions."""

FOR_HOSTS_ONLY = (open, input, exec, eval, compile, __import__, globals, locals, vars, breakpoint)
"""Files, a terminal, and Python's own compiler."""
OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "lshift": "<<"},
    **{"rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">"},
    **{"ge": ">=", "neg": "-", "pos": "+", "invert": "~", "inv": "~", "not_": "not "},
}
"""Function of `operator` -> what it stands for; `iadd` and its like are those of numbers, which they do not change."""


def formula_of(value: Any, count: int) -> str:
    """What a function of `operator` computes of `count` arguments _0 and _1; "" for anything else.

    >>> import operator
    >>> formula_of(operator.iadd, 2), formula_of(operator.invert, 1), formula_of(operator.add, 1)
    ('_0 + _1', '~_0', '')
    """
    identifier = getattr(value, "__name__", "")
    if not identifier or getattr(operator, identifier, None) is not value:
        return ""
    plain = next((n for n in (identifier, identifier[1:], f"{identifier[1:]}_") if n in OPERATORS), "")
    symbol, unary = OPERATORS.get(plain, ""), plain in ("neg", "pos", "invert", "inv", "not_")
    if not symbol or count != (1 if unary else 2):
        return ""
    return f"{symbol}_0" if unary else f"_0 {symbol} _1"


def literal_of(value: Any) -> ast.expr | None:
    """A literal that makes this value, if it is a number, a string, None, or a tuple of such."""
    if value is None or isinstance(value, bool | int | str):
        return ast.Constant(int(value) if isinstance(value, int) and not isinstance(value, bool) else value)
    if type(value) is float:
        if math.isfinite(value):
            return ast.Constant(value)
        return expression("np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf")
    if type(value) is complex:
        return ast.Constant(value)
    if isinstance(value, np.generic) and value.dtype.names is None and value.dtype.kind in "biufc":
        inner = literal_of(value.item())
        return call(f"np.{type(value).__name__}", inner)
    if type(value) is tuple:
        parts = [literal_of(v) for v in value]
        return None if None in parts else ast.Tuple(parts, ast.Load())
    return None


def function_of(value: Any) -> str:
    """The spelling of a function or type of Python, math or NumPy, "" for any other."""
    identifier = getattr(value, "__name__", "")
    if getattr(builtins, identifier, None) is value and identifier:
        return identifier
    if any(value is f for f in OURS):
        return identifier
    for rounding in ("floor", "ceil", "trunc"):  # which give floats on a GPU
        if value is getattr(math, rounding):
            return f"np.{rounding}"
    for module, owner in (("math", math), ("np", np)):
        if identifier and getattr(owner, identifier, None) is value:
            return f"{module}.{identifier}"
    if isinstance(value, np.dtype) and value.names is None:
        return f"np.dtype({value.str!r})"
    return ""


def is_for_kernels(value: Any) -> bool:
    """Whether a function or type of Python, math or NumPy means something on a GPU."""
    identifier = getattr(value, "__name__", "")
    if getattr(builtins, identifier, None) is value:
        return identifier in BUILTINS
    if isinstance(value, type | np.dtype | np.ufunc) or getattr(math, identifier, None) is value:
        return True
    return identifier in ("round", "real", "imag")


def libdevice_call(counterpart: Counterpart, args: list[ast.expr]) -> ast.expr:
    """The call of a libdevice function: arguments and result are cast to the types in its signature."""
    function = counterpart.function
    if function.startswith("math.") and getattr(math, function.removeprefix("math."), None) in OURS:
        function = function.removeprefix("math.")
    elif function.startswith("cuda."):
        function = runtime.FUNCTIONS[function.removeprefix("cuda.")]
    arguments = [call(f"np.{dtype}", a) for dtype, a in zip(counterpart.takes, args, strict=True)]
    if "{" in function:
        values = {f"_{i}": value for i, value in enumerate(arguments)}
        result = Replace(values).visit(expression(function.format(*values)))
    else:
        result = ast.Call(expression(function), arguments, [])
    return call(f"np.{counterpart.gives}", result) if counterpart.gives else result


def is_kernel(value: Any) -> bool:
    """Whether an object is a kernel or device function of ours."""
    return hasattr(value, "py_func") and isinstance(getattr(value, "device", None), bool)
