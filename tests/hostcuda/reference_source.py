"""Kernels as generators: a kernel's Python source, rewritten so that operators follow numba's types.

    a + b * c         ->  binary("Add", a, binary("Mult", b, c))
    x[i] += 1         ->  store(x, i, binary("Add", load(x, i), 1))
    f(a)              ->  (yield from call(site, f, a))

Control flow, names, tuples and arguments stay Python's. A thread is the generator that a rewritten kernel returns; it
yields where it waits for other threads.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any


def rewritten(function: FunctionType, runtime: dict[str, Any], convert: Callable[[Any], Any]) -> Callable:
    """The function with its operators replaced.

    Args:
        runtime: what the new code calls: binary, unary, compare, load, store, attribute, set_attribute, call.
        convert: gives what a free name of the function stands for here, from what it stands for there.
    """
    definition = syntax_tree(function)
    tree = ast.fix_missing_locations(ast.Module([Rewriter(function.__qualname__).visit(definition)], []))
    code = compile(tree, function.__code__.co_filename, "exec")
    names = dict(runtime)
    exec(code, names)
    result = names[definition.name]
    result.__defaults__ = function.__defaults__
    result.__kwdefaults__ = function.__kwdefaults__
    for name, value in free_names(function).items():
        names[name] = convert(value)
    return result


def syntax_tree(function: FunctionType) -> ast.FunctionDef:
    """The definition of a function; a lambda becomes one that returns."""
    source = textwrap.dedent(inspect.getsource(function))
    if function.__name__ != "<lambda>":
        definition = ast.parse(source).body[0]
        definition.decorator_list, definition.returns = [], None
        for argument in ast.walk(definition.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return definition
    (found,) = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda)]
    return ast.FunctionDef("lambda_", found.args, [ast.Return(found.body)], [], lineno=1, col_offset=0)


def free_names(function: FunctionType) -> dict[str, Any]:
    """Name -> value, for the closure and the globals that a function uses, also in functions inside it."""
    closure = dict(inspect.getclosurevars(function).nonlocals)
    wanted: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        wanted.update(code.co_names)
        waiting += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    everything = {**vars(__import__("builtins")), **function.__globals__}
    return {name: everything[name] for name in wanted if name in everything} | closure


class Rewriter(ast.NodeTransformer):
    """Replaces operators, subscripts, attributes and calls by calls of the runtime."""

    def __init__(self, function: str):
        self.function = function
        self.numbers = itertools.count()

    def runtime(self, name: str, *arguments: Any) -> ast.Call:
        """A call of the runtime; strings are constants."""
        nodes = [ast.Constant(a) if isinstance(a, str) else a for a in arguments]
        return ast.Call(ast.Name(f"_{name}", ast.Load()), nodes, [])

    def fresh(self) -> str:
        return f"_t{next(self.numbers)}"

    # Expressions

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self.runtime("binary", type(node.op).__name__, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        return self.runtime("unary", type(node.op).__name__, self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b < c` evaluates b once."""
        left, parts = self.visit(node.left), []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.visit(comparator)
            name = self.fresh()
            kept = ast.NamedExpr(ast.Name(name, ast.Store()), right) if len(node.ops) > 1 else right
            parts.append(self.runtime("compare", type(op).__name__, left, kept))
            left = ast.Name(name, ast.Load())
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        site = f"{self.function}:{next(self.numbers)}"
        called = self.runtime("call", site, self.visit(node.func), *map(self.visit, node.args))
        called.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return ast.YieldFrom(called)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self.runtime("load", self.visit(node.value), self.index(node.slice))

    def index(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Slice):
            parts = [self.visit(p) if p else ast.Constant(None) for p in (node.lower, node.upper, node.step)]
            return self.runtime("slice", *parts)
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.index(item) for item in node.elts], ast.Load())
        return self.visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.runtime("attribute", self.visit(node.value), node.attr)

    # Statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = self.block(node.body)
        return node

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            result += new if isinstance(new, list) else [new]
        return result

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.assign(node.targets[0], value)
        name = self.fresh()
        result: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)]
        for target in node.targets:
            result += self.assign(target, ast.Name(name, ast.Load()))
        return result

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return self.assign(node.target, self.visit(node.value)) if node.value else ast.Pass()

    def assign(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Subscript):
            return [ast.Expr(self.runtime("store", self.visit(target.value), self.index(target.slice), value))]
        if isinstance(target, ast.Attribute):
            return [ast.Expr(self.runtime("set_attribute", self.visit(target.value), target.attr, value))]
        if isinstance(target, ast.Tuple | ast.List):
            names = [self.fresh() for _ in target.elts]
            unpacked = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
            result: list[ast.stmt] = [ast.Assign([unpacked], value, lineno=0)]
            for name, item in zip(names, target.elts, strict=True):
                result += self.assign(item, ast.Name(name, ast.Load()))
            return result
        return [ast.Assign([target], value, lineno=0)]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        operation, target = type(node.op).__name__, node.target
        if isinstance(target, ast.Name):
            old: ast.expr = ast.Name(target.id, ast.Load())
            return self.assign(target, self.runtime("binary", operation, old, self.visit(node.value)))
        owner, place = self.fresh(), self.fresh()
        subscript = isinstance(target, ast.Subscript)
        key = self.index(target.slice) if subscript else ast.Constant(target.attr)
        both = [ast.Name(owner, ast.Load()), ast.Name(place, ast.Load())]
        old = self.runtime("load" if subscript else "attribute", *both)
        new = self.runtime("binary", operation, old, self.visit(node.value))
        return [
            ast.Assign([ast.Name(owner, ast.Store())], self.visit(target.value), lineno=0),
            ast.Assign([ast.Name(place, ast.Store())], key, lineno=0),
            ast.Expr(self.runtime("store" if subscript else "set_attribute", *both, new)),
        ]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        node.iter = self.visit(node.iter)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return [node]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        node.test = self.visit(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return [node]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        node.test = self.visit(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return [node]

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = self.visit(case.guard) if case.guard else None
            case.body = self.block(case.body)
        return [node]

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """numba.cuda compiles no assertion without debug=True."""
        return ast.Pass()
