"""The stages of the compiler as text: what `kernel.inspect_host(stage="loops")` and `stage="regions"` print."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator

from miniflow.hostcuda.region_tree import Barrier, Branch, ForEachGroup, Loop, Node, Once, Threads
from miniflow.hostcuda.storage import Storage
from miniflow.hostcuda.syntax import BLOCK, GRID, WARP, Compilation, Sync, call, name, text

GROUP = {WARP: "warp", BLOCK: "block", GRID: "grid"}


class Written(ast.NodeTransformer):
    """Barriers as calls that can be read."""

    def visit_Sync(self, node: Sync) -> ast.stmt:
        barrier = call("barrier", ast.Constant(GROUP[node.level]))
        if node.collective is None:
            return ast.copy_location(ast.Expr(barrier), node)
        function, voted, result = node.collective
        vote = call(f"{function}_of_{GROUP[node.level]}", name(voted))
        return ast.copy_location(ast.Assign([ast.Name(result, ast.Store())], vote), node)


def ir(tree: ast.FunctionDef, compilation: Compilation) -> str:
    """The program of one thread, as it is after one of the passes."""
    shown = Written().visit(copy.deepcopy(tree))
    lines = [f"{tree.name}({', '.join(a.arg for a in tree.args.args)}):"]
    for variable, array in compilation.arrays.items():
        lines.append(f"    {variable}: {array.kind} array of {array.shape}, {array.dtype}")
    return "\n".join([*lines, *(textwrap.indent(text(s), "    ") for s in shown.body)]) + "\n"


def regions(storage: Storage) -> str:
    """The tree of regions, and where variables live that several regions use."""
    lines = list(_nodes(storage.nodes, 0))
    lines.append("")
    for variable, level in sorted(storage.once.items()):
        lines.append(f"{variable}: once a {GROUP[level]}")
    for variable in storage.rematerialised:
        lines.append(f"{variable}: rematerialised")
    for variable, kind in sorted(storage.private.items()):
        lines.append(f"{variable}: private, {kind} for every thread")
    return "\n".join(lines) + "\n"


def _nodes(nodes: list[Node], depth: int) -> Iterator[str]:
    indent = "    " * depth
    for node in nodes:
        mask = f", if {node.mask}" if node.mask else ""
        if isinstance(node, ForEachGroup):
            yield f"{indent}for every {'block' if node.level == GRID else 'warp'}:"
            yield from _nodes(node.nodes, depth + 1)
        elif isinstance(node, Branch):
            yield f"{indent}{_head(node)}:"
            yield from _nodes(node.body, depth + 1)
            if node.orelse:
                yield f"{indent}else:"
                yield from _nodes(node.orelse, depth + 1)
        elif isinstance(node, Barrier):
            (sync,) = node.statements
            yield f"{indent}barrier of the {GROUP[node.level]}: cuda.{sync.intrinsic}, line {sync.lineno}{mask}"
        elif isinstance(node, Threads | Once):
            who = f"for every thread of the {GROUP[node.level]}{mask}" if isinstance(node, Threads) else "once"
            yield f"{indent}{who}:"
            for statement in node.statements:
                yield from (f"{indent}    {line}" for line in text(statement).split("\n"))


def _head(node: Branch) -> str:
    any_thread = "any thread's " if node.divergent else ""
    if not isinstance(node, Loop):
        return f"if {any_thread}{text(node.test)}"
    statement = node.statements[0]
    if isinstance(statement, ast.For) and not node.divergent:
        return f"for {text(statement.target)} in {text(node.test)}"
    return f"while {any_thread}{text(node.test)}"
