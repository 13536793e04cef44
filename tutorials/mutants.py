"""Wrong versions of a solution, made by small changes of its code: what a grader has to reject.

Each mutant differs in one place within the regions that students write: an operator or a comparison is another one, a
condition always holds, an index or a number is one more, a returned value is zero, a call whose result is not used (a
barrier) or an assignment to an element is missing.

Source: DeMillo, Lipton, Sayward, "Hints on Test Data Selection", 1978.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutorials.implementation import load, written
from tutorials.lessons import ROOT, Lesson, lesson, regions_of

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[str, str, str]]:
    """What each mutant changes, `line 12: i < n -> i <= n`, its task, and its source."""
    tree = ast.parse(source)
    inside = {line: region.task for region in regions_of(source) for line in range(region.first, region.last + 1)}
    nodes = [node for node in ast.walk(tree) if getattr(node, "lineno", 0) in inside]
    for node in nodes:
        for new in changed(node):
            Replace(node, new).visit(tree)
            what = f"line {node.lineno}: {ast.unparse(node)} -> {ast.unparse(new)}"
            yield what, inside[node.lineno], ast.unparse(tree)
            Replace(new, node).visit(tree)


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield with_(node, op=OPERATORS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield with_(node, ops=[OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.BoolOp):
        yield with_(node, op=OPERATORS[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield node.operand
    if isinstance(node, ast.If | ast.IfExp):
        yield with_(node, test=ast.Constant(True))
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.BinOp):
        yield with_(node, slice=ast.BinOp(node.slice, ast.Add(), ast.Constant(1)))
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield ast.Return(ast.BinOp(node.value, ast.Mult(), ast.Constant(0)))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute)
    ):
        yield ast.Pass()


def with_(node: ast.AST, **changes: object) -> ast.AST:
    """A copy of a node with some fields changed."""
    fresh = copy.copy(node)
    for name, value in changes.items():
        setattr(fresh, name, value)
    return fresh


class Replace(ast.NodeTransformer):
    """Puts a node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or the new one."""
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def survivors(of: Lesson, most: int | None = None, limit: int = 20) -> dict[str, bool]:
    """What each mutant of a lesson's solution changes, and whether it passes all checks.

    Args:
        of: the lesson.
        most: how many are tried, chosen at random; None for all.
        limit: in seconds of CPU time, or ten times as many by the clock; a mutant that takes longer is rejected.
    """
    load(of.solution)  # what it imports is there in each copy of this process
    path = written(of, "")  # one path, by which compiled kernels are found again
    found, tried = {}, list(mutants(of.solution.read_text(encoding="utf-8")))
    for what, task, source in random.sample(tried, min(most or len(tried), len(tried))):
        path.write_text(source, encoding="utf-8")
        found[what] = passes(of, path, task, limit)
    return found


def passes(of: Lesson, path: Path, first: str, limit: int) -> bool:
    """Whether an implementation passes all checks, those of task `first` before the others.

    They run in a copy of this process: it must have no threads.
    """
    process = os.fork()
    if process == 0:
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.alarm(10 * limit)
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            options = ["-x", "-q", f"--impl={path}", f"--first={first}", "--seed=0", f"--rootdir={ROOT.parent}"]
            code = pytest.main([str(of.tests), *options, "-p", "no:cacheprovider", "-p", "no:xdist"])
        os._exit(int(code))
    return os.waitpid(process, 0)[1] == 0


def equivalent(of: Lesson) -> dict[str, str]:
    """Mutants that are no worse than the solution, with the reason: lines `function | line | change | reason` of
    equivalent.txt.

    Returns:
        "function | line | change" -> reason.
    """
    path = of.folder / "equivalent.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return dict(line.rsplit(" | ", 1) for line in lines if line)


def with_line(of: Lesson, what: str) -> str:
    """What a mutant changes, as `equivalent` has it: "line 2: i < n -> i <= n" as "f | if i < n: | i < n -> i <= n"."""
    number, _, change = what.removeprefix("line ").partition(": ")
    source = of.solution.read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    inside = next((f.name for f in functions if f.lineno <= int(number) <= f.end_lineno), "")
    return f"{inside} | {source.splitlines()[int(number) - 1].strip()} | {change}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tutorials.mutants", description="Check mutants of a solution.")
    parser.add_argument("lesson", help="its number or name")
    parser.add_argument("most", nargs="?", type=int, help="how many, chosen at random; by default all")
    options = parser.parse_args()
    try:
        print(json.dumps(survivors(lesson(options.lesson), options.most)))
    except LookupError as error:
        parser.error(f"{error}")
