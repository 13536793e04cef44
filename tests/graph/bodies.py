"""Bodies of fused regions for tests: their values by NumPy or by single kernels, step by step, and random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

import miniflow.ops.activation  # noqa: F401  (defines formulas)
from miniflow.backends.body import CAST, Body, Step, arity
from miniflow.dispatch.dispatcher import Op, as_array, kernel_on
from miniflow.formulas.scalar import Expr, arguments, expression
from miniflow.ops.promotion import Cast


def evaluated(*inputs: np.ndarray, body: Body) -> tuple[np.ndarray, ...]:
    """The outputs of a body: each step in float64, rounded to its dtype."""
    values: dict[str, Any] = {f"x{i}": x for i, x in enumerate(inputs)}
    values |= {f"n{i}": np.float64(value) for i, (value, _) in enumerate(body.numbers)}
    with np.errstate(all="ignore"):
        for i, step in enumerate(body.steps):
            operands = [wide(values[name]) for name in step.operands]
            values[f"v{i}"] = np.asarray(computed_by_numpy(step.function, operands)).astype(step.dtype)
    shape = np.broadcast_shapes(*[x.shape for x in inputs])
    return tuple([np.broadcast_to(values[name], shape).copy() for name in body.outputs])


def step_by_step(*inputs: np.ndarray, body: Body) -> tuple[np.ndarray, ...]:
    """The outputs of a body, each step by its operator's own kernel: no bit differs from the unfused program."""
    shape = np.broadcast_shapes(*[x.shape for x in inputs])
    values: dict[str, Any] = {f"x{i}": x for i, x in enumerate(inputs)}
    values |= {f"n{i}": value for i, (value, _) in enumerate(body.numbers)}
    for i, step in enumerate(body.steps):
        operands = [values[name] for name in step.operands]
        if step.function == CAST:
            values[f"v{i}"] = as_array(kernel_on(Cast, "cpu")(*operands, dtype=np.dtype(step.dtype)))
            continue
        formula, given = arguments(step.function)
        given |= zip([n for n in (*formula.operands, *formula.attributes) if n not in given], operands, strict=True)
        op = Op.by_name[formula.name.title().replace("_", "")]
        values[f"v{i}"] = as_array(kernel_on(op, "cpu")(*[given.pop(n) for n in formula.operands], **given))
    return tuple([np.broadcast_to(values[name], shape).copy() for name in body.outputs])


def computed_by_numpy(function: str, operands: list[Any]) -> Any:
    """The formula of a step: each of its functions by NumPy."""
    if function == CAST:
        return operands[0]
    found = expression(function)
    values = dict(zip(map(id, found.operands), operands, strict=True))
    for node in found.result.nodes():
        given = [values[id(x)] if isinstance(x, Expr) else x for x in node.operands]
        values[id(node)] = node.function.numpy(*given)
    return values[id(found.result)]


def wide(x: Any) -> Any:
    """Floats as float64."""
    x = np.asarray(x)
    return x if x.dtype == np.bool_ else x.astype(np.float64)


SMOOTH = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "relu", "relu_grad", "tanh", "erf", "sigmoid",
          "sigmoid_grad", "gelu:approximate=none", "gelu_grad:approximate=none", "gelu:approximate=tanh",
          "gelu_grad:approximate=tanh", "silu", "silu_grad", "clamp", "softplus", "softplus_grad",
          "erf_grad")  # fmt: skip
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
