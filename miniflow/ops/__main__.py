"""The table of all operators, from their definitions: `python -m miniflow.ops` prints it with the numbers of lines,
`python -m miniflow.ops --markdown > docs/operators.md` writes the page of the documentation.

Columns: the operator; where it is defined; the devices it has kernels for; whether it has a gradient, for pointwise
operators of which operands: it is made of operators, so there are gradients of any order; the class in mixed precision;
the SBP signatures. Of pointwise operators these are splits, and the operands that may be partial sums together; of
others they stand as in the definition, which gives every dim a letter (see `miniflow.sbp.signatures`). B is broadcast.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import miniflow
import miniflow.backends.cuda  # noqa: F401  (registers the kernels)
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.formulas.scalar import linear_sets
from miniflow.ops.pointwise import OPERATORS, Pointwise, default_key

HEADER = ("operator", "defined in", "devices", "gradient of", "AMP", "SBP signatures")
ROOT = Path(miniflow.__file__).parent.parent


def operators() -> list[type[Op]]:
    """All operators with a kernel, by name, but gradients of pointwise ones, and what only passes over graphs make."""
    ops = {op.function_name: op for op in Op.by_name.values() if not op.made_by_passes}
    return [
        op for name, op in sorted(ops.items())
        if (name in OPERATORS if issubclass(op, Pointwise) else kernel_of("cpu", op.__name__))
    ]  # fmt: skip


def place(op: type[Op]) -> tuple[str, int]:
    """The file and line of a definition."""
    defined = op.formula.function if issubclass(op, Pointwise) else op
    path = Path(inspect.getsourcefile(defined)).relative_to(ROOT)
    return str(path), inspect.getsourcelines(defined)[1]


def gradients(op: type[Op]) -> str:
    """Whether there is a gradient; the operands that get one, where they are known."""
    if issubclass(op, Pointwise):
        return ", ".join(op.gradients)
    return "" if op.backward is None else "yes"


def returned(function: object) -> Iterator[str]:
    """What a function returns, as it is written."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield ast.unparse(node.value)


def signatures(op: type[Op]) -> str:
    """Its SBP signatures, short."""
    if issubclass(op, Pointwise):
        names = op.formula.operands
        partial = [positions for positions in linear_sets(default_key(op.formula)) if max(positions) < len(names)]
        return "; ".join(["S of any dim", *(f"P of {', '.join(names[k] for k in positions)}" for positions in partial)])
    text = "" if op.sbp is None else "; ".join(returned(op.sbp))
    return "B" if text in ("", "[]") else text.replace("'", '"')


def rows(with_lines: bool) -> Iterator[Sequence[str]]:
    """The cells of the table."""
    for op in operators():
        file, line = place(op)
        devices = ", ".join(device for device in ("cpu", "cuda") if kernel_of(device, op.__name__))
        location = f"{file}:{line}" if with_lines else file
        yield op.function_name, location, devices, gradients(op), op.amp or "", signatures(op)


def markdown() -> str:
    """The table for docs/operators.md; without numbers of lines, which change too often."""
    cells = [HEADER, ["---"] * len(HEADER), *rows(with_lines=False)]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
    return f"# Operators\n\n{__doc__}\n{table}\n"


if __name__ == "__main__":
    lines = ["  ".join(row) + "\n" for row in rows(with_lines=True)]
    print(markdown() if "--markdown" in sys.argv else "".join(lines), end="")
