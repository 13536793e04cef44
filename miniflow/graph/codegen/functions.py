"""How each step of a region is written, for the CPU and for CUDA.

On the CPU arithmetic is written out, so that it rounds exactly as NumPy's ufuncs do, and functions are those of
`scalars`. On CUDA all are the device functions that also make up the kernels of single ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
CASTABLE = FLOATS | {"bool", "uint8", "int8", "int16", "int32", "int64"}  # dtypes of inputs; integers are only cast


@dataclass(frozen=True)
class Function:
    """A function of elements.

    Attributes:
        cpu: its text, with {0}, {1} ... for the operands.
        cuda: the same for kernels; the names are device functions of `miniflow.kernels`.
        rounds: whether results in float32 may need rounding to be those in half precision.
        slow_double: whether there is no vectorized loop for it in float64, where NumPy has one.
        cost: the time for an element in that of an addition.
    """

    cpu: str
    cuda: str
    rounds: bool = True
    slow_double: bool = False
    cost: int = 1


def infix(symbol: str, **kwargs: Any) -> Function:
    """An operator of Python."""
    return Function(f"{{0}} {symbol} {{1}}", f"{{0}} {symbol} {{1}}", **kwargs)


def named(name: str, operands: int = 1, cpu: str = "", **kwargs: Any) -> Function:
    """A function that has one name on both devices, but for what `cpu` says instead."""
    call = f"({', '.join(f'{{{i}}}' for i in range(operands))})"
    return Function(cpu or name + call, name + call, **kwargs)


EXACT = {"rounds": False}
COSTLY = {"cost": 8}  # polynomials
SLOW_DOUBLE = {"slow_double": True, **COSTLY}

FUNCTIONS: dict[str, Function] = {
    "add": infix("+"),
    "sub": infix("-"),
    "mul": infix("*"),
    "div": infix("/"),
    "neg": Function("-{0}", "-{0}", **EXACT),
    "abs": named("absolute", **EXACT),
    "sign": named("sign", **EXACT),
    "maximum": named("maximum", 2, **EXACT),
    "minimum": named("minimum", 2, **EXACT),
    "clamp": named("clamp", 3, **EXACT),
    "where": named("where", 3, **EXACT),
    "relu": named("relu", **EXACT),
    "relu_grad": named("relu_grad", 2, **EXACT),
    "sqrt": named("sqrt", cost=3),
    "rsqrt": named("rsqrt", cost=3),
    "exp": named("exp", **SLOW_DOUBLE),
    "log": named("log", **SLOW_DOUBLE),
    "tanh": named("tanh", **SLOW_DOUBLE),
    "erf": named("erf", **COSTLY),
    "erf_grad": named("erf_grad", 2, **COSTLY),
    "sigmoid": named("sigmoid", **COSTLY),
    "sigmoid_grad": named("sigmoid_grad", 2),
    "gelu": named("gelu", **COSTLY),
    "gelu_grad": named("gelu_grad", 2, **COSTLY),
    "gelu_tanh": named("gelu_tanh", **COSTLY),
    "gelu_tanh_grad": named("gelu_tanh_grad", 2, **COSTLY),
    "silu": named("silu", **COSTLY),
    "silu_grad": named("silu_grad", 2, **COSTLY),
    "softplus": named("softplus", 3, **COSTLY),
    "softplus_grad": named("softplus_grad", 4, **COSTLY),
    "eq": infix("=="),
    "ne": infix("!="),
    "lt": infix("<"),
    "le": infix("<="),
    "gt": infix(">"),
    "ge": infix(">="),
    "logical_and": infix("&"),
    "logical_or": infix("|"),
    "logical_xor": infix("!="),
    "logical_not": Function("not {0}", "not {0}"),
    "isnan": named("isnan"),
    "isinf": named("isinf"),
    "isfinite": named("isfinite"),
    "cast": Function("{0}", "{0}"),
}


def arity(function: str) -> int:
    """How many operands a function takes."""
    return max(i + 1 for i in range(4) if f"{{{i}}}" in FUNCTIONS[function].cpu)
