"""From a kernel's source to Python that the checked executor runs: one call, or generator, for each thread.

    cuda.threadIdx.x            thread.threadIdx_x
    cuda.syncthreads()          yield "syncthreads", site, ()        the scheduler resumes it when all have met
    f(x), a device function     f(thread, x), or `yield from` it if threads meet in it
    a[i] + b[i]                 Add(load(thread, a, i, site), load(thread, b, i, site))
    np.float32(x), 0.5          numba's meaning of them, see `arithmetic`

The result is an ordinary function with the file's line numbers, so that tracebacks show the kernel as written.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from miniflow.hostcuda.arithmetic import loaded
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.expressions import THREAD, ExpressionRewriter, name_of
from miniflow.hostcuda.findings import Site
from miniflow.hostcuda.source import Source, read


@dataclass
class Function:
    """A rewritten kernel or device function: what to call, and whether it is a generator."""

    call: Callable
    meets: bool


class Program:
    """A kernel with all the device functions that it calls.

    Attributes:
        sites: the places in the source, by number.
        deliberate: sites where an index is literally negative.
        kernel: the kernel itself.
    """

    def __init__(self, kernel: Any):
        self.sites: list[Site] = []
        self.deliberate: set[int] = set()
        self.functions: dict[Any, Function | None] = {}
        self.kernel = self.function(getattr(kernel, "py_func", kernel), is_kernel=True)

    def function(self, original: FunctionType, is_kernel: bool = False) -> Function:
        """The rewritten function, once for all its callers."""
        if original not in self.functions:
            self.functions[original] = None
            self.functions[original] = Rewriter(self, read(original), is_kernel).build(original)
        found = self.functions[original]
        if found is None:
            place = f"{original.__code__.co_filename}:{original.__code__.co_firstlineno}"
            raise UnsupportedKernelError(
                f"{place}: {original.__name__} calls itself; recursion is not supported in a kernel"
            )
        return found

    def site(self, node: ast.AST, source: Source) -> int:
        """The number of a place."""
        text = linecache.getline(source.filename, node.lineno).strip()
        self.sites.append(Site(source.filename, node.lineno, node.col_offset, text))
        return len(self.sites) - 1


class Rewriter(ExpressionRewriter):
    """Rewrites the statements of one function; see the module."""

    depth = 0
    """How many nested functions the statement stands in."""

    def build(self, original: FunctionType) -> Function:
        """Rewrite, compile and make the function."""
        tree = self.source.tree
        meets = self._meets(tree)
        if self.is_kernel and isinstance(tree.body[-1], ast.Return):
            tree.body[-1] = ast.copy_location(ast.Pass(), tree.body[-1])  # the end of the kernel, not an early return
        tree.body = self._block(tree.body)
        tree.args.args.insert(0, ast.arg(THREAD))
        tree.args.defaults, tree.args.kw_defaults, tree.returns = [], [None] * len(tree.args.kwonlyargs), None
        for argument in tree.args.args:
            argument.annotation = None
        ast.fix_missing_locations(tree)
        names = {**self.source.namespace, **self.namespace}
        exec(compile(ast.Module([tree], []), self.source.filename, "exec"), names)
        function = names[tree.name]
        function.__defaults__ = tuple(map(loaded, original.__defaults__ or ())) or None
        function.__kwdefaults__ = original.__kwdefaults__
        return Function(function, meets)

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in block:
            new = self.visit(statement)
            result.extend(new if isinstance(new, list) else [new])
        return result

    # Statements

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        only = node.targets[0]
        self.target = only.id if len(node.targets) == 1 and isinstance(only, ast.Name) else ""
        value = self.visit(node.value)
        self.target = ""
        if len(node.targets) == 1 and isinstance(only, ast.Subscript | ast.Attribute):
            return [self._stored(only, value)]
        if all(isinstance(part, ast.Name) for target in node.targets for part in _leaves(target)):
            node.value = value
            return [node]
        return self._stored_in_parts(node, value)

    def _stored_in_parts(self, node: ast.Assign, value: ast.expr) -> list[ast.stmt]:
        """`a[i], a[j] = x, y` by way of variables."""
        whole = self._temporary()
        statements: list[ast.stmt] = [ast.copy_location(ast.Assign([_stored_name(whole)], value), node)]
        after: list[ast.stmt] = []
        for target in node.targets:
            plain = self._plain_target(target, after)
            statements.append(ast.copy_location(ast.Assign([plain], name_of(whole)), node))
        return statements + after

    def _plain_target(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple([self._plain_target(part, after) for part in target.elts], ast.Store())
        if isinstance(target, ast.Name):
            return target
        temporary = self._temporary()
        after.append(self._stored(target, name_of(temporary)))
        return _stored_name(temporary)

    def _temporary(self) -> str:
        self.counter += 1
        return f"__part_{self.counter}"

    def _stored(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Subscript):
            array, index, place = self._element(target)
            new = self._helper("store", name_of(THREAD), array, index, value, place)
        elif isinstance(target, ast.Attribute):
            owner, name = self.visit(target.value), ast.Constant(target.attr)
            new = self._helper("set_attribute", name_of(THREAD), owner, name, value, self._site(target))
        else:
            self.refuse(target, "this assignment")
        return ast.copy_location(ast.Expr(new), target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        operator, value = type(node.op).__name__, self.visit(node.value)
        if isinstance(node.target, ast.Name):
            new = self._helper(operator, name_of(node.target.id), value)
            return ast.copy_location(ast.Assign([node.target], new), node)
        if isinstance(node.target, ast.Subscript):
            array, index, place = self._element(node.target)
            new = self._helper("update", name_of(THREAD), array, index, name_of(f"__{operator}"), value, place)
            return ast.copy_location(ast.Expr(new), node)
        read = ast.copy_location(ast.Attribute(node.target.value, node.target.attr, ast.Load()), node)
        return self._stored(node.target, self._helper(operator, self.visit(read), value))

    def visit_For(self, node: ast.For) -> ast.For:
        if not isinstance(node.target, ast.Name | ast.Tuple):
            self.refuse(node, "a loop over array elements")
        is_range = isinstance(node.iter, ast.Call) and self._resolve(node.iter.func) is range
        place = None if is_range else self._site(node.iter)
        self.generic_visit(node)
        if place is not None:
            node.iter = ast.copy_location(self._helper("iterate", name_of(THREAD), node.iter, place), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        if self.is_kernel and self.depth == 0:
            node.value = ast.Constant(True)
            return node
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list, node.returns = [], None
        self.depth += 1
        node.body = self._block(node.body)
        self.depth -= 1
        return node


def _stored_name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Store())


def _leaves(target: ast.expr) -> list[ast.expr]:
    return (
        [leaf for part in target.elts for leaf in _leaves(part)]
        if isinstance(target, ast.Tuple | ast.List)
        else [target]
    )
