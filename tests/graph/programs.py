"""Programs for tests of passes: written by hand, or random; and the comparison of two of them by their results.

b = ProgramBuilder()
x, w = b.input(3, 4), b.parameter(4, 5)
y = b(Relu, b(Matmul, x, w, transpose_x=False, transpose_y=False))
before = b.build(y)
assert_same_results(before, some_pass.run(before))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from compare import assert_close, count_comparison

import miniflow as flow
from miniflow.backends.memory import to_host
from miniflow.dispatch.dispatcher import Op
from miniflow.graph import trace
from miniflow.graph.interpret import execute, interpret
from miniflow.graph.ir import BUFFER, CONSTANT, FORWARD, INPUT, PARAMETER, Instruction, Program, Slot, with_numbers

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)


class ProgramBuilder:
    """Writes a program instruction by instruction; `build` ends it.

    Each instruction is run on sample values at once, so that its outputs have the shapes, dtypes and strides that the
    kernel gives them. `scope`, `location`, `phase` and `after` are those of the instructions that follow.
    """

    def __init__(self, name: str = "program", device: str = "cpu", seed: int = 0):
        self.program = Program(name=name)
        self.device = flow.device(device)
        self.samples: dict[Slot, Any] = {}
        self.random = np.random.default_rng(seed)
        self.scope, self.location, self.phase = "", "", FORWARD
        self.after: Slot | None = None
        self.unless: Slot | None = None

    def input(self, *shape: int, dtype: Any = "float32") -> Slot:
        """An input, `input.0`, `input.1` ..."""
        slot = Slot(shape, dtype, self.device, INPUT, f"input.{len(self.program.inputs)}")
        self.program.inputs.append(slot)
        values = random_array(self.random, shape, slot.dtype)
        return self._sampled(slot, flow.tensor(values, device=self.device)._array)

    def state(self, *shape: int, dtype: Any = "float32", kind: str = PARAMETER, name: str = "") -> Slot:
        """Memory that outlives a call, behind it a tensor of random numbers."""
        name = name or f"{kind}.{len(self.program.states)}"
        slot = Slot(shape, dtype, self.device, kind, name, requires_grad=kind == PARAMETER)
        tensor = flow.tensor(random_array(self.random, shape, slot.dtype), device=self.device)
        self.program.states.append(slot)
        self.program.tensors[slot] = tensor
        return self._sampled(slot, tensor._array)

    parameter = state

    def constant(self, values: Any, dtype: Any = None) -> Slot:
        """An array that is known when the program is recorded."""
        array = np.asarray(values, dtype=dtype)
        slot = Slot(array.shape, array.dtype, self.device, CONSTANT)
        self.program.constants[slot] = flow.tensor(array, device=self.device)._array
        return self._sampled(slot, self.program.constants[slot])

    def __call__(self, op: type[Op], *inputs: Any, **attrs: Any) -> Any:
        """Add an instruction; returns its output slot, or a tuple of them."""
        place = {name: getattr(self, name) for name in ("scope", "location", "phase", "after", "unless")}
        instruction = Instruction(op, list(inputs), [], attrs, **place)
        arrays = [self.samples[x] if isinstance(x, Slot) else x for x in inputs]
        numbers = {s.name: s.source() for s in Program(instructions=[instruction]).scalars().values()}
        if instruction.mutates:
            kinds = [(arrays[i].shape, arrays[i].dtype) for i in instruction.mutates]
        else:
            kinds = op.infer(*arrays, **{k: with_numbers(v, numbers) for k, v in attrs.items()})
        kinds = kinds if isinstance(kinds, list) else [kinds]
        instruction.outputs = [Slot(shape, kind, self.device) for shape, kind in kinds]
        for slot, array in zip(instruction.outputs, execute(instruction, self.samples, numbers), strict=True):
            self._sampled(slot, array)
        self.program.instructions.append(instruction)
        return tuple(instruction.outputs) if len(instruction.outputs) != 1 else instruction.outputs[0]

    def draw(self, op: type[Op], *inputs: Any, **attrs: Any) -> Any:
        """Add an instruction that draws random numbers."""
        seed, offset = self.program.draws.add(flow.Generator())
        self.program.draws.take()
        return self(op, *inputs, **attrs, seed=seed, offset=offset)

    def write(self, state: Slot, value: Slot) -> None:
        """The value that a state holds after the call."""
        self.program.writes[state] = value

    def build(self, *outputs: Slot) -> Program:
        """The finished program."""
        self.program.outputs = list(outputs)
        self.program.check()
        return self.program

    def _sampled(self, slot: Slot, array: Any) -> Slot:
        assert slot.shape == array.shape and slot.dtype == array.dtype, f"{slot}: got {array.shape} {array.dtype}"
        self.samples[slot] = array
        return slot


# values


def random_array(random: np.random.Generator, shape: Sequence[int], dtype: Any, special: bool = False) -> np.ndarray:
    """Floats of either sign, integers 0 to 2, bools; with `special`, NaN, infinities and zeros among the floats."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.random(shape) < 0.5
    if kind.kind in "iu":
        return random.integers(0, 3, shape).astype(kind)
    values = np.asarray(random.normal(size=shape))
    if special:
        chosen = random.random(shape) < 0.3
        values = np.where(chosen, random.choice(SPECIAL, shape), values)
    return values.astype(kind)


def values_of(program: Program, seed: int = 0, special: bool = False) -> tuple[list, list]:
    """Random arrays for the inputs and for the states of a program; those of integers fit as indices into 3 rows."""
    random = np.random.default_rng(seed)

    def arrays(slots: list[Slot]) -> list:
        made = [random_array(random, s.shape, s.dtype, special) for s in slots]
        return [flow.tensor(a, device=s.device)._array for a, s in zip(made, slots, strict=True)]

    return arrays(program.inputs), arrays(program.states)


def run(program: Program, seed: int = 0, special: bool = False) -> tuple[list, dict]:
    """The outputs and the written states' values by name, on random inputs and on the states' own values.

    With `special`, NaN, infinities and zeros of either sign are among all of them.
    """
    inputs, states = values_of(program, seed, special)
    if not special:
        states = [program.tensors[slot]._array for slot in program.states]
    with np.errstate(all="ignore"):
        outputs, writes = interpret(program, inputs, states, numbers_of(program, seed))
    return outputs, {state.name: value for state, value in writes.items()}


def numbers_of(program: Program, seed: int = 0) -> dict[str, Any]:
    """A number for each scalar that depends on its name only; for draws, a seed and an offset."""
    found = {}
    for name, scalar in program.scalars().items():
        draw = np.random.default_rng([seed, *name.encode()])
        is_draw = name.startswith("draw.")
        found[name] = int(draw.integers(2**31)) if is_draw else scalar.source()
    return found


def assert_same_results(
    before: Program, after: Program, exact: bool = True, special: bool = False, **close: Any
) -> None:
    """Both programs are well formed and give the same outputs and states.

    Args:
        before, after: programs with the same inputs, states and outputs.
        exact: bit for bit, but for the payload of NaNs; else as `assert_close` with the tolerances `close`.
        special: compare also on NaN, infinities and zeros of either sign.
    """
    before.check()
    after.check()
    for flags in [{"seed": 0}, {"seed": 1}] + [{"seed": 2, "special": True}] * special:
        (outputs, writes), (new_outputs, new_writes) = (run(program, **flags) for program in (before, after))
        assert list(writes) == list(new_writes), f"states written: {list(new_writes)}, before {list(writes)}"
        assert len(outputs) == len(new_outputs)
        for i, (old, new) in enumerate(zip(outputs, new_outputs, strict=True)):
            compare(new, old, exact, f"output {i}", close)
        for name, old in writes.items():
            compare(new_writes[name], old, exact, name, close)


def compare(actual: Any, expected: Any, exact: bool, what: str, close: dict[str, Any]) -> None:
    """Two arrays, of any device."""
    got, want = to_host(actual), to_host(expected)
    if exact:
        assert_same_bits(got, want, what)
    else:
        assert_close(got, want, what=what, **close)


def assert_same_bits(got: np.ndarray, want: np.ndarray, what: str = "value") -> None:
    """The same dtype, shape and bits: -0 is not 0; a NaN is any NaN."""
    count_comparison()
    assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{what}: {got.shape} {got.dtype}, expected {want.dtype}"
    bits = [np.ascontiguousarray(a).reshape(-1).view(f"u{a.itemsize}") for a in (got, want)]
    nan = [np.ascontiguousarray(a).reshape(-1) != np.ascontiguousarray(a).reshape(-1) for a in (got, want)]
    different = np.flatnonzero((bits[0] != bits[1]) & ~(nan[0] & nan[1]))
    if different.size:
        i = different[0]
        pair = got.reshape(-1)[i], want.reshape(-1)[i]
        raise AssertionError(f"{what}: {different.size} of {got.size} differ, first at {i}: {pair[0]!r} != {pair[1]!r}")


def assert_unchanged(program: Program, function: Callable[[Program], Program]) -> Program:
    """Run a pass and hold it to its word that it leaves the given program alone; returns the new one."""
    old, instructions = str(program), [i.with_() for i in program.instructions]
    result = function(program)
    assert str(program) == old, "the pass changed the program that it was given"
    for a, b in zip(instructions, program.instructions, strict=True):
        assert vars(a) == vars(b), "the pass changed an instruction that it was given"
    return result


def op_names(program: Program) -> list[str]:
    """The ops in order."""
    return [instruction.op.function_name for instruction in program.instructions]


# programs from functions of tensors


def recorded(
    function: Callable[..., Any],
    *shapes: Sequence[int],
    states: dict[str, Any] | None = None,
    dtype: Any = "float32",
    device: str = "cpu",
) -> Program:
    """The program of a function of tensors of these shapes, which returns a tensor or several.

    Args:
        states: tensors that outlive a call, by name; those that require grad are parameters.
    """

    def step(*tensors: Any) -> list:
        result = function(*tensors)
        return list(result) if isinstance(result, tuple | list) else [result]

    metas = [(tuple(shape), np.dtype(dtype), flow.device(device)) for shape in shapes]
    known = [(name, PARAMETER if t.requires_grad else BUFFER, t) for name, t in (states or {}).items()]
    return trace.record(step, metas, known)


def with_gradients(function: Callable[..., Any], parameters: Sequence[Any]) -> Callable[..., list]:
    """A step: what `function` returns, and the gradients of the sum of its first result for all `parameters`."""

    def step(*tensors: Any) -> list:
        result = function(*tensors)
        results = list(result) if isinstance(result, tuple | list) else [result]
        results[0].sum().backward()
        return results + [p.grad for p in parameters if p.grad is not None]

    return step


def of_model(model: Any, *shapes: Sequence[int], device: str = "cpu") -> Program:
    """The program of a module's forward, and of the backward from the sum of squares of its result."""
    states = dict(itertools.chain(model.named_parameters(), model.named_buffers()))

    def squared(*tensors: Any) -> Any:
        y = model(*tensors)
        return (y * y).mean()

    step = with_gradients(squared, list(model.parameters()))
    return recorded(step, *shapes, states=states, device=device)


def random_program(seed: int, steps: int = 25, device: str = "cpu") -> Program:
    """A random mix of ops on tensors of a few shapes, forward and backward; the same for the same seed."""
    random = np.random.default_rng(seed)
    parameters = [parameter(random, shape, device) for shape in ((4, 6), (6,), (6, 6), (2, 4, 6))]

    def function(x: Any, y: Any) -> list:
        pool = [x, y, *parameters]
        for _ in range(steps):
            pool.append(random_step(random, pool))
        late = pool[-4:]
        with flow.no_grad():
            buffer.mul_(0.9).add_(late[0].mean())
        shown = late if seed % 4 else pool[2 + len(parameters) :]  # nothing hides, but nothing is read once
        return [sum((t.sum() for t in late), start=parameters[0].sum()), *shown]

    buffer = parameter(random, (3,), device).detach()
    states = {"buffer": buffer} | {f"parameter.{i}": p for i, p in enumerate(parameters)}
    return recorded(with_gradients(function, parameters), (4, 6), (2, 4, 6), states=states, device=device)


def parameter(random: np.random.Generator, shape: Sequence[int], device: str = "cpu") -> Any:
    """A tensor of random numbers that requires grad."""
    values = random.normal(size=shape).astype(np.float32)
    return flow.tensor(values, device=device, requires_grad=True)


def random_step(random: np.random.Generator, pool: Sequence[Any]) -> Any:
    """A new tensor made of some of those in `pool`, most often of the last ones."""

    def pick(size: int | None = None) -> Any:
        fitting = [t for t in pool if size is None or t.ndim and t.shape[-1] == size]
        return fitting[max(-len(fitting), -1 - int(random.exponential(2.0)))]

    x = pick()
    kind = random.choice(["unary", "unary", "binary", "binary", "view", "view", "same", "row", "reduce", "random"])
    if kind == "unary":
        return UNARY[random.integers(len(UNARY))](x)
    if kind == "binary":
        return random_binary(random, x, pick())
    if kind == "view":
        return random_view(random, x)
    if kind == "same":
        return SAME[random.integers(len(SAME))](x)
    if kind == "row" and x.ndim >= 2:
        return ROWS[random.integers(len(ROWS))](x)
    if kind == "random":
        return flow.nn.functional.dropout(x, 0.4)
    return x.sum(0, keepdim=bool(random.integers(2))) if x.ndim else x.reshape(1)


def random_binary(random: np.random.Generator, x: Any, y: Any) -> Any:
    """An op on two tensors if they can be broadcast, else on a tensor and a number."""
    try:
        np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
    except ValueError:
        y = float(random.choice([1.0, 0.0, -0.0, 2.0, -0.5]))
    op = random.choice(["add", "sub", "mul", "reversed", "where", "matmul"])
    if op == "matmul" and not isinstance(y, float) and x.ndim == y.ndim == 2:
        return x.mT @ y if x.shape[0] == y.shape[0] else x @ x.mT
    if op == "reversed":
        return y - x
    if op == "where":
        return flow.where(x > 0, x, y)
    return {"add": flow.add, "sub": flow.sub}.get(op, flow.mul)(x, y)


def random_view(random: np.random.Generator, x: Any) -> Any:
    """The elements of x in another shape or order."""
    if x.ndim < 2 or x.numel() == 0:
        return x.unsqueeze(0).expand(2, *x.shape) if x.numel() <= 16 else x.reshape(1, -1)
    roads = [
        lambda: x.transpose(int(random.integers(x.ndim)), -1),
        lambda: x.permute(*[int(d) for d in random.permutation(x.ndim)]),
        lambda: x.reshape(-1, x.shape[-1]),
        lambda: x.reshape(x.shape[0], -1),
        lambda: x.reshape(2, -1, x.shape[-1]) if x.numel() // x.shape[-1] % 2 == 0 else x.reshape(-1),
        lambda: x[1:] if x.shape[0] > 1 else x[:],
    ]
    return roads[random.integers(len(roads))]()


UNARY = (
    flow.relu, flow.tanh, flow.neg, flow.abs, flow.sigmoid, flow.nn.functional.gelu, lambda x: x**2, lambda x: -x,
    lambda x: x * 0.5, lambda x: x.clamp(-1, 1),
)  # fmt: skip
SAME = (
    lambda x: x.clone(), lambda x: x.double().float(), lambda x: x * 1, lambda x: x + 0.0, lambda x: x.neg().neg(),
    lambda x: x.contiguous(), lambda x: x.half().float(), lambda x: x.reshape(x.shape), lambda x: x - 0.0,
    lambda x: x.clone().mul_(2.0), lambda x: x.to(flow.bfloat16).float(),
)  # fmt: skip
ROWS = (
    lambda x: flow.nn.functional.softmax(x, -1), lambda x: flow.nn.functional.layer_norm(x, x.shape[-1]),
    lambda x: flow.cat([x, x], 0), lambda x: x.mean(-1, keepdim=True),
)  # fmt: skip
