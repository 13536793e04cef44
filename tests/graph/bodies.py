"""Bodies of fused regions for tests: their values by NumPy, step by step, and random ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.graph.codegen.body import Body, Step
from miniflow.graph.codegen.functions import FUNCTIONS, arity

erf = np.vectorize(math.erf, otypes=[np.float64])


def density(x: Any) -> Any:
    """Of the normal distribution."""
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def distribution(x: Any) -> Any:
    """Of the normal distribution."""
    return (1 + erf(x / math.sqrt(2))) / 2


def bend(x: Any) -> Any:
    """The argument of tanh in the approximation of gelu."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def tanh_slope(x: Any) -> Any:
    """The derivative of gelu's approximation."""
    t = np.tanh(bend(x))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope


def logistic(x: Any) -> Any:
    """1 / (1 + e^-x)"""
    return 1 / (1 + np.exp(-x))


REFERENCE = {  # in float64
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "sign": np.sign, "maximum": np.maximum, "minimum": np.minimum, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high), "where": np.where,
    "relu": lambda x: np.where(x <= 0, 0.0, x), "relu_grad": lambda dy, y: np.where(y <= 0, 0.0, dy),
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": erf, "sigmoid": logistic,
    "erf_grad": lambda dy, x: dy * 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "sigmoid_grad": lambda dy, y: dy * y * (1 - y),
    "gelu": lambda x: x * distribution(x), "gelu_grad": lambda dy, x: dy * (distribution(x) + x * density(x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(bend(x))), "gelu_tanh_grad": lambda dy, x: dy * tanh_slope(x),
    "silu": lambda x: x * logistic(x), "silu_grad": lambda dy, x: dy * logistic(x) * (1 + x * (1 - logistic(x))),
    "softplus": lambda x, beta, limit: np.where(beta * x > limit, x, np.log1p(np.exp(beta * x)) / beta),
    "softplus_grad": lambda dy, x, beta, limit: np.where(beta * x > limit, dy, dy * logistic(beta * x)),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "logical_not": np.logical_not, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "cast": lambda x: x,
}  # fmt: skip


def evaluated(*inputs: np.ndarray, body: Body) -> tuple[np.ndarray, ...]:
    """The outputs of a body: each step in float64, rounded to its dtype."""
    values: dict[str, Any] = {f"x{i}": x for i, x in enumerate(inputs)}
    values |= {f"n{i}": np.float64(value) for i, (value, _) in enumerate(body.numbers)}
    with np.errstate(all="ignore"):
        for i, step in enumerate(body.steps):
            operands = [wide(values[name]) for name in step.operands]
            values[f"v{i}"] = np.asarray(REFERENCE[step.function](*operands)).astype(step.dtype)
    shape = np.broadcast_shapes(*[x.shape for x in inputs])
    return tuple([np.broadcast_to(values[name], shape).copy() for name in body.outputs])


def wide(x: Any) -> Any:
    """Floats as float64."""
    x = np.asarray(x)
    return x if x.dtype == np.bool_ else x.astype(np.float64)


SMOOTH = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "relu", "relu_grad", "tanh", "erf", "sigmoid",
          "sigmoid_grad", "gelu", "gelu_grad", "gelu_tanh", "gelu_tanh_grad", "silu", "silu_grad", "clamp", "softplus",
          "softplus_grad", "erf_grad")  # fmt: skip
PREDICATES = ("lt", "ge", "isnan", "isfinite")
LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")


def random_body(random: np.random.Generator, steps: int = 8, kind: str = "float32") -> Body:
    """A body with a few inputs, of which one is bool, and two outputs or three."""
    inputs = [kind] * int(random.integers(2, 5)) + ["bool"]
    computed = "float64" if kind == "float64" else "float32"
    numbers = [(0.5, computed), (1.0, computed), (20.0, computed), (-0.75, computed)]
    floats, bools = [f"x{i}" for i in range(len(inputs) - 1)], [f"x{len(inputs) - 1}"]
    made: list[Step] = []
    for _ in range(steps):
        name = f"v{len(made)}"
        choice = random.random()
        if choice < 0.12:
            function = str(random.choice(PREDICATES))
            made.append(Step(function, chosen(random, floats, arity(function)), "bool"))
            bools.append(name)
        elif choice < 0.2:
            function = str(random.choice(LOGIC))
            made.append(Step(function, chosen(random, bools, arity(function)), "bool"))
            bools.append(name)
        else:
            made.append(random_step(random, floats, bools, kind))
            floats.append(name)
    outputs = sorted({f"v{len(made) - 1}", f"v{len(made) // 2}", *[b for b in bools[-1:] if b[0] == "v"]})
    return Body(inputs, numbers, made, outputs)


def random_step(random: np.random.Generator, floats: list[str], bools: list[str], kind: str) -> Step:
    """A step whose result is a float."""
    if random.random() < 0.15:
        return Step("where", (bools[-1], *chosen(random, floats, 2)), kind)
    function = str(random.choice(SMOOTH))
    operands = chosen(random, floats, arity(function))
    if function == "clamp":
        operands = (operands[0], "n3", "n1")
    elif function.startswith("softplus"):
        operands = (*operands[:-2], "n0", "n2")
    elif function in ("add", "sub", "mul") and random.random() < 0.4:
        operands = tuple(random.permutation([operands[0], str(random.choice(["n0", "n1", "n3"]))]).tolist())
    return Step(function, operands, kind)


def chosen(random: np.random.Generator, names: list[str], count: int) -> tuple[str, ...]:
    """Some of the names, mostly of the last ones."""
    return tuple(names[max(-len(names), -1 - int(random.exponential(1.5)))] for _ in range(count))


assert REFERENCE.keys() == FUNCTIONS.keys(), "every function has a reference"
