"""First step of the compiler: every name of a kernel is replaced by what it stands for.

After it, a kernel mentions its own variables, literals, functions of `math`, NumPy and `runtime`, the coordinates
(`threadIdx_x`, `blockDim_x` ...) and markers for barriers. Arrays that it allocates are noted in the `Compilation`
and their statements dropped.
"""

from __future__ import annotations

import ast
import cmath
import copy
import inspect
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numba
import numpy as np
from numba.core import types
from numba.np import numpy_support

from miniflow.hostcuda import runtime
from miniflow.hostcuda.cache import PACKAGE, package_digest
from miniflow.hostcuda.constants import propagate_constants
from miniflow.hostcuda.intrinsic import Intrinsic
from miniflow.hostcuda.libdevice import COUNTERPARTS
from miniflow.hostcuda.purity import is_repeatable
from miniflow.hostcuda.references import (
    FOR_HOSTS_ONLY,
    formula_of,
    function_of,
    is_for_kernels,
    is_kernel,
    libdevice_call,
    literal_of,
)
from miniflow.hostcuda.source import UNKNOWN, Source, is_own, read, resolve
from miniflow.hostcuda.syntax import (
    COORDINATES,
    MARK,
    Allocation,
    Compilation,
    Renamer,
    Replace,
    assign,
    call,
    expression,
    fill_empty,
    local_names,
    loop_exits,
    name,
    reads,
    refuse,
    statements,
    target_names,
    text,
)

REFUSED = {
    "a list": ast.List, "a dict": ast.Dict, "a set": ast.Set, "a list comprehension": ast.ListComp,
    "a set comprehension": ast.SetComp, "a dict comprehension": ast.DictComp, "a starred expression": ast.Starred,
    "a generator expression": ast.GeneratorExp, "an f-string": ast.JoinedStr, "import": ast.Import | ast.ImportFrom,
    "yield": ast.Yield | ast.YieldFrom, ":=": ast.NamedExpr, "try": ast.Try, "with": ast.With, "del": ast.Delete,
    "global": ast.Global, "nonlocal": ast.Nonlocal, "class": ast.ClassDef, "async": ast.AsyncFunctionDef | ast.Await,
}  # fmt: skip
NO_EFFECT = {"threadfence", "threadfence_block", "threadfence_system", "nanosleep"}  # memory is coherent, time passes
COLLECTIVES = {  # and how many arguments they take
    **dict.fromkeys(("syncthreads", "syncwarp", "activemask"), 0),
    **dict.fromkeys(("syncthreads_count", "syncthreads_and", "syncthreads_or"), 1),
    **dict.fromkeys("all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync".split(), 2),
    **dict.fromkeys(("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"), 3),
}
ATOMICS = {  # likewise
    **dict.fromkeys([f"atomic.{x}" for x in "add sub and_ or_ xor inc dec exch min max nanmin nanmax".split()], 3),
    "atomic.compare_and_swap": 3, "atomic.cas": 4,
}  # fmt: skip
LOADS = {"ldca", "ldcg", "ldcs", "ldlu", "ldcv"}  # with hints to caches, which mean nothing here
STORES = {"stcg", "stcs", "stwb", "stwt"}
ARRAYS = {"shared.array", "local.array", "const.array_like"}
GRID_SYNC = "grid.sync"
GENERATED = re.compile(r"^(_|taken_|skipped_|whole_)|(_of(_\d+)*(_copy)?|_all|_now|_choice)$")
"""Names of variables that the compiler makes of others."""
DIMENSIONS = {"grid": "blockIdx_{0} * blockDim_{0} + threadIdx_{0}", "gridsize": "blockDim_{0} * gridDim_{0}"}


class DeviceFunction:
    """A device function, normalised.

    Attributes:
        must_inline: whether it has barriers or allocates arrays, so that it must be expanded where it is called.
        coordinates: the thread and launch coordinates that it (or what it calls) reads.
        recursive: whether it calls itself.
        formula: what it returns, if it does nothing else.
    """

    def __init__(self, identifier: str, tree: ast.FunctionDef, must_inline: bool, coordinates: list[str]):
        self.name, self.tree, self.must_inline, self.coordinates = identifier, tree, must_inline, coordinates
        self.recursive = False
        last = tree.body[-1]
        self.formula = last.value if len(tree.body) == 1 and isinstance(last, ast.Return) and not must_inline else None


class Callee:
    """A device function as it may be called; `captured` are variables of the caller that it takes as well."""

    def __init__(
        self, device: DeviceFunction, parameters: list[str], defaults: list[ast.expr], captured: Sequence[str] = ()
    ):
        self.device, self.parameters, self.captured = device, parameters, captured
        self.defaults = dict(zip(reversed(parameters), reversed(defaults), strict=False))
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        empty = inspect.Parameter.empty
        self.signature = inspect.Signature(
            [inspect.Parameter(p, either, default=self.defaults.get(p, empty)) for p in parameters]
        )


def normalise(kernel: Any, compilation: Compilation) -> ast.FunctionDef:
    """The kernel's tree with every free name resolved; `compilation` collects what it allocates and calls."""
    return Normaliser(read(kernel.py_func), compilation, ()).run()


class Normaliser(ast.NodeTransformer):
    """Walks one function; see the module."""

    def __init__(self, source: Source, compilation: Compilation, stack: tuple):
        self.source, self.compilation, self.stack = source, compilation, stack
        self.local = local_names(source.tree)
        self.grid_groups: set[str] = set()
        functions = {n.name for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)} - {source.tree.name}
        self.nested: dict[str, Callee | None] = dict.fromkeys(functions)  # None: not defined yet, or just being so
        self.recursive_callee: Callee | None = None  # the device function itself, for recursion
        self.allocated = self.in_nested_function = False

    def run(self) -> ast.FunctionDef:
        """The normalised definition; names that collide with the compiler's own are changed."""
        tree = self.source.tree
        self.source.namespace.update(propagate_constants(tree, self.local, self.source.namespace))
        self.local = local_names(tree)
        self._check_parameters(tree)
        clash = {n: f"{n}_" for n in self.local if is_reserved(n)}
        self.local = {clash.get(n, n) for n in self.local}
        self.compilation.taken |= self.local
        tree = Renamer(clash).visit(tree)
        tree.body = self._block(tree.body)
        return protect_parameters(fill_empty(tree), self.compilation)

    def _check_parameters(self, node: ast.FunctionDef) -> None:
        parameters = node.args
        if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs:
            self.refuse(node, "a parameter list with *, **, /, or keyword-only parameters", "name each parameter")

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        return self.generic_visit(ast.Module(block, [])).body

    def refuse(self, node: ast.AST, construct: str, remedy: str = "") -> NoReturn:
        """Raise UnsupportedKernelError naming construct and line."""
        line = getattr(node, "lineno", self.source.tree.lineno)
        refuse(self.source.filename, self.source.name, line, construct, remedy)

    def visit(self, node: ast.AST) -> Any:
        """The replacement of a node, on the same line."""
        for construct, kind in REFUSED.items():
            if isinstance(node, kind):
                self.refuse(node, construct)
        replacement = super().visit(node)
        for new in replacement if isinstance(replacement, list) else [replacement]:
            has_line = hasattr(new, "called_at") or new is not replacement and hasattr(new, "lineno")
            if new is not None and new is not node and not has_line:
                ast.fix_missing_locations(ast.copy_location(new, node))
        return replacement

    # statements

    def visit_For(self, node: ast.For | ast.While) -> Any:
        """The `else` of a loop runs unless `break` ended the loop, which a flag remembers."""
        self.generic_visit(node)
        otherwise, node.orelse = node.orelse, []
        if not otherwise or not any(loop_exits(node.body, (ast.Break,))):
            return [node, *otherwise]
        stop = self.compilation.fresh("stop")
        node.body = set_flag_before_break(node.body, stop)
        start = assign(stop, ast.Constant(False), node.lineno)
        return [start, node, ast.If(ast.UnaryOp(ast.Not(), name(stop)), otherwise, [])]

    visit_While = visit_For

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if any(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in (node.left, node.right)):
            self.refuse(node, "a str", "print numbers instead")
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A nested function becomes a device function that also takes the variables it reads (lambda lifting)."""
        if node.decorator_list:
            self.refuse(node, "a decorated function inside it", "define it outside")
        self._check_parameters(node)
        if self.nested.get(node.name):
            self.refuse(node, f"a second function {node.name}", "give it another name")
        own_names, called, parameters = local_names(node) - {node.name}, node.name, [a.arg for a in node.args.args]
        defaults, node.args.defaults = [self.visit(d) for d in node.args.defaults], []
        outer, self.allocated, around = self.allocated, False, self.nested
        in_function, self.in_nested_function = self.in_nested_function, True
        self.nested = {n: callee for n, callee in around.items() if n not in own_names}
        node.body = self._block(node.body)
        self.nested, self.in_nested_function = around, in_function
        captured = sorted({r for s in node.body for r in reads(s)} & self.local - own_names - self.nested.keys())
        node.args.args += [ast.arg(v) for v in captured]
        device = lift(fill_empty(node), self.compilation, self.compilation.fresh(own_name(node.name)), self.allocated)
        self.allocated |= outer
        self.nested[called] = Callee(device, parameters, defaults, captured)

    def visit_Lambda(self, node: ast.Lambda) -> NoReturn:
        """A lambda is a nested function: it is called where it stands, or by its only name."""
        self.refuse(node, "a lambda as a value", "give it one name, as in `f = lambda x: x + 1`, and call that")

    def _lambda(self, identifier: str, node: ast.Lambda) -> None:
        body = [ast.copy_location(ast.Return(node.body), node)]
        self.visit(ast.copy_location(ast.FunctionDef(identifier, node.args, body, []), node))

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        call_of = node.value if isinstance(node.value, ast.Call) else None
        if call_of and self._intrinsic(call_of.func) in STORES and len(call_of.args) == 3:
            array, index, value = call_of.args
            return self.visit_Assign(ast.Assign([ast.Subscript(array, index, ast.Store())], value))
        node.value = self.visit(node.value)
        return None if isinstance(node.value, ast.Constant) else node  # a docstring, or what means nothing here

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        """`match` on values becomes a chain of branches."""
        subject = self.compilation.fresh("subject")
        self.local.add(subject)
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = self._pattern(case.pattern, subject)
            if case.guard is not None:
                test = case.guard if test is None else ast.BoolOp(ast.And(), [test, case.guard])
            chain = case.body if test is None else [ast.copy_location(ast.If(test, case.body, chain), case.body[0])]
        return self._block([ast.fix_missing_locations(s) for s in [assign(subject, node.subject, node.lineno), *chain]])

    def _pattern(self, pattern: ast.pattern, subject: str) -> ast.expr | None:
        """The condition under which a pattern matches; None for always."""
        if isinstance(pattern, ast.MatchValue):
            return ast.Compare(name(subject), [ast.Eq()], [pattern.value])
        if isinstance(pattern, ast.MatchOr):
            return ast.BoolOp(ast.Or(), [self._pattern(p, subject) for p in pattern.patterns])
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
            return None
        self.refuse(pattern, "a pattern that is no value, `|` of values, or `_`", "write if and elif")

    def visit_Assert(self, node: ast.Assert) -> Any:
        """Assertions count with debug=True only, as in numba.cuda."""
        if not self.compilation.debug:
            return None
        error = ast.Call(ast.Name("AssertionError", ast.Load()), [node.msg] if node.msg else [], [])
        test = ast.UnaryOp(ast.Not(), self.visit(node.test))
        return ast.If(test, self._raise(ast.copy_location(ast.Raise(error), node)), [])

    def visit_Raise(self, node: ast.Raise) -> Any:
        """With debug=True the launch raises, and says which thread did so; without it the thread ends, as on a GPU.

        The launch always raises NotImplementedError and its like, by which an exercise says that it is not done.
        """
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        kind = resolve(error, self.source.namespace, self.local) if error else UNKNOWN
        unfinished = isinstance(kind, type) and issubclass(kind, NotImplementedError)
        if not unfinished and (self.stack or self.in_nested_function):
            self.refuse(node, "raise in a device function", "numba.cuda has it in kernels only: return a number")
        return self._raise(node) if unfinished or self.compilation.debug else ast.Return()

    def _raise(self, node: ast.Raise) -> list[ast.stmt]:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        kind = resolve(error, self.source.namespace, self.local) if error else UNKNOWN
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            self.refuse(node, "raise of anything but a class of exceptions or a call of one")
        values = node.exc.args if isinstance(node.exc, ast.Call) else []
        values = [self._constant(value, "what an exception says,", node) for value in values]
        thrown = ast.Raise(call(self._inject(kind, error), *map(ast.Constant, values)))
        location = [ast.Constant(node.lineno), *map(name, ("block", "thread", "error"))]
        noted = [] if self.stack or self.in_nested_function else [ast.Expr(call("note_raise", *location))]
        return [ast.fix_missing_locations(ast.copy_location(s, node)) for s in [*noted, thrown]]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return node.value and self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Assign(self, node: ast.Assign) -> Any:
        target, intrinsic = node.targets[0], ""
        if isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name) and len(node.targets) == 1:
            return self._lambda(target.id, node.value)
        if isinstance(node.value, ast.Call):
            intrinsic = self._intrinsic(node.value.func)
        if intrinsic in ARRAYS or intrinsic == "cg.this_grid":
            if len(node.targets) != 1 or not isinstance(target, ast.Name):
                self.refuse(node, f"cuda.{intrinsic} assigned to anything but one variable")
            if intrinsic == "cg.this_grid":
                self.grid_groups.add(target.id)
                return None
            node.value = name(self._allocate(intrinsic, target.id, node.value))
            return node
        self.generic_visit(node)
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(node.targets) == 1:
            return self._tuple_assignment(node, target.elts, node.value.elts) or node
        if len(node.targets) == 1 or all(isinstance(t, ast.Name) for t in node.targets):
            return node
        kept = self.compilation.fresh("kept")
        return [assign(kept, node.value, node.lineno), *(ast.Assign([t], name(kept)) for t in node.targets)]

    def _tuple_assignment(self, node: ast.Assign, targets: list[ast.expr], values: list[ast.expr]) -> list[ast.stmt]:
        """`a, b = x, y` as two assignments, or four if x and y depend on a or b; none if it is no such statement."""
        if len(targets) != len(values) or not all(isinstance(t, ast.Name) for t in targets):
            return []
        pairs = [(t.id, v) for t, v in zip(targets, values, strict=True)]
        if set(target_names(node)).isdisjoint(reads(node.value)):
            return [assign(t, v, node.lineno) for t, v in pairs]
        kept = [self.compilation.fresh(f"{t}_new") for t, _ in pairs]
        first = [assign(k, v, node.lineno) for k, (_, v) in zip(kept, pairs, strict=True)]
        return first + [assign(t, name(k), node.lineno) for k, (t, _) in zip(kept, pairs, strict=True)]

    def _allocate(self, intrinsic: str, called: str, node: ast.Call) -> str:
        """Note an array of the kernel's, and return the name that stands for it."""
        self.allocated = True
        options = dict(zip(("shape", "dtype"), node.args, strict=False))
        options.update({k.arg: k.value for k in node.keywords})
        if intrinsic == "const.array_like":
            values = resolve(node.args[0], self.source.namespace, self.local)
            if not isinstance(values, np.ndarray):
                self.refuse(node, "cuda.const.array_like of anything but a NumPy array from outside the kernel")
            return self._capture(called, values)
        variable = self.compilation.fresh(called)
        shape = self._constant(options.get("shape"), f"the shape of cuda.{intrinsic}", node)
        shape = tuple(shape) if isinstance(shape, tuple) else (shape,)
        kind = "local" if intrinsic == "local.array" else "dynamic" if shape == (0,) else "shared"
        if kind != "dynamic" and not all(type(n) is int and n > 0 for n in shape):
            self.refuse(node, f"cuda.{intrinsic} of shape {shape}", "sizes are positive integers")
        dtype = self._dtype(options.get("dtype"), node)
        injected = self.compilation.injected
        element = np.dtype(dtype.removeprefix("np.")) if dtype.startswith("np.") else injected.get(dtype)
        size = element.itemsize if element is not None else 0
        self.compilation.arrays[variable] = Allocation(kind, shape, dtype, node.lineno, called, size)
        return variable

    def _capture(self, stem: str, values: np.ndarray) -> str:
        """A name for a constant array from outside the kernel, as it is now."""
        variable = self.compilation.fresh(stem)
        self.compilation.captured_arrays[variable] = np.array(values, order="C")
        self.compilation.original[variable] = stem.removeprefix("constant_")
        self._depend_on("array", variable, values.tobytes(), values.dtype, values.shape)
        return variable

    def _dtype(self, node: ast.expr | None, where: ast.AST) -> str:
        """A dtype as an expression of the generated module."""
        if node is None:
            self.refuse(where, "an array without a dtype")
        value = node.value if isinstance(node, ast.Constant) else resolve(node, self.source.namespace, self.local)
        if value is UNKNOWN:
            if isinstance(node, ast.Attribute) and node.attr == "dtype":
                return text(self.visit(node))
            self.refuse(where, f"the dtype {ast.unparse(node)}", "give a constant such as numba.float32")
        try:
            dtype = numpy_support.as_dtype(value) if isinstance(value, types.Type) else np.dtype(value)
        except (TypeError, NotImplementedError, numba.errors.NumbaError):
            self.refuse(where, f"the dtype {value!r}")
        if dtype.names is None:
            return f"np.{dtype.type.__name__}"
        self._depend_on("dtype", repr(dtype))
        variable = self.compilation.fresh("record_dtype")
        self.compilation.injected[variable] = dtype
        return variable

    def _constant(self, node: ast.expr | None, description: str, where: ast.AST) -> Any:
        if node is None:
            self.refuse(where, f"{description} left out")
        try:
            return eval(compile(ast.fix_missing_locations(ast.Expression(self.visit(node))), "", "eval"), {"np": np})
        except Exception:
            construct = f"{description} given by {ast.unparse(node)}"
            self.refuse(where, construct, "it must be a constant, known when compiling")

    def _depend_on(self, *facts: Any) -> None:
        self.compilation.fingerprint.extend(map(str, facts))

    # expressions

    def _intrinsic(self, node: ast.expr) -> str:
        value = resolve(node, self.source.namespace, self.local)
        return value.name if isinstance(value, Intrinsic) else ""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.nested and isinstance(node.ctx, ast.Load):
            self.refuse(node, f"the function {node.id} as a value", "call it by this name")
        if node.id in self.local or not isinstance(node.ctx, ast.Load):
            return node
        value = resolve(node, self.source.namespace)
        if value is UNKNOWN:
            self.refuse(node, f"the undefined name {node.id}")
        return self._reference(value, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = resolve(node, self.source.namespace, self.local)
        if value is not UNKNOWN:
            return self._reference(value, node)
        if isinstance(resolve(node.value, self.source.namespace, self.local), ModuleType | SimpleNamespace):
            self.refuse(node, f"{ast.unparse(node)}, which does not exist,")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Lambda):
            self._lambda(identifier := self.compilation.fresh("function"), function)
            function = name(identifier)
        if isinstance(function, ast.Attribute) and function.attr == "sync" and self._is_grid(function.value):
            self.compilation.cooperative = True
            return call(MARK + GRID_SYNC)
        value = resolve(function, self.source.namespace, self.local)
        if isinstance(value, Intrinsic):
            if value.name in ARRAYS:
                return name(self._allocate(value.name, "array", node))
            return self._call_intrinsic(value.name, node)
        if is_kernel(value):
            return self._call_device(value, node)
        if formula := formula_of(value, len(node.args)):
            arguments = {f"_{i}": argument for i, argument in enumerate(node.args)}
            return self.visit(Replace(arguments).visit(expression(formula)))
        if isinstance(function, ast.Name) and function.id in self.nested:
            if self.nested[function.id] is None:
                self.refuse(node, f"a call of {function.id} in or before its definition", "define it outside")
            return self._call(self.nested[function.id], node)
        if isinstance(function, ast.Name) and function.id == "enumerate":  # numba knows no name of its second argument
            node.args, node.keywords = [*node.args, *(k.value for k in node.keywords)], []
        return self.generic_visit(node)

    def _is_grid(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self._intrinsic(node.func) == "cg.this_grid"
        return isinstance(node, ast.Name) and node.id in self.grid_groups

    def _call_intrinsic(self, intrinsic: str, node: ast.Call) -> ast.expr:
        if node.keywords and intrinsic != "syncwarp":
            self.refuse(node, f"cuda.{intrinsic} with keyword arguments")
        if intrinsic in DIMENSIONS:
            count = self._constant(node.args[0] if node.args else None, f"the argument of cuda.{intrinsic}", node)
            if count not in (1, 2, 3):
                self.refuse(node, f"cuda.{intrinsic}({count})", "expected 1, 2 or 3")
            parts = [expression(DIMENSIONS[intrinsic].format(axis)) for axis in "xyz"[:count]]
            return parts[0] if count == 1 else ast.Tuple(parts, ast.Load())
        args = [self.visit(a) for a in node.args]
        if intrinsic in NO_EFFECT:
            return call("fence") if self.compilation.checked and "fence" in intrinsic else ast.Constant(None)
        expected = ATOMICS.get(intrinsic, COLLECTIVES.get(intrinsic, len(args)))
        if len(args) != expected and intrinsic != "syncwarp":
            self.refuse(node, f"cuda.{intrinsic} of {len(args)} arguments", f"it takes {expected}")
        if intrinsic in COLLECTIVES:
            return call(MARK + intrinsic, *args)
        if intrinsic in LOADS and len(args) == 2:
            return ast.Subscript(args[0], args[1], ast.Load())
        if intrinsic == "lanemask_lt":
            return expression("np.uint32((1 << lane) - 1)")
        if intrinsic in COUNTERPARTS:
            return libdevice_call(COUNTERPARTS[intrinsic], args)
        function = runtime.FUNCTIONS.get(intrinsic)
        if function is None:
            self.refuse(node, f"cuda.{intrinsic}")
        return call(function, *args)

    def _call_device(self, kernel: Any, node: ast.Call) -> ast.expr:
        if self.stack and kernel is self.stack[-1] and self.recursive_callee is not None:
            return self._call(self.recursive_callee, node)
        if kernel in self.stack:
            self.refuse(node, f"the mutual recursion of {kernel.py_func.__name__}", "write it as a loop")
        bound = self._bound_at_compilation(kernel, node)
        key, known = (kernel, *bound.items()), self.compilation.functions
        if key not in known:
            known[key] = device_function(kernel, self.compilation, self.stack + (kernel,), bound)
        arguments = zip(kernel.parameters, node.args, strict=False)
        args = [argument for parameter, argument in arguments if parameter not in bound] if bound else node.args
        keywords = [keyword for keyword in node.keywords if keyword.arg not in bound]
        return self._call(known[key], ast.copy_location(ast.Call(node.func, args, keywords), node))

    def _bound_at_compilation(self, kernel: Any, node: ast.Call) -> dict[str, Any]:
        """Arguments that are no numbers for the GPU: functions of `cuda`, device functions, and dtypes and sizes of
        arrays. The device function is compiled for each of their values, as a template is."""
        function, bound = kernel.py_func, {}
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return bound
        source = read(function)
        stored = {n.id for n in ast.walk(source.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
        calls = [n for n in calls if getattr(resolve(n.func, source.namespace), "name", "") in ARRAYS]
        of_arrays = {r for n in calls for part in (*n.args, *(k.value for k in n.keywords)) for r in reads(part)}
        required = kernel.parameters[: len(kernel.parameters) - len(function.__defaults__ or ())]
        given = dict(zip(kernel.parameters, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
        for parameter, argument in [(p, given[p]) for p in required if p in given]:
            value = resolve(argument, self.source.namespace, self.local)
            if value is UNKNOWN and parameter in of_arrays:
                with suppress(ValueError):
                    value = ast.literal_eval(argument)
            constant = parameter in of_arrays and isinstance(value, int | tuple | type | np.dtype | types.Type)
            if parameter not in stored and (isinstance(value, Intrinsic) or is_kernel(value) or constant):
                bound[parameter] = value
        return bound

    def _call(self, callee: Callee, node: ast.Call) -> ast.expr:
        """A call of a device function, with all its arguments by position."""
        device, args = callee.device, []
        if any(k.arg is None for k in node.keywords):
            self.refuse(node, f"** in a call of {device.name}", "name each argument")
        for argument in node.args:
            starred = argument.value if isinstance(argument, ast.Starred) else None
            if isinstance(starred, ast.Tuple):
                args += starred.elts
            elif isinstance(starred, ast.Name):  # all that are missing
                count = len(callee.parameters) - len(node.args) + 1 - len(node.keywords)
                args += [ast.Subscript(starred, ast.Constant(i), ast.Load()) for i in range(count)]
            else:
                args.append(argument)
        try:
            bound = callee.signature.bind(*args, **{k.arg: k.value for k in node.keywords}).arguments
        except TypeError:
            count = len(node.args) + len(node.keywords)
            self.refuse(node, f"a call of {device.name} with {count} of {len(callee.parameters)} arguments")
        passed = [self.visit(bound[p]) if p in bound else copy.deepcopy(callee.defaults[p]) for p in callee.parameters]
        passed += [name(v) for v in callee.captured]
        if device.formula is not None and not device.recursive and all(is_repeatable(p, set()) for p in passed):
            return self._substituted(device, passed, node)
        if not device.must_inline:
            return call(device.name, *passed, *map(name, device.coordinates))
        result = call(f"{MARK}{device.name}", *passed)
        result.device = device
        self.allocated = True
        return result

    def _substituted(self, device: DeviceFunction, passed: list[ast.expr], node: ast.Call) -> ast.expr:
        """A formula in place of its call, so that more is known of it: how it grows from thread to thread, its sign."""
        formula = copy.deepcopy(device.formula)
        for inner in ast.walk(formula):
            inner.called_at = getattr(inner, "called_at", (self.source.filename, node.lineno))
        values = {parameter.arg: value for parameter, value in zip(device.tree.args.args, passed, strict=True)}
        return Replace(values).visit(formula)

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
        key = getattr(value, "name", "")
        if isinstance(value, types.Type) and getattr(types, key, None) is value:
            return expression(f"types.{key}")
        if isinstance(value, np.ndarray):
            return name(self._capture(f"constant_{getattr(node, 'id', 'array')}", value))
        function = function_of(value)
        if function and is_for_kernels(value):
            return expression(function)
        if isinstance(value, FunctionType) and not function and value is not numba.literal_unroll:
            self.refuse(node, f"a call of the plain function {value.__name__}", "decorate it: @cuda.jit(device=True)")
        if isinstance(value, ModuleType | SimpleNamespace | np.random.RandomState):
            self.refuse(node, f"{ast.unparse(node)} without an attribute")
        if is_kernel(value):
            self.refuse(node, f"the function {ast.unparse(node)} as a value", "call it by this name")
        if isinstance(value, list | dict | set):
            self.refuse(node, f"{ast.unparse(node)}, a {type(value).__name__},", "make it a tuple or a NumPy array")
        known = isinstance(value, type) or hasattr(value, "py_func") or value is numba.literal_unroll
        if getattr(cmath, getattr(value, "__name__", ""), None) is value:
            return name(self._inject(value, node))
        if function or callable(value) and not known:
            impossible = ", which no GPU has," if value in FOR_HOSTS_ONLY else ""
            self.refuse(node, f"{ast.unparse(node)}{impossible}", "compute with numbers and array elements")
        return name(self._inject(value, node))

    def _inject(self, value: Any, node: ast.AST) -> str:
        """A name for an object that cannot be spelled, such as a function compiled by numba or a named tuple's type."""
        for variable, known in self.compilation.injected.items():
            if known is value:
                return variable
        function = getattr(value, "py_func", value)
        try:
            self._depend_on(inspect.getsource(function))
        except (OSError, TypeError):
            self._depend_on(repr(value))
        self._depend_on([repr(c.cell_contents) for c in getattr(function, "__closure__", None) or ()])
        if is_own(function):
            self._depend_on(package_digest(Path(PACKAGE)))
        variable = self.compilation.fresh(getattr(value, "__name__", getattr(node, "id", "injected")))
        self.compilation.injected[variable] = value
        return variable


def is_reserved(variable: str) -> bool:
    """Whether generated code may have a variable of this name."""
    return variable in COORDINATES or variable in runtime.RESERVED or GENERATED.search(variable) is not None


def own_name(function: str) -> str:
    """The name of a device function in the generated module, where `atomic_add` and its like are those of `runtime`."""
    return f"device_{function}" if function.startswith("atomic_") else function


def device_function(kernel: Any, compilation: Compilation, stack: tuple, bound: dict[str, Any]) -> Callee:
    """Read and normalise a device function, of which some parameters have values already."""
    source = read(kernel.py_func)
    source.namespace.update(bound)
    source.tree.args.args = [parameter for parameter in source.tree.args.args if parameter.arg not in bound]
    normaliser = Normaliser(source, compilation, stack)
    defaults = [literal_of(value) for value in kernel.py_func.__defaults__ or ()]
    if None in defaults:
        normaliser.refuse(source.tree, f"a default value of {kernel.py_func.__name__} that is no number", "pass it")
    identifier, parameters = compilation.fresh(own_name(source.name)), [a.arg for a in source.tree.args.args]
    itself = DeviceFunction(identifier, source.tree, False, [*COORDINATES, *fault_arguments(compilation)])
    itself.recursive = True
    normaliser.recursive_callee = Callee(itself, parameters, defaults)
    tree = normaliser.run()
    for node in ast.walk(tree):
        node.filename = source.filename
    tree.args.defaults = []
    device = lift(tree, compilation, identifier, normaliser.allocated)
    if any(isinstance(n, ast.Name) and n.id == identifier for n in ast.walk(tree)):
        if device.must_inline or not set(device.coordinates) <= set(itself.coordinates):
            normaliser.refuse(source.tree, f"the recursion of {kernel.py_func.__name__}, which has barriers or arrays,")
        device.recursive, device.coordinates = True, itself.coordinates
    return Callee(device, parameters, defaults)


def fault_arguments(compilation: Compilation) -> list[str]:
    """Further arguments of device functions: with them, an error names the thread whose index was wrong."""
    return ["block", "thread", "error"] if compilation.boundscheck or compilation.debug else []


def lift(tree: ast.FunctionDef, compilation: Compilation, identifier: str, allocates: bool) -> DeviceFunction:
    """A function of the generated module."""
    used = {r for s in tree.body for r in reads(s)}
    tree.name = identifier
    coordinates = [c for c in (*COORDINATES, *compilation.captured_arrays) if c in used] + fault_arguments(compilation)
    device = DeviceFunction(identifier, tree, allocates or any(MARK in r for r in used), coordinates)
    compilation.devices.append(device)
    return device


def set_flag_before_break(block: list[ast.stmt], flag: str) -> list[ast.stmt]:
    """The body of a loop whose breaks set a flag first."""
    result: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, ast.Break):
            result.append(assign(flag, ast.Constant(True), statement.lineno))
        elif isinstance(statement, ast.If):
            statement.body = set_flag_before_break(statement.body, flag)
        if isinstance(statement, ast.If | ast.For | ast.While):
            statement.orelse = set_flag_before_break(statement.orelse, flag)
        result.append(statement)
    return result


def protect_parameters(tree: ast.FunctionDef, compilation: Compilation) -> ast.FunctionDef:
    """Let a function that assigns to a parameter do so to a copy: parameters are shared by all threads."""
    assigned = {n for s in statements(tree.body) for n in target_names(s)}
    copies = []
    for parameter in tree.args.args:
        if parameter.arg in assigned:
            argument = compilation.fresh(f"given_{parameter.arg}")
            copies.append(assign(parameter.arg, name(argument), tree.lineno))
            parameter.arg = argument
    tree.body = copies + tree.body
    return tree
