"""The expressions of a kernel, rewritten for the checked executor; `interpret` does the statements around them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import access
from miniflow.hostcuda.arithmetic import BINARY, MATH, UNARY, cast, loaded
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.intrinsic import AXES, Intrinsic
from miniflow.hostcuda.shadow import Memory
from miniflow.hostcuda.source import UNKNOWN, Source, resolve
from miniflow.hostcuda.warps import OPERATIONS
from miniflow.hostcuda.watched import Watched, as_dtype

BARRIERS = ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")
GRID_SYNC = "grid.sync"
MEETINGS = {*BARRIERS, *OPERATIONS}
THREAD = "__thread"
ARRAYS = {"shared.array", "local.array", "const.array_like"}
PLAIN_ATTRIBUTES = {"shape", "size", "ndim", "dtype", "strides", "type", "itemsize"}
BUILTIN_CASTS = {int: np.int64, float: np.float64, bool: np.bool_, complex: np.complex128}
HELPERS = {
    "load": access.load,
    "store": access.store,
    "update": access.update,
    "attribute": access.attribute,
    "set_attribute": access.set_attribute,
    "iterate": access.iterate,
    **BINARY,
    **UNARY,
}


def is_device_function(value: Any) -> bool:
    return isinstance(getattr(value, "py_func", None), FunctionType)


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the expressions of one function.

    Attributes:
        program: the `interpret.Program` to which the function belongs.
        local: the names that the function assigns.
        namespace: what the rewritten function uses besides the names of its source.
        groups: variables that hold `cuda.cg.this_grid()`.
        meeting: nested functions in which threads meet.
        target: the variable to which the value being rewritten is assigned: the name of an array.
    """

    def __init__(self, program: Any, source: Source, is_kernel: bool):
        self.program, self.source, self.is_kernel = program, source, is_kernel
        self.local = _assigned(source.tree)
        self.namespace: dict[str, Any] = {f"__{name}": helper for name, helper in HELPERS.items()}
        self.groups = self._grid_groups()
        self.meeting = self._meeting_functions()
        self.target = ""
        self.counter = 0

    # What is known before rewriting

    def _resolve(self, node: ast.AST) -> Any:
        return resolve(node, self.source.namespace, self.local)

    def _intrinsic(self, node: ast.AST) -> str:
        found = self._resolve(node)
        return found.name if isinstance(found, Intrinsic) else ""

    def _grid_groups(self) -> set[str]:
        """Variables that hold `cuda.cg.this_grid()`."""
        return {
            target.id
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.Assign) and self._is_grid(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def _is_grid(self, node: ast.AST, groups: set[str]) -> bool:
        if isinstance(node, ast.Name):
            return node.id in groups
        return isinstance(node, ast.Call) and self._intrinsic(node.func) == "cg.this_grid"

    def _is_grid_sync(self, node: ast.Call) -> bool:
        function = node.func
        return (
            isinstance(function, ast.Attribute)
            and function.attr == "sync"
            and self._is_grid(function.value, self.groups)
        )

    def _meeting_functions(self) -> set[str]:
        """Nested functions in which threads meet, also by way of each other."""
        nested = [n for n in ast.walk(self.source.tree) if isinstance(n, ast.FunctionDef) and n is not self.source.tree]
        self.meeting: set[str] = set()
        while found := {n.name for n in nested if n.name not in self.meeting and self._meets(n)}:
            self.meeting |= found
        return self.meeting

    def _meets(self, function: ast.FunctionDef) -> bool:
        """Whether threads meet in a function itself or in one that it calls."""
        pending: list[ast.AST] = list(function.body)
        while pending:
            node = pending.pop()
            if isinstance(node, ast.FunctionDef):
                continue
            if isinstance(node, ast.Call) and self._call_meets(node):
                return True
            pending.extend(ast.iter_child_nodes(node))
        return False

    def _call_meets(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Name) and node.func.id in self.meeting:
            return True
        found = self._resolve(node.func)
        if is_device_function(found):
            return self.program.function(found.py_func).meets
        return self._intrinsic(node.func) in MEETINGS or self._is_grid_sync(node)

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        raise UnsupportedKernelError(
            f"{self.source.filename}:{node.lineno}: {self.source.name}: {what} is not supported in a kernel"
        )

    # Pieces of the result

    def _site(self, node: ast.AST) -> ast.Constant:
        return ast.Constant(self.program.site(node, self.source))

    def _bound(self, value: Any, stem: str) -> ast.Name:
        """A name for an object that the rewritten function uses."""
        self.counter += 1
        name = f"__{stem}_{self.counter}"
        self.namespace[name] = value
        return name_of(name)

    def _helper(self, name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(name_of(f"__{name}"), list(args), [])

    # Names and constants

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, int | float | complex) and loaded(node.value) is not node.value:
            return ast.copy_location(self._bound(loaded(node.value), "number"), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id in self.local:
            return node
        return self._known(node, self._resolve(node)) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._resolve(node)
        if found is not UNKNOWN:
            return self._known(node, found) or node
        if node.attr in PLAIN_ATTRIBUTES or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        place = self._site(node)
        new = self._helper("attribute", name_of(THREAD), self.visit(node.value), ast.Constant(node.attr), place)
        return ast.copy_location(new, node)

    def _known(self, node: ast.expr, value: Any) -> ast.expr | None:
        """What stands for an object from outside the kernel; None if it can stay as it is."""
        if isinstance(value, Intrinsic):
            return ast.copy_location(self._coordinate(node, value.name), node)
        if isinstance(value, np.ndarray):
            return ast.copy_location(self._bound(constant(ast.unparse(node), value), "array"), node)
        if isinstance(value, int | float | complex | np.generic):
            return ast.copy_location(self._bound(loaded(value), "value"), node)
        if isinstance(value, tuple):
            return ast.copy_location(self._bound(tuple(map(loaded, value)), "tuple"), node)
        return None

    def _coordinate(self, node: ast.expr, name: str) -> ast.expr:
        group, _, axis = name.partition(".")
        thread: ast.expr = name_of(THREAD)
        if group in ("blockIdx", "blockDim", "gridDim"):
            thread = ast.Attribute(thread, "block", ast.Load())
        elif name == "laneid":
            return ast.Attribute(thread, "lane", ast.Load())
        elif name == "warpsize":
            return ast.Constant(32)
        elif group != "threadIdx":
            self.refuse(node, f"cuda.{name} without a call")
        return ast.Attribute(thread, f"{group}_{axis}" if axis in AXES else group, ast.Load())

    # Calls

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.copy_location(self._call(node), node)

    def _call(self, node: ast.Call) -> ast.expr:
        found = self._resolve(node.func)
        if isinstance(found, Intrinsic):
            return self._intrinsic_call(node, found.name)
        if self._is_grid_sync(node):
            return self._meeting(node, GRID_SYNC, [])
        if is_device_function(found):
            function = self.program.function(found.py_func)
            node.func = self._bound(function.call, found.py_func.__name__)
            node.args = [name_of(THREAD), *self._visited(node.args)]
            node.keywords = self._visited(node.keywords)
            return ast.YieldFrom(node) if function.meets else node
        if found is enumerate or found is zip:
            parts = [(arg, self._site(arg)) for arg in node.args]
            node.args = [self._helper("iterate", name_of(THREAD), self.visit(arg), place) for arg, place in parts]
            return node
        convert = _conversion(found)
        if convert is not None:
            node.func = self._bound(convert, "cast")
            node.args, node.keywords = self._visited(node.args), self._visited(node.keywords)
            return node
        self.generic_visit(node)
        nested = isinstance(node.func, ast.Name) and node.func.id in self.meeting
        return ast.YieldFrom(node) if nested else node

    def _intrinsic_call(self, node: ast.Call, name: str) -> ast.expr:
        target, self.target = self.target, ""
        args, keywords = self._visited(node.args), self._visited(node.keywords)
        if name in MEETINGS:
            return self._meeting(node, name, [*args, *(keyword.value for keyword in keywords)])
        if name == "cg.this_grid":
            return ast.Constant(None)
        if name.startswith("libdevice."):
            return self._method("libdevice", [ast.Constant(name.removeprefix("libdevice.")), *args], keywords)
        if name in ARRAYS:
            called = target or f"the {name.partition('.')[0]} array of line {node.lineno}"
            args = [self._site(node), ast.Constant(called), *args]
        elif name.startswith("atomic."):
            args = [self._site(node), *args]
        return self._method(name.replace(".", "_"), args, keywords)

    def _method(self, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
        return ast.Call(ast.Attribute(name_of(THREAD), name, ast.Load()), args, keywords)

    def _meeting(self, node: ast.Call, name: str, args: list[ast.expr]) -> ast.expr:
        """`yield (name, site, arguments)`: the scheduler sends the answer."""
        event = ast.Tuple([ast.Constant(name), self._site(node), ast.Tuple(args, ast.Load())], ast.Load())
        return ast.Yield(event)

    def _visited(self, nodes: list) -> list:
        return [self.visit(node) for node in nodes]

    # Elements and operators

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, "assigning to an element in this place")
        new = self._helper("load", name_of(THREAD), *self._element(node))
        return ast.copy_location(new, node)

    def _element(self, node: ast.Subscript) -> list[ast.expr]:
        """Array, index and site of a subscript."""
        place = self._site(node)
        if any(isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) for part in _parts(node.slice)):
            self.program.deliberate.add(place.value)
        return [self.visit(node.value), self._index(node.slice), place]

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._index(part) for part in node.elts], ast.Load()), node)
        if isinstance(node, ast.Slice):
            ends = [self.visit(end) if end else ast.Constant(None) for end in (node.lower, node.upper, node.step)]
            return ast.copy_location(ast.Call(self._bound(slice, "slice"), ends, []), node)
        return self.visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        operator = type(node.op).__name__
        return ast.copy_location(self._helper(operator, self.visit(node.left), self.visit(node.right)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self.visit_Constant(ast.copy_location(ast.Constant(-node.operand.value), node))
        return ast.copy_location(self._helper(type(node.op).__name__, self.visit(node.operand)), node)


def _conversion(value: Any) -> Callable | None:
    """What stands in for a function from outside: a cast, or a function of `math`; None if it can stay."""
    if isinstance(value, type) and value in BUILTIN_CASTS:
        return cast(BUILTIN_CASTS[value])
    if isinstance(value, type) and issubclass(value, np.generic):
        return cast(value)
    if any(base.__name__ == "Type" and base.__module__.startswith("numba") for base in type(value).__mro__):
        return cast(as_dtype(value))
    return MATH.get(value) if callable(value) and getattr(value, "__module__", "") == "math" else None


def constant(name: str, array: np.ndarray) -> Watched:
    """An array from outside the kernel, which is constant in it."""
    array = np.ascontiguousarray(array)
    whole = array.reshape(-1).view(np.uint8)
    return Watched(name, array, Memory("const", whole, array.itemsize, initialised=True))


def _assigned(tree: ast.FunctionDef) -> set[str]:
    """The names that a function and those nested in it assign, with their parameters."""
    names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names | {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n is not tree}


def name_of(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Load())


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]
