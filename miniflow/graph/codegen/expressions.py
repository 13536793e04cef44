"""Which op is which step of a region: the table, and what it says no to.

An op is fused where its kernels compute each element from elements of floating or bool inputs alone. Left out are ops
on integers (their overflow and division are subtle), those for which compiled loops are slower than NumPy's (sin, pow,
and exp, log, tanh in float64), and ops whose attributes vary from call to call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.graph.codegen.body import HALVES, Body, Step
from miniflow.graph.codegen.functions import CASTABLE, FLOATS, FUNCTIONS
from miniflow.graph.ir import Instruction, Slot, scalars_in

PLAIN = {  # op -> function of all its operands, which are floats of one dtype, or numbers
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Maximum": "maximum", "Minimum": "minimum",
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Sqrt": "sqrt", "Rsqrt": "rsqrt",
    "Exp": "exp", "Log": "log", "Tanh": "tanh", "Erf": "erf", "ErfGrad": "erf_grad",
    "Relu": "relu", "ReluGrad": "relu_grad", "Sigmoid": "sigmoid", "SigmoidGrad": "sigmoid_grad",
    "Silu": "silu", "SiluGrad": "silu_grad",
    "Eq": "eq", "Ne": "ne", "Lt": "lt", "Le": "le", "Gt": "gt", "Ge": "ge",
    "Isnan": "isnan", "Isinf": "isinf", "Isfinite": "isfinite",
}  # fmt: skip
LOGICAL = {  # the same for bools
    "LogicalAnd": "logical_and", "LogicalOr": "logical_or", "LogicalXor": "logical_xor", "LogicalNot": "logical_not",
    "BitwiseAnd": "logical_and", "BitwiseOr": "logical_or", "BitwiseXor": "logical_xor", "BitwiseNot": "logical_not",
}  # fmt: skip
POWERS = (-2, -1, 0.5, 1, 2, 3, 4)


class Region:
    """Collects instructions into a body.

    Attributes:
        inputs: the slots that the region reads.
    """

    def __init__(self) -> None:
        self.inputs: list[Slot] = []
        self.names: dict[Slot, str] = {}
        self.numbers: list[tuple[float, str]] = []
        self.steps: list[Step] = []

    def add(self, instruction: Instruction) -> None:
        """Append the steps of an instruction."""
        name = instruction.op.__name__
        if name == "FusedElementwise":
            self._inline(instruction)
            return
        if name in PLAIN or name in LOGICAL:
            result = self._plain(instruction)
        else:
            result = SPECIAL[name][1](self, instruction)
        self.names[instruction.output] = result

    def body(self, outputs: list[Slot]) -> Body:
        """The body that computes these."""
        kinds = [slot.dtype.name for slot in self.inputs]
        return Body(kinds, self.numbers, self.steps, [self.names[slot] for slot in outputs])

    def operand(self, x: Slot | float, kind: str) -> str:
        """The name of an input of an instruction; a number is taken in the dtype `kind`."""
        if not isinstance(x, Slot):
            return self.number(x, kind)
        if x not in self.names:
            self.names[x] = f"x{len(self.inputs)}"
            self.inputs.append(x)
        return self.names[x]

    def number(self, value: float, kind: str) -> str:
        """The name of a number, rounded to the dtype `kind` as NumPy rounds it beside an array of that dtype."""
        with np.errstate(over="ignore"):
            entry = (float(np.dtype(kind).type(value)), computed(kind))
        keys = [(v.hex(), k) for v, k in self.numbers]
        if (entry[0].hex(), entry[1]) not in keys:
            self.numbers.append(entry)
            return f"n{len(keys)}"
        return f"n{keys.index((entry[0].hex(), entry[1]))}"

    def step(self, function: str, *operands: str, dtype: str) -> str:
        """Append a step; the name of its result."""
        self.steps.append(Step(function, operands, dtype))
        return f"v{len(self.steps) - 1}"

    def _plain(self, instruction: Instruction) -> str:
        name = instruction.op.__name__
        kind = kind_of(instruction)
        operands = [self.operand(x, kind) for x in instruction.inputs]
        return self.step(PLAIN.get(name) or LOGICAL[name], *operands, dtype=instruction.output.dtype.name)

    def _inline(self, instruction: Instruction) -> None:
        body: Body = instruction.attrs["body"]
        names = {f"x{i}": self.operand(slot, "") for i, slot in enumerate(instruction.inputs)}
        names |= {f"n{i}": self.number(value, kind) for i, (value, kind) in enumerate(body.numbers)}
        for i, step in enumerate(body.steps):
            names[f"v{i}"] = self.step(step.function, *[names[n] for n in step.operands], dtype=step.dtype)
        self.names.update(zip(instruction.outputs, [names[n] for n in body.outputs], strict=True))


def kind_of(instruction: Instruction) -> str:
    """The dtype of the first input that is a slot."""
    return next(x.dtype.name for x in instruction.inputs if isinstance(x, Slot))


def computed(kind: str) -> str:
    """The dtype in which values of a dtype are computed."""
    return "float32" if kind in HALVES else kind


def is_fusible(instruction: Instruction) -> bool:
    """Whether an instruction can be part of a region."""
    op, name = instruction.op, instruction.op.__name__
    if (
        instruction.unless is not None
        or instruction.mutates
        or any(True for _ in scalars_in([*instruction.attrs.values()]))
    ):
        return False
    if name == "FusedElementwise":
        return True
    if not op.single or not any(isinstance(x, Slot) for x in instruction.inputs):
        return False
    kinds = {x.dtype.name for x in instruction.inputs if isinstance(x, Slot)}
    if name in PLAIN:
        if kinds == {"bfloat16"} and not all(isinstance(x, Slot) for x in instruction.inputs):
            return False  # the result of the op's own kernel is float32
        return len(kinds) == 1 and kinds <= FLOATS and not is_slow(PLAIN[name], instruction, kinds)
    if name in LOGICAL:
        return kinds == {"bool"} and all(isinstance(x, Slot) for x in instruction.inputs)
    return name in SPECIAL and SPECIAL[name][0](instruction, kinds)


def is_slow(function: str, instruction: Instruction, kinds: set[str]) -> bool:
    """Whether NumPy's loop is faster than a compiled one."""
    on_cpu = instruction.outputs[0].device.type == "cpu"
    return on_cpu and "float64" in kinds and FUNCTIONS[function].slow_double


# ops with attributes, or with operands of several dtypes: whether they fit, and their steps


def floats_alone(instruction: Instruction, kinds: set[str]) -> bool:
    return len(kinds) == 1 and kinds <= FLOATS


def can_cast(instruction: Instruction, kinds: set[str]) -> bool:
    (source,), target = kinds, instruction.output.dtype.name
    if target in HALVES:
        return source in HALVES or source in ("float32", "bool")
    return source in CASTABLE and target in FLOATS


def cast(region: Region, instruction: Instruction) -> str:
    x = region.operand(instruction.inputs[0], "")
    return region.step("cast", x, dtype=instruction.output.dtype.name)


def is_truth(instruction: Instruction, kinds: set[str]) -> bool:
    return floats_alone(instruction, kinds) and instruction.output.dtype == np.bool_


def is_power(instruction: Instruction, kinds: set[str]) -> bool:
    return floats_alone(instruction, kinds) and instruction.attrs["exponent"] in POWERS


def power(region: Region, instruction: Instruction) -> str:
    """Half precision is computed in float32 and rounded once."""
    kind, exponent = kind_of(instruction), instruction.attrs["exponent"]
    wide = computed(kind)
    x = region.operand(instruction.inputs[0], "")
    if exponent == 0.5:
        return region.step("sqrt", x, dtype=kind)
    if exponent == 1:
        return region.step("cast", x, dtype=kind)
    if exponent == 2:
        return region.step("mul", x, x, dtype=kind)
    if exponent == -1:
        return region.step("div", region.number(1.0, wide), x, dtype=kind)
    if exponent == -2:  # x * x overflows where 1 / x^2 does not vanish yet
        inverse = region.step("div", region.number(1.0, wide), x, dtype=wide)
        return region.step("mul", inverse, inverse, dtype=kind)
    square = region.step("mul", x, x, dtype=wide)
    if exponent == 3:
        return region.step("mul", square, x, dtype=kind)
    return region.step("mul", square, square, dtype=kind)


def is_bounded(instruction: Instruction, kinds: set[str]) -> bool:
    bounds = instruction.attrs["min"], instruction.attrs["max"]
    return floats_alone(instruction, kinds) and all(x == x for x in bounds)  # a NaN makes every result NaN


def clamp(region: Region, instruction: Instruction) -> str:
    kind = kind_of(instruction)
    low, high = instruction.attrs["min"], instruction.attrs["max"]
    x = region.operand(instruction.inputs[0], "")
    bounds = region.number(-np.inf if low is None else low, kind), region.number(np.inf if high is None else high, kind)
    return region.step("clamp", x, *bounds, dtype=kind)


def selects(instruction: Instruction, kinds: set[str]) -> bool:
    others = {x.dtype.name for x in instruction.inputs[1:] if isinstance(x, Slot)}
    return instruction.inputs[0].dtype == np.bool_ and len(others) == 1 and others <= FLOATS


def where(region: Region, instruction: Instruction) -> str:
    kind = instruction.output.dtype.name
    condition, x, y = [region.operand(x, kind) for x in instruction.inputs]
    return region.step("where", condition, x, y, dtype=kind)


def is_masked(instruction: Instruction, kinds: set[str]) -> bool:
    x, mask = instruction.inputs
    return x.dtype.name in FLOATS and mask.dtype == np.bool_


def masked_fill(region: Region, instruction: Instruction) -> str:
    kind = instruction.output.dtype.name
    x, mask = [region.operand(x, "") for x in instruction.inputs]
    return region.step("where", mask, region.number(instruction.attrs["value"], kind), x, dtype=kind)


def dropout_grad(region: Region, instruction: Instruction) -> str:
    kind = instruction.output.dtype.name
    dy, keep = [region.operand(x, "") for x in instruction.inputs]
    scaled = region.step("mul", dy, region.number(instruction.attrs["scale"], computed(kind)), dtype=kind)
    return region.step("where", keep, scaled, region.number(0.0, kind), dtype=kind)


def gelu(function: str) -> Callable[[Region, Instruction], str]:
    def steps(region: Region, instruction: Instruction) -> str:
        kind = kind_of(instruction)
        name = function.replace("gelu", "gelu_tanh") if instruction.attrs["approximate"] == "tanh" else function
        return region.step(name, *[region.operand(x, "") for x in instruction.inputs], dtype=kind)

    return steps


def softplus(function: str) -> Callable[[Region, Instruction], str]:
    def steps(region: Region, instruction: Instruction) -> str:
        kind = kind_of(instruction)
        numbers = [region.number(instruction.attrs[name], computed(kind)) for name in ("beta", "threshold")]
        return region.step(function, *[region.operand(x, "") for x in instruction.inputs], *numbers, dtype=kind)

    return steps


SPECIAL: dict[str, tuple[Callable[[Instruction, set], bool], Callable[[Region, Instruction], Any]]] = {
    "Cast": (can_cast, cast),
    "ToInteger": (is_truth, cast),
    "PowScalar": (is_power, power),
    "Clamp": (is_bounded, clamp),
    "Where": (selects, where),
    "MaskedFill": (is_masked, masked_fill),
    "DropoutGrad": (is_masked, dropout_grad),
    "Gelu": (floats_alone, gelu("gelu")),
    "GeluGrad": (floats_alone, gelu("gelu_grad")),
    "Softplus": (floats_alone, softplus("softplus")),
    "SoftplusGrad": (floats_alone, softplus("softplus_grad")),
}
