"""First step of the compiler: every name of a kernel is replaced by what it stands for.

After it, a kernel mentions its own variables, literals, functions of `math`, NumPy and `runtime`, the coordinates
(`threadIdx_x`, `blockDim_x` ...) and markers for the places where threads meet. Arrays that it allocates are noted in
the `Unit` and their statements dropped.
"""

from __future__ import annotations

import ast
import inspect
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numba
import numpy as np
from numba.core import types
from numba.np import numpy_support

from miniflow.hostcuda import runtime
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.intrinsic import Intrinsic
from miniflow.hostcuda.libdevice import TABLE as LIBDEVICE
from miniflow.hostcuda.references import function_of, is_kernel, libdevice_call, literal_of, local_names
from miniflow.hostcuda.source import UNKNOWN, Source, read, resolve
from miniflow.hostcuda.syntax import (
    COORDINATES,
    MARK,
    Allocation,
    Renamer,
    Unit,
    assign,
    call,
    expression,
    name,
    reads,
    statements,
    target_names,
    text,
)

REFUSED = {
    ast.Try: "try",
    ast.With: "with",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.Delete: "del",
    ast.ClassDef: "class",
    ast.AsyncFunctionDef: "async def",
    ast.Lambda: "lambda",
    ast.List: "a list",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.ListComp: "a list comprehension",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: ":=",
    ast.Starred: "a starred expression",
}
if hasattr(ast, "Match"):
    REFUSED[ast.Match] = "match"

NOTHING = {"threadfence", "threadfence_block", "threadfence_system", "nanosleep"}  # memory is coherent, time passes
MEETINGS = {
    "syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "syncwarp",
    "shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync",
    "all_sync", "any_sync", "eq_sync", "ballot_sync", "match_any_sync", "match_all_sync", "activemask",
}  # fmt: skip
GRID_SYNC = "grid.sync"
DIMENSIONS = {"grid": "blockIdx_{0} * blockDim_{0} + threadIdx_{0}", "gridsize": "blockDim_{0} * gridDim_{0}"}


class DeviceFunction:
    """A device function, normalised.

    Attributes:
        meets: whether threads meet in it or it allocates arrays, so that it must be expanded where it is called.
        coordinates: the thread and launch coordinates that it (or what it calls) reads.
    """

    def __init__(self, identifier: str, tree: ast.FunctionDef, meets: bool, coordinates: list[str]):
        self.name, self.tree, self.meets, self.coordinates = identifier, tree, meets, coordinates


def normalise(kernel: Any, unit: Unit) -> ast.FunctionDef:
    """The kernel's tree with every free name resolved; `unit` collects what it allocates and calls."""
    source = read(kernel.py_func)
    return Normaliser(source, unit, ()).run()


class Normaliser(ast.NodeTransformer):
    """Walks one function; see the module."""

    def __init__(self, source: Source, unit: Unit, stack: tuple):
        self.source, self.unit, self.stack = source, unit, stack
        self.local = local_names(source.tree)
        self.grid_groups: set[str] = set()
        self.allocated = False
        self.prefix = ""

    def run(self, prefix: str = "") -> ast.FunctionDef:
        """The normalised definition; names that collide with the compiler's own are changed."""
        tree = self.source.tree
        arguments = tree.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            self.refuse(tree, "a parameter list with *, ** or keyword-only parameters")
        clash = {n: f"{n}_" for n in self.local if n in COORDINATES or n in runtime.RESERVED or n.startswith("_")}
        self.local = {clash.get(n, n) for n in self.local}
        tree = Renamer(clash).visit(tree)
        self.unit.taken |= self.local
        self.prefix = prefix
        tree.body = self._block(tree.body)
        return protect_parameters(tree, self.unit)

    def refuse(self, node: ast.AST, what: str, remedy: str = "") -> NoReturn:
        """Raise UnsupportedKernelError naming construct and line."""
        place = f"{self.source.filename}:{getattr(node, 'lineno', self.source.tree.lineno)}"
        raise UnsupportedKernelError(
            f"{place}: {self.source.name}: {what} is not supported in a kernel" + (f": {remedy}" if remedy else "")
        )

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        result = []
        for statement in block:
            new = self.visit(statement)
            if new is not None:
                result.append(new)
        return result or [ast.copy_location(ast.Pass(), block[0])]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if type(node) in REFUSED:
            self.refuse(node, REFUSED[type(node)])
        return super().generic_visit(node)

    # statements

    def visit_If(self, node: ast.If) -> ast.If:
        node.test, node.body = self.visit(node.test), self._block(node.body)
        node.orelse = self._block(node.orelse) if node.orelse else []
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        return self.visit_If(node)

    def visit_For(self, node: ast.For) -> ast.For:
        node.target, node.iter, node.body = self.visit(node.target), self.visit(node.iter), self._block(node.body)
        node.orelse = self._block(node.orelse) if node.orelse else []
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.decorator_list:
            self.refuse(node, "a decorated function inside it", "define it outside")
        node.body = self._block(node.body)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return None
        node.value = self.visit(node.value)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        if isinstance(node.value, ast.Call):
            intrinsic = self._intrinsic(node.value.func)
            if intrinsic in ("shared.array", "local.array", "const.array_like", "cg.this_grid"):
                if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                    self.refuse(node, f"cuda.{intrinsic} assigned to anything but one variable")
                if intrinsic == "cg.this_grid":
                    self.grid_groups.add(node.targets[0].id)
                else:
                    self._allocate(intrinsic, node.targets[0].id, node.value)
                return None
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        if len(node.targets) > 1 and not all(isinstance(t, ast.Name) for t in node.targets):
            self.refuse(node, "a chain of assignments to anything but names")
        return node

    def _allocate(self, intrinsic: str, variable: str, node: ast.Call) -> None:
        self.allocated = True
        given = dict(zip(("shape", "dtype"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords})
        known = self.unit.arrays.get(variable)
        if known is not None and known.line != node.lineno:
            self.refuse(node, f"a second array called {variable}", f"the first stands in line {known.line}; rename one")
        if intrinsic == "const.array_like":
            values = resolve(node.args[0], self.source.namespace, self.local)
            if not isinstance(values, np.ndarray):
                self.refuse(node, "cuda.const.array_like of anything but a NumPy array from outside the kernel")
            self.unit.hidden[variable] = np.ascontiguousarray(values)
            self._know("const", variable, values.tobytes(), values.dtype, values.shape)
            return
        shape = self._constant(given.get("shape"), f"the shape of cuda.{intrinsic}", node)
        shape = tuple(shape) if isinstance(shape, tuple) else (shape,)
        kind = "local" if intrinsic == "local.array" else "dynamic" if shape == (0,) else "shared"
        if kind != "dynamic" and not all(type(n) is int and n > 0 for n in shape):
            self.refuse(node, f"cuda.{intrinsic} of shape {shape}", "sizes are positive integers")
        dtype = self._dtype(given.get("dtype"), node)
        self.unit.arrays[variable] = Allocation(kind, shape, dtype, node.lineno)

    def _dtype(self, node: ast.expr | None, at: ast.AST) -> str:
        if node is None:
            self.refuse(at, "an array without a dtype")
        value = resolve(node, self.source.namespace, self.local)
        if value is UNKNOWN:
            if isinstance(node, ast.Attribute) and node.attr == "dtype":
                return text(self.visit(node))
            if isinstance(node, ast.Constant):
                value = node.value
            else:
                self.refuse(at, f"the dtype {ast.unparse(node)}", "give a constant such as numba.float32")
        return self._dtype_text(value, at)

    def _dtype_text(self, value: Any, at: ast.AST) -> str:
        try:
            dtype = numpy_support.as_dtype(value) if isinstance(value, types.Type) else np.dtype(value)
        except (TypeError, NotImplementedError, numba.errors.NumbaError):
            self.refuse(at, f"the dtype {value!r}")
        if dtype.names is None:
            return f"np.{dtype.type.__name__}"
        self._know("dtype", repr(dtype))
        variable = self.unit.fresh("record_dtype")
        self.unit.injected[variable] = dtype
        return variable

    def _constant(self, node: ast.expr | None, what: str, at: ast.AST) -> Any:
        if node is None:
            self.refuse(at, f"{what} left out")
        try:
            return eval(compile(ast.fix_missing_locations(ast.Expression(self.visit(node))), "", "eval"), {"np": np})
        except Exception:
            self.refuse(at, f"{what} given by {ast.unparse(node)}", "it must be a constant, known when compiling")

    def _know(self, *facts: Any) -> None:
        self.unit.fingerprint.extend(str(f) for f in facts)

    # expressions

    def _intrinsic(self, node: ast.expr) -> str:
        found = resolve(node, self.source.namespace, self.local)
        return found.name if isinstance(found, Intrinsic) else ""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.local or not isinstance(node.ctx, ast.Load):
            return node
        value = resolve(node, self.source.namespace)
        if value is UNKNOWN:
            self.refuse(node, f"the undefined name {node.id}")
        return ast.copy_location(self._reference(value, node), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = resolve(node, self.source.namespace, self.local)
        if value is UNKNOWN:
            owner = resolve(node.value, self.source.namespace, self.local)
            if isinstance(owner, ModuleType | SimpleNamespace):
                self.refuse(node, f"{ast.unparse(node)}, which does not exist,")
            node.value = self.visit(node.value)
            return node
        return ast.copy_location(self._reference(value, node), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "sync" and self._is_grid(function.value):
            self.unit.cooperative = True
            return ast.copy_location(call(MARK + GRID_SYNC), node)
        value = resolve(function, self.source.namespace, self.local)
        if isinstance(value, Intrinsic):
            return ast.copy_location(self._call_intrinsic(value.name, node), node)
        if is_kernel(value):
            return self._call_device(value, node)
        if value is print or value is range or value is not UNKNOWN:
            node.func = self._reference(value, function)
        else:
            node.func = self.visit(function)
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def _is_grid(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self._intrinsic(node.func) == "cg.this_grid"
        return isinstance(node, ast.Name) and node.id in self.grid_groups

    def _call_intrinsic(self, intrinsic: str, node: ast.Call) -> ast.expr:
        if node.keywords and intrinsic not in ("syncwarp",):
            self.refuse(node, f"cuda.{intrinsic} with keyword arguments")
        if intrinsic in DIMENSIONS:
            count = self._constant(node.args[0] if node.args else None, f"the argument of cuda.{intrinsic}", node)
            if count not in (1, 2, 3):
                self.refuse(node, f"cuda.{intrinsic}({count})", "expected 1, 2 or 3")
            parts = [expression(DIMENSIONS[intrinsic].format(axis)) for axis in "xyz"[:count]]
            return parts[0] if count == 1 else ast.Tuple(parts, ast.Load())
        args = [self.visit(a) for a in node.args]
        if intrinsic in NOTHING:
            return ast.Constant(None)
        if intrinsic in MEETINGS:
            return call(MARK + intrinsic, *args)
        if intrinsic == "lanemask_lt":
            return expression("np.uint32((1 << lane) - 1)")
        counterpart = LIBDEVICE.get(intrinsic.removeprefix("libdevice."))
        if intrinsic.startswith("libdevice.") and counterpart is not None:
            return libdevice_call(counterpart, args)
        function = runtime.FUNCTIONS.get(intrinsic)
        if function is None:
            self.refuse(node, f"cuda.{intrinsic}")
        return call(function, *args)

    def _call_device(self, kernel: Any, node: ast.Call) -> ast.expr:
        if not kernel.device:
            self.refuse(node, f"a launch of the kernel {kernel.py_func.__name__} from a kernel", "launch from the host")
        if kernel in self.stack:
            self.refuse(node, f"the recursive call of {kernel.py_func.__name__}", "write it as a loop")
        if node.keywords:
            self.refuse(node, f"a call of {kernel.py_func.__name__} with keyword arguments", "pass them by position")
        device = self.unit.functions.get(kernel)
        if device is None:
            device = self.unit.functions[kernel] = device_function(kernel, self.unit, self.stack + (kernel,))
        args = [self.visit(a) for a in node.args]
        if len(args) != len(device.tree.args.args):
            self.refuse(
                node, f"a call of {kernel.py_func.__name__} with {len(args)} of {len(device.tree.args.args)} arguments"
            )
        if device.meets:
            result = call(f"{MARK}{device.name}", *args)
            result.device = device
            self.allocated = True
        else:
            result = call(device.name, *args, *[name(c) for c in device.coordinates])
        return ast.copy_location(result, node)

    def _reference(self, value: Any, node: ast.AST) -> ast.expr:
        """An expression of the generated module for an object from outside the kernel."""
        if isinstance(value, Intrinsic):
            if value.name in runtime.COORDINATE_OF:
                return expression(runtime.COORDINATE_OF[value.name])
            if value.name in ("laneid", "warpsize"):
                return name("lane") if value.name == "laneid" else ast.Constant(32)
            self.refuse(node, f"cuda.{value.name} without a call")
        literal = literal_of(value)
        if literal is not None:
            return literal
        if isinstance(value, types.Type):
            key = getattr(value, "name", "")
            if getattr(types, key, None) is value:
                return expression(f"types.{key}")
        function = function_of(value)
        if function:
            return expression(function)
        if isinstance(value, FunctionType):
            self.refuse(node, f"a call of the plain function {value.__name__}", "decorate it: @cuda.jit(device=True)")
        if isinstance(value, np.ndarray):
            variable = self.unit.fresh(f"constant_{getattr(node, 'id', 'array')}")
            self.unit.hidden[variable] = np.ascontiguousarray(value)
            self._know("array", value.tobytes(), value.dtype, value.shape)
            return name(variable)
        if isinstance(value, ModuleType | SimpleNamespace | np.random.RandomState):
            self.refuse(node, f"{ast.unparse(node)} without an attribute")
        return name(self._inject(value, node))

    def _inject(self, value: Any, node: ast.AST) -> str:
        """A name for an object that cannot be spelled, such as a function compiled by numba or a named tuple's type."""
        for variable, known in self.unit.injected.items():
            if known is value:
                return variable
        function = getattr(value, "py_func", value)
        try:
            self._know(inspect.getsource(function))
        except (OSError, TypeError):
            self._know(repr(value))
        self._know([repr(c.cell_contents) for c in getattr(function, "__closure__", None) or ()])
        variable = self.unit.fresh(getattr(value, "__name__", "injected"))
        self.unit.injected[variable] = value
        return variable


def device_function(kernel: Any, unit: Unit, stack: tuple) -> DeviceFunction:
    """Read and normalise a device function."""
    normaliser = Normaliser(read(kernel.py_func), unit, stack)
    before = set(unit.arrays)
    tree = normaliser.run()
    identifier = unit.fresh(kernel.py_func.__name__)
    renamed = {v: unit.fresh(f"{identifier}_{v}") for v in unit.arrays if v not in before and v in normaliser.local}
    for old, new in renamed.items():
        unit.arrays[new] = unit.arrays.pop(old)
    tree = Renamer(renamed).visit(tree)
    meets = normaliser.allocated or any(MARK in r for s in tree.body for r in reads(s))
    used = {r for s in tree.body for r in reads(s)}
    tree.name = identifier
    return DeviceFunction(identifier, tree, meets, [c for c in COORDINATES if c in used])


def protect_parameters(tree: ast.FunctionDef, unit: Unit) -> ast.FunctionDef:
    """Let a function that assigns to a parameter do so to a copy: parameters are shared by all threads."""
    assigned = {n for s in statements(tree.body) for n in target_names(s)}
    copies = []
    for parameter in tree.args.args:
        if parameter.arg in assigned:
            given = unit.fresh(f"given_{parameter.arg}")
            copies.append(assign(parameter.arg, name(given), tree.lineno))
            parameter.arg = given
    tree.body = copies + tree.body
    return tree
