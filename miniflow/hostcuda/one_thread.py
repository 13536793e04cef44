"""The kernel as one thread would run it alone: without barriers, and with constants for values of other threads.

This is never run; numba infers the types of the kernel's variables from it, once.
"""

from __future__ import annotations

import ast
import copy

from miniflow.hostcuda.syntax import COORDINATES, LANE_READ, Compilation, Sync, assign, expression, statements

OUTCOMES = {
    "count": "np.int32(0)",
    "all_of": "True",
    "any_of": "True",
    "same": "True",
    "ballot": "np.uint32(0)",
    "match_any": "np.int32(0)",
    "match_all": "(np.int32(0), True)",
}
"""A result of each vote of `runtime`, of the right type."""


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


def one_thread(tree: ast.FunctionDef, compilation: Compilation) -> ast.Module:
    """A function `one_thread` of the kernel's parameters and constant arrays, with the line numbers of the source."""
    parameters = ", ".join([a.arg for a in tree.args.args] + list(compilation.captured_arrays))
    lines = [
        f"def one_thread({parameters}):",
        f"{' = '.join(COORDINATES)} = block = thread = warp_first = warp_end = 0",
        "error = stack((0,), np.int64)",
    ]
    for variable, array in compilation.arrays.items():
        lines.append(f"{variable} = stack({(0,) if array.kind == 'dynamic' else array.shape}, {array.dtype})")
    module, body = ast.parse("\n    ".join(lines)), Alone().visit(copy.deepcopy(tree)).body
    for statement, line in [(s, s.lineno) for s in statements(body)]:
        for node in ast.walk(statement):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    module.body[0].body += body
    return module
