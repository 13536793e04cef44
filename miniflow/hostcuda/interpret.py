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
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import watched
from miniflow.hostcuda.arithmetic import BINARY, MATH, UNARY, cast, loaded
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.findings import Site
from miniflow.hostcuda.intrinsic import AXES, Intrinsic
from miniflow.hostcuda.shadow import Memory
from miniflow.hostcuda.source import UNKNOWN, Source, read, resolve
from miniflow.hostcuda.watched import Watched, as_dtype
from miniflow.hostcuda.warps import OPERATIONS

BARRIERS = ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")
GRID_SYNC = "grid.sync"
MEETINGS = {*BARRIERS, *OPERATIONS}
THREAD = "__thread"
ARRAYS = {"shared.array", "local.array", "const.array_like"}
PLAIN_ATTRIBUTES = {"shape", "size", "ndim", "dtype", "strides", "type", "itemsize"}
BUILTIN_CASTS = {int: np.int64, float: np.float64, bool: np.bool_, complex: np.complex128}
HELPERS = {
    "load": watched.load,
    "store": watched.store,
    "update": watched.update,
    "attribute": watched.attribute,
    "set_attribute": watched.set_attribute,
    "iterate": watched.iterate,
    **BINARY,
    **UNARY,
}


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
            code = original.__code__
            raise UnsupportedKernelError(
                f"{code.co_filename}:{code.co_firstlineno}: {original.__name__} calls itself; recursion is not supported in a kernel"
            )
        return found

    def site(self, node: ast.AST, source: Source) -> int:
        """The number of a place."""
        text = linecache.getline(source.filename, node.lineno).strip()
        self.sites.append(Site(source.filename, node.lineno, node.col_offset, text))
        return len(self.sites) - 1


def is_device_function(value: Any) -> bool:
    return isinstance(getattr(value, "py_func", None), FunctionType)


class Rewriter(ast.NodeTransformer):
    """Rewrites one function; see the module."""

    def __init__(self, program: Program, source: Source, is_kernel: bool):
        self.program, self.source, self.is_kernel = program, source, is_kernel
        self.local = _assigned(source.tree)
        self.namespace: dict[str, Any] = {f"__{name}": helper for name, helper in HELPERS.items()}
        self.groups = self._grid_groups()
        self.meeting = self._meeting_functions()
        self.target = ""
        self.counter = 0
        self.depth = 0

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
        return _name(name)

    def _helper(self, name: str, *args: ast.expr) -> ast.Call:
        return ast.Call(_name(f"__{name}"), list(args), [])

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in block:
            new = self.visit(statement)
            result.extend(new if isinstance(new, list) else [new])
        return result

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
        new = self._helper("attribute", _name(THREAD), self.visit(node.value), ast.Constant(node.attr), place)
        return ast.copy_location(new, node)

    def _known(self, node: ast.expr, value: Any) -> ast.expr | None:
        """What stands for an object from outside the kernel; None if it can stay as it is."""
        if isinstance(value, Intrinsic):
            return ast.copy_location(self._coordinate(node, value.name), node)
        if isinstance(value, np.ndarray):
            return ast.copy_location(self._bound(constant(_text(node), value), "array"), node)
        if isinstance(value, int | float | complex | np.generic):
            return ast.copy_location(self._bound(loaded(value), "value"), node)
        if isinstance(value, tuple):
            return ast.copy_location(self._bound(tuple(map(loaded, value)), "tuple"), node)
        return None

    def _coordinate(self, node: ast.expr, name: str) -> ast.expr:
        group, _, axis = name.partition(".")
        thread: ast.expr = _name(THREAD)
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
            node.args = [_name(THREAD), *self._visited(node.args)]
            node.keywords = self._visited(node.keywords)
            return ast.YieldFrom(node) if function.meets else node
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
        return ast.Call(ast.Attribute(_name(THREAD), name, ast.Load()), args, keywords)

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
        new = self._helper("load", _name(THREAD), *self._element(node))
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
            statements.append(ast.copy_location(ast.Assign([plain], _name(whole)), node))
        return statements + after

    def _plain_target(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple([self._plain_target(part, after) for part in target.elts], ast.Store())
        if isinstance(target, ast.Name):
            return target
        temporary = self._temporary()
        after.append(self._stored(target, _name(temporary)))
        return _stored_name(temporary)

    def _temporary(self) -> str:
        self.counter += 1
        return f"__part_{self.counter}"

    def _stored(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Subscript):
            array, index, place = self._element(target)
            new = self._helper("store", _name(THREAD), array, index, value, place)
        elif isinstance(target, ast.Attribute):
            owner, name = self.visit(target.value), ast.Constant(target.attr)
            new = self._helper("set_attribute", _name(THREAD), owner, name, value, self._site(target))
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
            new = self._helper(operator, _name(node.target.id), value)
            return ast.copy_location(ast.Assign([node.target], new), node)
        if isinstance(node.target, ast.Subscript):
            array, index, place = self._element(node.target)
            new = self._helper("update", _name(THREAD), array, index, _name(f"__{operator}"), value, place)
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
            node.iter = ast.copy_location(self._helper("iterate", _name(THREAD), node.iter, place), node)
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


def _name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Load())


def _stored_name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Store())


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _leaves(target: ast.expr) -> list[ast.expr]:
    return (
        [leaf for part in target.elts for leaf in _leaves(part)]
        if isinstance(target, ast.Tuple | ast.List)
        else [target]
    )


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
