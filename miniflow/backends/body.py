"""The body of a pointwise loop: the steps that compute one element from inputs, numbers and earlier steps.

    x0:float32, x1:float32; v0 = add(x0, x1); v1 = gelu(v0) -> v0, v1

The loop of a single operator has one step, that of a fused region several. A body is independent of shapes: inputs
are broadcast. Values of float16 and bfloat16 are held in float32 and rounded after each step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniflow.formulas.scalar import FLOATS, FORMULAS, HALVES, expression, key_of, statements

CAST = "cast"
MOST_OPERANDS = 64  # inputs, numbers and outputs: NumPy's limit for ufuncs, which loops on the CPU are
CASTABLE = FLOATS | {"bool", "uint8", "int8", "int16", "int32", "int64"}


def computed(dtype: str) -> str:
    """The dtype in which values of a dtype are computed."""
    return "float32" if dtype in HALVES else dtype


def arity(function: str) -> int:
    """The number of operands of a step's function; ValueError if there is no such function."""
    if function == CAST:
        return 1
    try:
        return len(expression(function).operands)
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{function!r} is not a pointwise operator") from error


@dataclass(frozen=True)
class Step:
    """One operation on elements.

    Attributes:
        function: a key of `scalar.expression`, or "cast".
        operands: "x2" for an input, "n0" for a number, "v1" for the result of a step.
        dtype: of the result.
    """

    function: str
    operands: tuple[str, ...]
    dtype: str


class Body:
    """The computation of a region.

    Args:
        inputs: the dtypes of the inputs, by name.
        numbers: the Python numbers among the operands, each with the dtype that it is computed in, float32 or float64.
        steps: in order; step i is called "vi".
        outputs: names of the values that leave the region.

    >>> body = Body(["float32"], [(2.0, "float32")], [Step("mul", ("x0", "n0"), "float32")], ["v0"])
    >>> body.text
    '{v0 = mul(x0, 2.0) -> v0}'
    """

    def __init__(
        self,
        inputs: Iterable[str],
        numbers: Iterable[tuple[float, str]],
        steps: Iterable[Step],
        outputs: Iterable[str],
    ):
        self.inputs = tuple(inputs)
        self.numbers = tuple(numbers)
        self.steps = tuple(steps)
        self.outputs = tuple(outputs)
        self.launchers: dict[str, Any] = {}  # device type -> what runs this body there

    @property
    def text(self) -> str:
        """The body as programs print it."""
        steps = []
        for i, step in self._numbered():
            name, *fixed = step.function.split(":")
            steps.append(f"v{i} = {name}({', '.join([*map(self._shown, step.operands), *fixed])})")
        return f"{{{'; '.join(steps)} -> {', '.join(self.outputs)}}}"

    @property
    def structure_text(self) -> str:
        """One line for each step, with names in place of the values of the numbers."""
        steps = [f"v{i}:{step.dtype} = {step.function}({', '.join(step.operands)})" for i, step in self._numbered()]
        inputs = ", ".join(f"x{i}:{dtype}" for i, dtype in enumerate(self.inputs))
        return "\n".join([f"{inputs} ->", *steps, f"-> {', '.join(self.outputs)}"])

    @property
    def structure(self) -> tuple:
        """Everything but the values of the numbers: bodies of the same structure share their compiled loops."""
        return self.inputs, tuple(dtype for _, dtype in self.numbers), self.steps, self.outputs

    @property
    def digest(self) -> str:
        """A hash of the structure, the same in every process."""
        return hashlib.sha256(repr(self.structure).encode()).hexdigest()[:16]

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the outputs."""
        return tuple(self.dtype_of(name) for name in self.outputs)

    @property
    def cost(self) -> int:
        """A rough cost per element, in additions; a read or a write of memory counts as two."""
        costs = [1 if step.function == CAST else expression(step.function).cost for step in self.steps]
        return sum(costs) + 2 * len(self.inputs) + 2 * len(self.outputs)

    def dtype_of(self, operand: str) -> str:
        """The dtype of an input, a number or a step's result."""
        table = {"x": self.inputs, "n": [dtype for _, dtype in self.numbers], "v": [s.dtype for s in self.steps]}
        return table[operand[0]][int(operand[1:])]

    def dependencies(self) -> list[set[int]]:
        """For each output, the positions of the inputs that it depends on."""
        needs: list[set[int]] = []
        for step in self.steps:
            needs.append(set().union(*(self._needs(name, needs) for name in step.operands)))
        return [self._needs(name, needs) for name in self.outputs]

    def as_json(self) -> dict[str, Any]:
        """A JSON representation for `from_json`; numbers are hexadecimal text, which includes infinities."""
        return {
            "inputs": list(self.inputs),
            "numbers": [[float(value).hex(), dtype] for value, dtype in self.numbers],
            "steps": [[step.function, list(step.operands), step.dtype] for step in self.steps],
            "outputs": list(self.outputs),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Body:
        """The body that `as_json` wrote.

        Raises:
            ValueError: if it is none: an unknown function or dtype, a name that is not defined before it is used.
        """
        try:
            numbers = [(float.fromhex(value), str(dtype)) for value, dtype in data["numbers"]]
            steps = [Step(str(key), tuple(map(str, names)), str(dtype)) for key, names, dtype in data["steps"]]
            body = cls(map(str, data["inputs"]), numbers, steps, map(str, data["outputs"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this describes no fused region: {data!r}") from error
        body.check()
        return body

    def check(self) -> None:
        """Raise ValueError unless every function, dtype and name is defined where it is used."""
        defined = {f"x{i}" for i in range(len(self.inputs))} | {f"n{i}" for i in range(len(self.numbers))}
        dtypes = {*self.inputs, *(s.dtype for s in self.steps)}
        if not dtypes <= CASTABLE or any(dtype not in ("float32", "float64") for _, dtype in self.numbers):
            raise ValueError(f"a fused region of unknown dtypes: {sorted(dtypes)}")
        if len(self.inputs) + len(self.numbers) + len(self.outputs) > MOST_OPERANDS:
            raise ValueError(f"a fused region of more than {MOST_OPERANDS} inputs, numbers and outputs")
        for i, step in self._numbered():
            if len(step.operands) != arity(step.function):
                raise ValueError(f"a fused region calls {step.function} with {len(step.operands)} operands")
            if not defined.issuperset(step.operands):
                raise ValueError(f"a fused region reads {step.operands} before they are computed")
            defined.add(f"v{i}")
        if not self.outputs or any(name not in defined or name[0] != "v" for name in self.outputs):
            raise ValueError(f"a fused region returns {self.outputs}, which it does not compute")

    def lines(self, elements: dict[str, str]) -> list[str]:
        """Python statements that read, compute and write one element; the first lines read the inputs.

        Args:
            elements: the text of the element of each input, "x0", and each output, "y0".
        """
        reads = [f"x{i}_here = {read(elements[f'x{i}'], dtype)}" for i, dtype in enumerate(self.inputs)]
        writes = []
        for k, (value, dtype) in enumerate(zip(self.outputs, self.output_dtypes, strict=True)):
            writes.append(f"{elements[f'y{k}']} = {f'narrow_{dtype}({value})' if dtype in HALVES else value}")
        return [*reads, *self.computing(), *writes]

    def computing(self) -> list[str]:
        """The steps as Python statements `v0 = ...`; inputs are named `x0_here`."""
        lines = []
        for i, step in self._numbered():
            operands = [f"{name}_here" if name[0] == "x" else name for name in step.operands]
            if step.function == CAST:
                lines.append(f"v{i} = {converted(operands[0], self.dtype_of(step.operands[0]), step.dtype)}")
                continue
            formula = expression(step.function)
            dtypes = [self.dtype_of(name) for k, name in enumerate(step.operands) if k not in formula.bools]
            lines += statements(formula, operands, computed(dtypes[0]) if dtypes else step.dtype, f"v{i}")
            are_rounded = formula.exact and not any(name[0] == "n" for name in step.operands)
            if step.dtype in HALVES and not are_rounded:
                target, value = lines.pop().split(" = ", 1)
                lines.append(f"{target} = round_{step.dtype}({value})")
        return lines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self.structure)

    def __repr__(self) -> str:
        return f"Body({self.text})"

    def _key(self) -> tuple:
        return self.structure, tuple(float(value).hex() for value, _ in self.numbers)

    def _numbered(self) -> Iterable[tuple[int, Step]]:
        return enumerate(self.steps)

    def _needs(self, name: str, needs: list[set[int]]) -> set[int]:
        letter, index = name[0], int(name[1:])
        return {index} if letter == "x" else needs[index] if letter == "v" else set()

    def _shown(self, operand: str) -> str:
        if operand[0] != "n":
            return operand
        value, dtype = self.numbers[int(operand[1:])]
        return repr(value) if not math.isfinite(value) or dtype == "float64" else str(np.float32(value))


def read(element: str, dtype: str) -> str:
    """Source text that reads an element in the dtype it is computed in."""
    return f"widen_{dtype}({element})" if dtype in HALVES else f"({element} != 0)" if dtype == "bool" else element


def converted(value: str, source: str, target: str) -> str:
    """Source text that converts a value to another dtype. Half precision is held in float32."""
    if target in HALVES:
        exact = source in (target, "bool")
        return f"np.float32({value})" if exact else f"round_{target}(np.float32({value}))"
    if target == "bool":
        return f"({value} != 0)"
    return f"np.{target}({value})"


class Bodies:
    """The bodies of one operator, by the dtypes of its operands and the arguments that are not numbers.

    Args:
        name: of the operator, a key of `scalar.FORMULAS`.
        is_array: whether an operand is an array of the device.
    """

    def __init__(self, name: str, is_array: Callable[[Any], bool]):
        self.formula = FORMULAS[name]
        self.is_array = is_array
        self.known: dict[tuple, Body] = {}

    def of(self, operands: tuple, attrs: dict[str, Any], check: Any = None) -> tuple[Body, Sequence, Sequence[float]]:
        """The body for these arguments, the arrays among them, and the numbers.

        Args:
            operands: arrays, numbers, or None for absent ones.
            attrs: the attributes, by name.
            check: called with them before a body is made; it refuses dtypes.
        """
        if not attrs:
            body = self.known.get(tuple([getattr(x, "dtype", None) for x in operands]))
            if body is not None and len(body.inputs) == len(operands):
                return body, operands, ()
        arrays, numbers, key = [], [], []
        for x in (*operands, *attrs.values()):
            if self.is_array(x):
                arrays.append(x)
                key.append(x.dtype)
            elif x is None or isinstance(x, str | bool) and len(key) >= len(operands):
                key.append(x)
            else:
                numbers.append(x)
                key.append(float)
        body = self.known.get(tuple(key))
        if body is None:
            if check is not None:
                check(*operands, **attrs)
            body = self.known[tuple(key)] = self.make(key, attrs)
        return body, arrays, numbers

    def make(self, key: list, attrs: dict[str, Any]) -> Body:
        """The body for a key: dtypes of arrays, `float` for numbers, and the other arguments themselves."""
        names = [*self.formula.operands[: len(key) - len(attrs)], *attrs]
        dtypes = [entry.name for name, entry in zip(names, key, strict=True)
                 if isinstance(entry, np.dtype) and name not in self.formula.bools]  # fmt: skip
        main = computed(dtypes[0])
        operands, inputs, numbers = [], [], []
        for entry in key:
            if isinstance(entry, np.dtype):
                operands.append(f"x{len(inputs)}")
                inputs.append(entry.name)
            elif entry is float:
                operands.append(f"n{len(numbers)}")
                numbers.append((0.0, main if main in FLOATS else "int64"))
        fixed = {
            n: entry
            for n, entry in zip(names, key, strict=True)
            if entry is not float and not isinstance(entry, np.dtype)
        }
        function = key_of(self.formula.name, fixed)
        dtype = "bool" if expression(function).predicate else dtypes[0]
        return Body(inputs, numbers, [Step(function, tuple(operands), dtype)], ["v0"])
