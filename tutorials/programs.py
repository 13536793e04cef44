"""Programs for the checks of lessons 12 and 13: drawn at random, run by NumPy, and written on one line.

A program has `inputs`, `instructions` and `outputs`; an instruction has an `op`, `inputs` and an `output`.
"""

import numpy as np

POINTWISE = {"add": np.add, "mul": np.multiply, "exp": np.exp}
POINTWISE["relu"] = lambda x: np.where(x > 0, x, np.float32(0))
POINTWISE["sigmoid"] = lambda x: np.float32(1) / (1 + np.exp(-x))
OPS = {**POINTWISE, "matmul": np.matmul, "transpose": np.transpose}
TWO = ("add", "mul", "matmul")  # operands


def drawn_steps(rng, values, ops, length):
    """Random steps (op, inputs, output) on arrays by number, some of them twice; the results are added to `values`."""
    steps = []
    while len(steps) < length:
        op, (a, *rest) = str(rng.choice(ops)), rng.permutation(list(values)[-6:]).tolist()
        fit = [n for n in [a, *rest] if values[n].shape == values[a].shape]
        if op == "matmul":
            fit = [n for n in values if len(values[n]) == values[a].shape[1]]
        inputs = (a, int(rng.choice(fit or [a]))) if op in TWO else (a,)
        if steps and rng.random() < 0.15:
            op, inputs, _ = steps[rng.integers(len(steps))]
        result = OPS[op](*(values[n] for n in inputs)) if fit else np.inf
        if np.abs(result).max() < 30:  # else exp of it would overflow
            steps.append((op, inputs, len(values)))
            values[len(values)] = result
    return steps


def evaluated(program, known):
    """All values of a program, by NumPy; `known` has its inputs and constants."""
    values = dict(known)
    for step in program.instructions:
        values[step.output] = OPS[step.op](*(values[n] for n in step.inputs))
    return values


def shown(steps, outputs):
    """Steps on one line, for messages; values that have numbers are written as %0, %1, ..."""

    def names(some):
        return ", ".join(f"%{n}" if isinstance(n, int) else n for n in some)

    lines = [f"{names([step.output])} = {step.op}({names(step.inputs)})" for step in steps]
    return "; ".join([*lines, f"return {names(outputs)}"])


def last_read(program, name, groups):
    """The position of the last of some groups of instructions that reads a value; their number, if it is an output."""
    reads = [at for at, group in enumerate(groups) if any(name in step.inputs for step in group)]
    return len(groups) if name in program.outputs else max(reads, default=None)
