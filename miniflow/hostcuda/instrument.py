"""The generated text of the checked executor: that of the compiled one, with every access and every barrier announced.

    y[i] = x[i] + 1              ->   write(y, i, 3)[0] = read(x, i, 4)[0] + 1
    # cuda.syncthreads           ->   reach_barrier(2, 0)    by each thread that reaches it, then
                                      complete_barrier(2, 7, 0, threads, 1)    once for the block

These functions are those of `lookup` and `arrivals`. Places in the source are numbered (3, 4, 7); the module lists
them. With `profile=True` each loop counts its iterations.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from numba.core import types

from miniflow.hostcuda.accesses import Access
from miniflow.hostcuda.arrivals import SHUFFLES
from miniflow.hostcuda.compile import Translation, device_text
from miniflow.hostcuda.devices import Rank
from miniflow.hostcuda.emit import BOUNDS, Emitter
from miniflow.hostcuda.names import DeviceFunction
from miniflow.hostcuda.region_tree import Barrier, Branch, ForEachGroup, Once
from miniflow.hostcuda.shadow import ROUNDS, SITE_BITS
from miniflow.hostcuda.signs import dotted, is_metadata
from miniflow.hostcuda.storage import Storage
from miniflow.hostcuda.syntax import GRID, LANE_READ, WARP, Compilation, Replace, call, expression, name, text
from miniflow.hostcuda.thread_loops import Loops

OTHER_ATOMICS = {"atomic_exch": "exchange", "atomic_cas": "compare"}


def is_field(node: ast.expr) -> bool:
    """`record["field"]` or `record.field`."""
    named = isinstance(node, ast.Subscript) and isinstance(getattr(node.slice, "value", None), str)
    return named or isinstance(node, ast.Attribute)


class Instrument(ast.NodeTransformer):
    """Rewrites the statements of one function.

    Args:
        sites: the places in the source where threads access elements and synchronise: (filename, line, column, what is
            accessed, its index as written, file and line of the call, if this is in a device function that is expanded
            there). They are numbered by their position, and added here.
        caller: the variable with the number of the call site of a device function; "" in the kernel.
        profile: whether loops count their iterations.
    """

    def __init__(self, compilation: Compilation, sites: list[tuple], caller: str, profile: bool):
        self.compilation, self.sites, self.caller, self.profile = compilation, sites, caller, profile
        self.devices = {d.name for d in compilation.devices if not d.must_inline}

    def site_number(self, node: ast.AST, what: str = "", index: str = "") -> int:
        """The number of a site in the source; 0, which is no site, when all numbers are taken."""
        filename, called = getattr(node, "filename", self.compilation.filename), getattr(node, "called_at", ("", 0))
        site = (filename, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), what, index, *called)
        if site not in self.sites:
            self.sites.append(site)
        site_number = self.sites.index(site)
        return site_number if site_number < 1 << SITE_BITS else 0

    def site(self, node: ast.expr, owner: ast.expr, index: ast.expr) -> str:
        """The number of the site of an access `owner[index]`, with the names that its author gave."""
        original = Replace({n: name(o) for n, o in self.compilation.original.items()})
        number = self.site_number(node, *(text(original.visit(copy.deepcopy(part))) for part in (owner, index)))
        return f"{number} + {self.caller}" if self.caller else str(number)

    def visit_Subscript(self, node: ast.Subscript, function: str = "") -> ast.expr:
        node = node if is_metadata(node) else self.element_of_field(node)
        if is_metadata(node) or is_field(node):
            return self.generic_visit(node)
        function = function or ("write" if isinstance(node.ctx, ast.Store) else "read")
        site = self.site(node, node.value, node.slice)
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        sliced = [isinstance(p, ast.Slice) for p in parts]
        new_dims = any(isinstance(p, ast.Constant) and p.value in (None, ...) for p in parts)
        if not any(sliced) and not new_dims:
            return expression(f"{function}({text(node.value)}, {text(node.slice)}, {site})[0]")
        part = text(node)
        if not all(sliced) and not new_dims:  # integers are looked up
            integers = ", ".join("None" if s else text(p) for p, s in zip(parts, sliced, strict=True))
            slices = ", ".join(text(p) for p, s in zip(parts, sliced, strict=True) if s)
            part = f"read({text(node.value)}, ({integers}), {site})[0, {slices}]"
        return expression(part if function == "read" else f"{function}({part}, (), {site})[0]")

    def visit_Attribute(self, node: ast.Attribute, function: str = "") -> ast.expr:
        element = self.element_of_field(node) if isinstance(node.ctx, ast.Store) else node
        return self.generic_visit(node) if element is node else self.visit_Subscript(element, function)

    def element_of_field(self, node: ast.expr) -> ast.expr:
        """`x["field"][i]` for `x[i]["field"]`."""
        value = self.element_of_field(node.value) if is_field(node) else None
        if not isinstance(value, ast.Subscript) or is_field(value) or dotted(value.value) in self.compilation.tuples:
            return node
        named = node.slice if isinstance(node, ast.Subscript) else ast.Constant(node.attr)
        element = copy.copy(value)
        element.value, element.ctx = ast.Subscript(value.value, named, ast.Load()), node.ctx
        return element

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Elements of what is assigned to slices are read."""
        target = node.targets[0]
        sliced = isinstance(target, ast.Subscript) and any(isinstance(n, ast.Slice) for n in ast.walk(target.slice))
        site = self.site(target, target.value, target.slice) if sliced else ""
        self.generic_visit(node)
        node.value = expression(f"read({text(node.value)}, (), {site})[0]") if sliced else node.value
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        node.value = self.visit(node.value)
        visit = {ast.Subscript: self.visit_Subscript, ast.Attribute: self.visit_Attribute}.get(type(node.target))
        node.target = visit(node.target, "update") if visit else node.target
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = dotted(node.func)
        if function in ("match_any", "match_all"):
            return Access(self.compilation, None, set()).visit_Call(node)
        if function == LANE_READ:
            value, lane = node.args
            how, arguments = lane.func.id.removeprefix("lane_"), ", ".join(map(text, lane.args))
            site = self.site_number(lane, f"shfl_{how}_sync".replace("_at", ""))
            return expression(f"{value.id}_of[shuffled_from({SHUFFLES.index(how)}, {arguments}, {site})]")
        if function.startswith("atomic_"):
            if function == "atomic_compare_and_swap":
                function, node.args = "atomic_cas", [node.args[0], ast.Constant(0), *node.args[1:]]
            site, lookup = self.site(node, *node.args[:2]), OTHER_ATOMICS.get(function, "atomic")
            array, index, *rest = (text(self.visit(a)) for a in node.args)
            return expression(f"{function}({lookup}({array}, {index}, {site}), 0, {', '.join(rest)})")
        self.generic_visit(node)
        if function in self.devices:
            node.args.append(expression(self.caller or str(self.site_number(node) << SITE_BITS)))
            return expression(f"restore_path(state().path, {text(node)})") if self.profile else node
        return node

    # loops

    def visit_For(self, node: ast.For) -> Any:
        node.iter = self.elements(node.iter)
        return self.visit_While(node)

    def elements(self, sequence: ast.expr) -> ast.expr:
        """The iterable of a loop, with the elements of arrays looked up one by one."""
        if isinstance(sequence, ast.Name | ast.Subscript):
            return call("elements", sequence, expression(self.site(sequence, sequence, ast.Slice())))
        if isinstance(sequence, ast.Call) and dotted(sequence.func) in ("zip", "enumerate"):
            arrays = sequence.args if sequence.func.id == "zip" else sequence.args[:1]
            rest = sequence.args[len(arrays) :]  # where to count from
            return call(sequence.func.id, *map(self.elements, arrays), *rest)
        return sequence

    def visit_While(self, node: ast.For | ast.While) -> Any:
        self.generic_visit(node)
        if not self.profile:
            return node
        outer, site_number = self.compilation.fresh("outer"), self.compilation.fresh("round")
        node.body[:0] = ast.parse(f"{site_number} += 1\nstate().path = {outer} * {ROUNDS} + {site_number}").body
        before, after = f"{outer}, {site_number} = state().path, 0", f"state().path = {outer}"
        return [*ast.parse(before).body, node, *ast.parse(after).body]


class CheckedEmitter(Emitter):
    """Writes the kernel."""

    def __init__(self, instrument: Instrument, *args: Any):
        super().__init__(*args)
        self.instrument, self.masked = instrument, set()

    def _head(self) -> None:
        super()._head()
        names = {"shared": "{}", "local": "{}_of", "dynamic": "dynamic"}
        for number, (variable, array) in enumerate(self.compilation.arrays.items(), 1):
            memory = names[array.kind].format(variable) + "_all" * self.compilation.cooperative
            self.line(f"declare({number * (array.kind != 'dynamic')}, {memory}.ctypes.data, {memory}.nbytes)")

    def write(self) -> str:
        """The text of the function `blocks`."""
        self.storage.nodes.append(Once(0, ast.parse("end_blocks()").body))
        return super().write()

    def _for_each_group(self, node: ForEachGroup) -> None:
        if node.level == GRID:
            node.nodes.insert(0, Once(0, ast.parse("begin_block(block)").body))
        super()._for_each_group(node)

    def _barrier(self, node: Barrier) -> None:
        super()._barrier(node)
        (sync,) = node.statements
        bounds = "0, threads * last" if node.level == GRID else BOUNDS[node.level]
        orders = int(node.level != WARP or sync.intrinsic == "syncwarp")
        site = self.instrument.site_number(sync, sync.intrinsic)
        completed = f"complete_barrier({node.level}, {site}, {bounds}, {orders})"
        self.lines.insert(len(self.lines) - bool(sync.collective), "    " * self.depth + completed)

    def _note_if_all_active(self, node: Branch) -> None:
        """Regions are written once, so that they compile fast."""

    def _thread_loops(self, *args: Any) -> tuple[Loops, list[ast.expr]]:
        loops, rest = super()._thread_loops(*args)
        loops.inside.append("start_thread(thread)")
        return loops, rest

    def _statement(self, statement: ast.stmt, access: Access) -> None:
        seen = self.instrument.visit(ast.Module([copy.deepcopy(statement)], []))
        for content in text(seen).split("\n"):
            self.line(content)


class CheckedTranslation(Translation):
    """A kernel compiled with checks: its generated module, as `code`, and the sizes that `compile.Compiled` has.

    Attributes:
        sites: those of Instrument.
        typing: numba.cuda's typing error, "" without one; None until numba.cuda was asked.
    """

    imports = "from miniflow.hostcuda.arrivals import *\nfrom miniflow.hostcuda.lookup import *\n"
    checked = True

    def __init__(self, kernel: Any, argument_types: tuple[types.Type, ...], rank: Rank, profile: bool):
        self.profile, self.sites_found, self.typing = profile, None, None
        super().__init__(kernel, argument_types, rank, False)
        self.code = self.compile()

    def _facts(self) -> list:
        devices = [(ast.dump(d.tree, include_attributes=True), d.must_inline) for d in self.compilation.devices]
        return ["checked", self.profile, self.compilation.filename, devices]

    def _translate(self) -> str:
        text = super()._translate()
        rows = "\n".join(f"    {row!r}," for row in self.sites_found)
        return f"{text}\n\nSITES = [\n{rows}\n]\n"

    def _emitter(self, storage: Storage, *args: Any) -> Emitter:
        self.sites_found = [("", 0, 0, "", "", "", 0)]
        storage.kept_arrays = {v for v, a in self.compilation.arrays.items() if a.kind == "local"}
        return CheckedEmitter(self._instrument(""), self.tree, self.compilation, storage, *args)

    def _instrument(self, caller: str) -> Instrument:
        return Instrument(self.compilation, self.sites_found, caller, self.profile)

    def _functions(self) -> str:
        """The texts of the device functions, with the call site as last parameter; plain ones for type inference."""
        if self.sites_found is None:
            return super()._functions()
        texts = []
        for device in (d for d in self.compilation.devices if not d.must_inline):
            tree = self._instrument("caller").generic_visit(copy.deepcopy(device.tree))
            checked = DeviceFunction(device.name, tree, False, [*device.coordinates, "caller"])
            texts.append(f"{device_text(checked, self.compilation)}\n\n\n")
        return "".join(texts)
