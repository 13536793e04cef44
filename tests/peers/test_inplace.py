"""Random programs of views, in-place operations and computations, run here and by torch: values, gradients, errors.

A program is a list of steps drawn from a seed. Each step takes one of the tensors made so far and makes another from it
(a view, a result), or writes into it. Both libraries run the same steps. A step that torch refuses must be refused here
and is passed over. After each step all tensors must agree. At the end the gradients of the leaves must agree, or both
backwards must say that a saved tensor was changed. Torch says so more often, because it saves the results of in-place
operations where we save the values computed: then our gradients are held against finite differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import FRESH_SEED, as_array, assert_close, count_comparison, torch_tensor

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

VIEWS = {
    "first": lambda x, n: x[n % x.shape[0]] if x.ndim else x,
    "tail": lambda x, n: x[n % x.shape[0] :] if x.ndim and x.shape[0] else x,
    "stride": lambda x, n: x[::2] if x.ndim else x,
    "last": lambda x, n: x[..., -1:] if x.ndim else x,
    "transpose": lambda x, n: x.transpose(0, n % x.ndim) if x.ndim else x,
    "unsqueeze": lambda x, n: x.unsqueeze(n % (x.ndim + 1)),
    "narrow": lambda x, n: x.narrow(x.ndim - 1, 0, 1) if x.ndim else x,
    "flat": lambda x, n: x.view(-1) if x.is_contiguous() else x.unsqueeze(0),
    "detach": lambda x, n: x.detach() if n % 3 == 0 else x.unsqueeze(-1),
    "diagonal": lambda x, n: x.diagonal() if x.ndim > 1 else x[...],
}
WRITES = {
    "add": lambda x, y, n: x.add_(0.5),
    "mul": lambda x, y, n: x.mul_(1.5),
    "mul by": lambda x, y, n: x.mul_(y),
    "add to": lambda x, y, n: x.add_(y),
    "tanh": lambda x, y, n: x.tanh_(),
    "sin": lambda x, y, n: x.sin_(),
    "zero": lambda x, y, n: x.zero_(),
    "fill": lambda x, y, n: x.fill_(0.25),
    "copy": lambda x, y, n: x.copy_(y),
    "div": lambda x, y, n: x.div_(y * y + 1.0),
    "setitem": lambda x, y, n: x.__setitem__(0 if x.ndim else ..., 0.75),
    "setitem of": lambda x, y, n: x.__setitem__(..., y),
    "exp": lambda x, y, n: x.clamp_(-1.0, 1.0),
}
RESULTS = {
    "mul": lambda x, y, n: x * 0.7,
    "mul by": lambda x, y, n: x * y,
    "sin": lambda x, y, n: x.sin(),
    "tanh": lambda x, y, n: x.tanh(),
    "square": lambda x, y, n: x * x,
    "sum": lambda x, y, n: x.sum(),
    "clone": lambda x, y, n: x.clone(),
    "expand": lambda x, y, n: (x.unsqueeze(0).expand(2, *x.shape) * 0.5)[n % 2],
    "plus": lambda x, y, n: x + y,
}


class Refused(Exception):
    """A step, or the backward, that the library refused."""


Step = tuple[
    str, str, int, int, int
]  # kind, name, position of x, position of y (modulo the tensors there are), a number


def draw_program(seed: int) -> list[Step]:
    """Four to twelve steps."""
    random = np.random.default_rng(seed)
    steps = []
    for _ in range(int(random.integers(4, 13))):
        kind = str(random.choice(["view", "write", "result"], p=[0.35, 0.4, 0.25]))
        names = list({"view": VIEWS, "write": WRITES, "result": RESULTS}[kind])
        steps.append((kind, str(random.choice(names)), *(int(n) for n in random.integers(0, 1000, 3))))
    return steps


def draw_leaves() -> list[np.ndarray]:
    """The values of two leaves, and of a constant."""
    random = np.random.default_rng(7)
    return [random.uniform(-1, 1, shape) for shape in ((3, 3), (2, 3), (3, 3))]


class Run:
    """One library running a program."""

    def __init__(self, make: Any, values: list[np.ndarray]):
        self.leaves = [make(v).requires_grad_() for v in values[:2]]
        self.tensors = [self.leaves[0] * 1.0, self.leaves[1] * 1.0, make(values[2])]

    def step(self, step: Step) -> str | None:
        """Do one step; returns what it was refused with."""
        kind, name, i, j, number = step
        x, y = self.tensors[i % len(self.tensors)], self.tensors[j % len(self.tensors)]
        try:
            if kind == "view":
                self.tensors.append(VIEWS[name](x, number))
            elif kind == "write":
                WRITES[name](x, y, number)
            else:
                self.tensors.append(RESULTS[name](x, y, number))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            return str(error)
        return None

    def total(self, counted: list[bool]) -> Any:
        """A weighted sum of the squares of the tensors that count."""
        terms = [(x * x * (w + 1.0)).sum() for w, (x, c) in enumerate(zip(self.tensors, counted, strict=True)) if c]
        return sum(terms[1:], terms[0]) if terms else None

    def backward(self) -> str | None:
        """Differentiate the sum of all tensors that require grad; returns what it was refused with."""
        total = self.total([x.requires_grad for x in self.tensors])
        try:
            if total is not None:
                total.backward()
        except RuntimeError as error:
            return str(error)
        return None


def is_undefined(run: Run, step: Step) -> bool:
    """Whether a step writes from memory that it partly overwrites: torch forbids that, or its result is anything."""
    kind, _, i, j, _ = step
    x, y = run.tensors[i % len(run.tensors)], run.tensors[j % len(run.tensors)]
    return kind == "write" and x is not y and np.shares_memory(x._array, y._array)


def is_flat_in_one(ours: Run, theirs: Run, step: Step) -> bool:
    """Whether a step asks for the flat view of a result that is row-major here but not in torch."""
    _, name, i, _, _ = step
    x, y = (run.tensors[i % len(run.tensors)] for run in (ours, theirs))
    return name == "flat" and x.is_contiguous() != y.is_contiguous()


def finite_differences(program: list[Step], counted: list[bool]) -> list[np.ndarray]:
    """The gradients of the leaves, from the program run with values a little larger and smaller."""

    def value(values: list[np.ndarray]) -> float:
        with flow.no_grad():
            run = Run(flow.tensor, values)
            for step in program:
                run.step(step)
            return run.total(counted).item()

    gradients = []
    for position in range(2):
        gradient = np.zeros_like(draw_leaves()[position])
        for index in np.ndindex(gradient.shape):
            ends = []
            for eps in (1e-6, -1e-6):
                values = draw_leaves()
                values[position][index] += eps
                ends.append(value(values))
            gradient[index] = (ends[0] - ends[1]) / 2e-6
        gradients.append(gradient)
    return gradients


def run_program(seed: int) -> tuple[Run, Run, list[Step]]:
    """Run a program in both libraries, comparing after each step; returns the steps that were done, too."""
    ours, theirs = Run(flow.tensor, draw_leaves()), Run(torch_tensor, draw_leaves())
    done = []
    for step in draw_program(seed):
        what = f"program {seed}, step {step}"
        if is_undefined(ours, step) or is_flat_in_one(ours, theirs, step):
            continue
        our_refusal, their_refusal = ours.step(step), theirs.step(step)
        if their_refusal and "a leaf Variable that requires grad" in their_refusal and not our_refusal:
            return ours, theirs, []  # torch forgets that a constant which was written to is not a leaf any more
        assert (our_refusal is None) == (their_refusal is None), f"{what}: here {our_refusal}; torch {their_refusal}"
        if our_refusal is None:
            done.append(step)
        count_comparison()
        for number, (a, b) in enumerate(zip(ours.tensors, theirs.tensors, strict=True)):
            assert a.requires_grad == b.requires_grad, f"{what}: tensor {number} requires_grad: {a.requires_grad}"
            assert_close(a.detach(), as_array(b), what=f"{what}: tensor {number}")
    return ours, theirs, done


def compare(seed: int) -> str:
    """Run one program to its end, and say how that was."""
    ours, theirs, done = run_program(seed)
    if not done:
        return "nothing done"
    counted = [x.requires_grad for x in ours.tensors]
    our_refusal, their_refusal = ours.backward(), theirs.backward()
    what = f"program {seed}, backward: here {our_refusal}; torch {their_refusal}"
    if our_refusal is not None:
        assert their_refusal is not None and "in-place" in our_refusal, what
        return "stale"
    if their_refusal is None:
        expected = [np.zeros(x.shape) if x.grad is None else as_array(x.grad) for x in theirs.leaves]
        ending, tolerance = "agreed", 1e-9
    elif any(step[1] == "detach" for step in done):
        return "stale in torch"  # differences would see through the detached alias
    else:
        expected, ending, tolerance = finite_differences(done, counted), "held against differences", 1e-4
    for number, (leaf, want) in enumerate(zip(ours.leaves, expected, strict=True)):
        got = np.zeros_like(want) if leaf.grad is None else leaf.grad  # no gradient and zeros are the same to us
        assert_close(got, want, rtol=tolerance, atol=tolerance, what=f"program {seed}: gradient {number}, {ending}")
    return ending


@pytest.mark.parametrize("block", range(10))
def test_random_programs(block):
    endings = [compare(seed) for seed in range(block * 60, block * 60 + 60)]
    assert endings.count("agreed") >= 20, f"too few programs ran to their end: {endings}"


def test_fresh_random_programs():
    endings = [compare(FRESH_SEED + i) for i in range(60)]
    assert "agreed" in endings


def test_programs_end_in_every_way():
    endings = {compare(seed) for seed in range(300)}
    assert endings >= {"agreed", "stale", "held against differences"}
