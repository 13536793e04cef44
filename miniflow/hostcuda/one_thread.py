"""The kernel as one thread would run it alone: no barriers, what others say replaced by a value of its type.

Nobody runs this text; numba infers the types of the kernel's variables from it, once.
"""

from __future__ import annotations

import ast
import copy

from miniflow.hostcuda.syntax import COORDINATES, LANE_READ, Sync, Unit, assign, expression, text

OUTCOMES = {
    "count": "np.int32(0)",
    "all_of": "True",
    "any_of": "True",
    "same": "True",
    "ballot": "np.uint32(0)",
    "match_any": "np.int32(0)",
    "match_all": "(np.int32(0), True)",
}
"""What a vote of `runtime` gives, by example."""


class Alone(ast.NodeTransformer):
    """Replaces what other threads take part in."""

    def visit_Sync(self, node: Sync) -> ast.stmt:
        if node.collective is None:
            return ast.copy_location(ast.Pass(), node)
        function, _, result = node.collective
        return assign(result, expression(OUTCOMES[function]), node.lineno)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function == LANE_READ:
            return node.args[0]
        if function in ("match_any", "match_all"):
            return expression(OUTCOMES[function])
        return node


def one_thread(tree: ast.FunctionDef, unit: Unit) -> tuple[str, list[int]]:
    """The text of a function of the kernel's parameters and constant arrays; of each line, that of the source."""
    alone = Alone().visit(copy.deepcopy(tree))
    parameters = [a.arg for a in tree.args.args] + list(unit.hidden)
    lines = [f"def one_thread({', '.join(parameters)}):"]
    lines.append(f"    {' = '.join(COORDINATES)} = block = thread = warp_first = warp_end = 0")
    lines.append("    error = stack((0,), np.int64)")
    for variable, array in unit.arrays.items():
        shape = (0,) if array.kind == "dynamic" else tuple(array.shape)
        lines.append(f"    {variable} = stack({shape}, {array.dtype})")
    sources = [tree.lineno] * len(lines)
    write(alone.body, 1, lines, sources)
    return "\n".join(lines), sources


def write(block: list[ast.stmt], depth: int, lines: list[str], sources: list[int]) -> None:
    """Add the text of statements, and of each line that of the source."""
    for statement in block:
        inner = [(key, getattr(statement, key)) for key in ("body", "orelse") if getattr(statement, key, None)]
        head = copy.copy(statement)
        for key, _ in inner:
            setattr(head, key, [ast.Pass()] if key == "body" else [])
        content = text(head).split("\n")
        content = content[:-1] if inner else content
        for position, (key, body) in enumerate(inner or [("", [])]):
            content = content if position == 0 else ["else:"]
            lines += ["    " * depth + line for line in content]
            sources += [getattr(statement, "lineno", 0)] * len(content)
            if key:
                write(body, depth + 1, lines, sources)
