"""Names for arrays: a variable that stands for one array is replaced by it, one that stands for several by a number.

s = cuda.shared.array(32, float32)    ->    (every `s` is the shared array)
a, b = b, a                           ->    a_choice, b_choice = b_choice, a_choice, and for an element
a[0] += 1                                   a = local1 if a_choice == 0 else local2

Arrays themselves never move, so this is copy propagation (Aho et al., "Compilers", section 9.1.5) for names of arrays.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from miniflow.hostcuda.syntax import (
    Compilation,
    Renamer,
    call,
    fill_empty,
    name,
    sets_names,
    statements,
    target_names,
)


def propagate_copies(tree: ast.FunctionDef, compilation: Compilation, arrays: set[str]) -> None:
    """Replace names of arrays in place.

    Args:
        tree: the kernel, after its live ranges were separated.
        arrays: its parameters that are arrays.
    """
    while True:
        definitions = values_of(tree)
        names_of_arrays = arrays | set(compilation.arrays)
        single = {
            v: values[0].id
            for v, values in definitions.items()
            if len(values) == 1 and isinstance(values[0], ast.Name) and values[0].id in names_of_arrays
        }
        if not single:
            break
        Renamer(single).visit(fill_empty(WithoutAssignments(single).visit(tree)))
    refuse_arithmetic(tree, compilation, names_of_arrays)
    choices = points_to(definitions, names_of_arrays)
    for variable, candidates in choices.items():
        compilation.choices[variable] = candidates
    SelectArray(compilation).visit(tree)
    readable_names(tree, compilation)


ELEMENTWISE = {  # and where the operands are
    ast.BinOp: ("arithmetic on", "left", "right"), ast.AugAssign: ("arithmetic on", "target", "value"),
    ast.UnaryOp: ("arithmetic on", "operand"), ast.Compare: ("a comparison of", "left", "comparators"),
    **dict.fromkeys((ast.If, ast.While, ast.IfExp), ("a condition that is", "test")),
    ast.BoolOp: ("a condition that is", "values"),
}  # fmt: skip


def refuse_arithmetic(tree: ast.FunctionDef, compilation: Compilation, arrays: set[str]) -> None:
    """A GPU computes with elements, not with whole arrays.

    Raises:
        UnsupportedKernelError: for arithmetic on an array, a comparison, or a condition.
    """
    for node in ast.walk(tree):
        problem, *fields = ELEMENTWISE.get(type(node), ("",))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
            continue
        operands = [getattr(node, field) for field in fields]
        for operand in [o for part in operands for o in (part if isinstance(part, list) else [part])]:
            if isinstance(operand, ast.Name) and operand.id in arrays:
                compilation.refuse(node, f"{problem} the whole array {operand.id}", f"write {operand.id}[i]")


def values_of(tree: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    """Variable -> the values assigned to it; None for an assignment of another form."""
    values: dict[str, list[ast.expr | None]] = {}
    for statement in statements(tree.body):
        for variable in target_names(statement):
            values.setdefault(variable, []).append(statement.value if sets_names(statement) else None)
    return values


class WithoutAssignments(ast.NodeTransformer):
    """Drops the assignments to some variables."""

    def __init__(self, variables: Collection[str]):
        self.variables = variables

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        if set(target_names(node)).isdisjoint(self.variables):
            return node
        node.targets = [t for t in node.targets if t.id not in self.variables]
        return node if node.targets else None


def points_to(definitions: dict[str, list[ast.expr | None]], arrays_of_kernel: set[str]) -> dict[str, list[str]]:
    """The variables that only ever stand for known arrays or for such variables, each with its arrays."""

    def reached(variable: str, path: frozenset[str]) -> set[str] | None:
        reachable: set[str] = set()
        for value in definitions[variable]:
            source = value.id if isinstance(value, ast.Name) else ""
            if source in path:
                continue
            arrays = (
                {source}
                if source in arrays_of_kernel
                else reached(source, path | {source})
                if source in definitions
                else None
            )
            if arrays is None:
                return None
            reachable |= arrays
        return reachable

    all_of = {v: reached(v, frozenset({v})) for v in definitions}
    return {v: sorted(arrays) for v, arrays in all_of.items() if arrays}


class SelectArray(ast.NodeTransformer):
    """Assignments of arrays become assignments of their numbers; other uses choose among the arrays."""

    def __init__(self, compilation: Compilation):
        self.compilation = compilation
        self.order = sorted({a for candidates in compilation.choices.values() for a in candidates})

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        targets = target_names(node)
        if not any(t in self.compilation.choices for t in targets):
            return self.generic_visit(node)
        value = node.value.id
        code = name(self._code(value)) if value in self.compilation.choices else ast.Constant(self.order.index(value))
        node.targets = [ast.Name(self._code(t), ast.Store()) for t in targets]
        node.value = code
        return ast.fix_missing_locations(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.compilation.choices or not isinstance(node.ctx, ast.Load):
            return node
        candidates = self.compilation.choices[node.id]
        selection: ast.expr = name(candidates[-1])
        for candidate in candidates[:-1]:
            index = ast.Constant(self.order.index(candidate))
            selection = call("selected", name(self._code(node.id)), index, name(candidate), selection)
        return ast.copy_location(selection, node)

    def _code(self, variable: str) -> str:
        return f"{variable}_choice"


def readable_names(tree: ast.FunctionDef, compilation: Compilation) -> None:
    """Give an array that the kernel makes the name that its author gave it, if that stands for nothing else."""
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {a.arg for a in tree.args.args}
    names: dict[str, str] = {}
    for array, allocation in compilation.arrays.items():
        called = allocation.source_name
        if called and called != array and called not in used and called not in names.values():
            names[array] = called
    Renamer(names).visit(tree)
    compilation.arrays = {names.get(array, array): allocation for array, allocation in compilation.arrays.items()}
