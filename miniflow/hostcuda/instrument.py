"""The generated text of the checked executor: that of the compiled one, with every access and every barrier announced.

    y[i] = x[i] + 1              ->   write(y, i, 3)[0] = read(x, i, 4)[0] + 1
    # cuda.syncthreads           ->   arrives(2, 0)    by each thread that comes to it, then
                                      meet(2, 7, 0, threads, 1)    for the block

These functions are those of `lookup` and `arrivals`. Places in the source are numbered (3, 4, 7); the module lists
them. With `profile=True` each loop says in which round it is.
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
from miniflow.hostcuda.region_tree import Barrier, Branch, Once, Units
from miniflow.hostcuda.shadow import SITE_BITS
from miniflow.hostcuda.signs import METADATA, dotted, is_metadata
from miniflow.hostcuda.storage import Storage
from miniflow.hostcuda.syntax import GRID, LANE_READ, WARP, Replace, Unit, call, expression, name, text
from miniflow.hostcuda.thread_loops import Loops

NO_FIELDS = {*METADATA, "dtype", "real", "imag", "T", "view", "reshape", "ravel", "transpose"}
NO_RECORDS = ("np", "math", "types")


class Sites:
    """The places in the source where threads access elements and synchronise, numbered from 1.

    Attributes:
        rows: (filename, line, column, what is accessed, its index as written, file and line of the call, if the site
            is in a device function that is expanded there).
        devices: the device functions that are not expanded.
    """

    def __init__(self, unit: Unit):
        self.unit = unit
        self.rows: list[tuple] = [("", 0, 0, "", "", "", 0)]
        self.devices = {d.name for d in unit.devices if not d.must_inline}

    def number(self, node: ast.AST, what: str = "", index: str = "") -> int:
        """The number of a place."""
        filename = getattr(node, "filename", self.unit.filename)
        called = getattr(node, "called_at", ("", 0))
        row = (filename, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), what, index, *called)
        if row not in self.rows and len(self.rows) < 1 << SITE_BITS:
            self.rows.append(row)
        return self.rows.index(row) if row in self.rows else 0


class InstrumentedAccess(Access):
    """Rewrites the statements of one function.

    Args:
        caller: the variable that says where a device function was called; "" in the kernel.
        profile: whether loops say in which round they are.
    """

    def __init__(self, sites: Sites, caller: str, profile: bool):
        self.sites, self.unit, self.caller, self.profile = sites, sites.unit, caller, profile

    def visit_If(self, node: ast.If) -> ast.AST:
        return self.generic_visit(node)

    def site(self, node: ast.expr, owner: ast.expr, index: ast.expr) -> ast.expr:
        """The number of an access to an element of `owner`, as its author called that."""
        known = Replace({n: name(called) for n, called in self.unit.original.items()})
        number = self.sites.number(node, *(text(known.visit(copy.deepcopy(part))) for part in (owner, index)))
        return expression(f"{number}" + (f" + {self.caller}" if self.caller else ""))

    def visit_Subscript(self, node: ast.Subscript, function: str = "") -> ast.expr:
        if is_metadata(node):
            return node
        site, store = self.site(node, node.value, node.slice), isinstance(node.ctx, ast.Store)
        self.generic_visit(node)
        function = function or ("write" if store else "read")
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            node.value = call(function, node.value, node.slice, site)
            return node
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new_dims = [isinstance(p, ast.Constant) and p.value in (None, ...) for p in parts]
        sliced = [isinstance(p, ast.Slice) for p in parts]
        if not any(sliced + new_dims):
            element = call(function, node.value, node.slice, site)
            return ast.copy_location(ast.Subscript(element, ast.Constant(0), node.ctx), node)
        if any(new_dims) or all(sliced):
            part = ast.Subscript(node.value, node.slice, ast.Load())
        else:  # integers are looked up: read(x, (i, None), site)[0, 1:3]
            index = [ast.Constant(None) if s else p for p, s in zip(parts, sliced, strict=True)]
            slices = [ast.Constant(0), *(p for p, s in zip(parts, sliced, strict=True) if s)]
            row = call("read", node.value, ast.Tuple(index, ast.Load()), site)
            part = ast.Subscript(row, ast.Tuple(slices, ast.Load()), ast.Load())
        whole = ast.Subscript(call(f"{function}_all", part, site), ast.Slice(), node.ctx)
        return part if function == "read" else ast.copy_location(whole, node)

    def visit_Attribute(self, node: ast.Attribute, function: str = "") -> ast.expr:
        if dotted(node.value) in NO_RECORDS or node.attr in NO_FIELDS:
            return self.generic_visit(node)
        site = self.site(node, node.value, ast.Constant(node.attr))
        self.generic_visit(node)
        function = function or ("write" if isinstance(node.ctx, ast.Store) else "read")
        node.value = call(function, node.value, ast.Constant(node.attr), site)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and dotted(getattr(target.value, "func", target)) == "write_all":
            node.value = call("read_all", node.value, target.value.args[1])
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        node.value = self.visit(node.value)
        if isinstance(node.target, ast.Subscript):
            node.target = self.visit_Subscript(node.target, "update")
        elif isinstance(node.target, ast.Attribute):
            node.target = self.visit_Attribute(node.target, "update")
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = dotted(node.func)
        if function == LANE_READ:
            return self.shuffle(node)
        if function in ("match_any", "match_all"):
            return super().visit_Call(node)
        if function.startswith("atomic_"):
            return self.atomic(node, function)
        self.generic_visit(node)
        if function in self.sites.devices:
            node.args.append(expression(self.caller or str(self.sites.number(node) << SITE_BITS)))
            return call("back", call("path"), node) if self.profile else node
        return node

    def atomic(self, node: ast.Call, function: str) -> ast.expr:
        whole = function == "atomic_compare_and_swap"
        index = ast.Constant(0) if whole else node.args[1]
        site = self.site(node, node.args[0], index)
        array, index, *rest = (self.visit(a) for a in (node.args[0], index, *node.args[1 if whole else 2 :]))
        kind = {"atomic_exch": "exchange", "atomic_cas": "compare"}.get(function, "compare" if whole else "atomic")
        node.args = [call(kind, array, index, site), *([] if whole else [ast.Constant(0)]), *rest]
        return node

    def shuffle(self, node: ast.Call) -> ast.expr:
        value, lane = node.args
        what = f"shfl_{lane.func.id.removeprefix('lane_')}_sync".replace("_at", "")
        site = ast.Constant(self.sites.number(lane, what))
        source = [ast.Constant(SHUFFLES.index(lane.func.id)), *lane.args, site]
        return ast.Subscript(name(f"{value.id}_of"), call("shuffled_from", *source), ast.Load())

    # loops

    def visit_For(self, node: ast.For) -> Any:
        """Elements of arrays are read one by one, by their position."""
        position = name(self.unit.fresh("position"))
        found = self.element(node.iter, position)
        if found is not None:
            length, element = found
            assigned = ast.Assign([node.target], ast.copy_location(element, node.iter))
            node.body = [ast.fix_missing_locations(ast.copy_location(assigned, node)), *node.body]
            node.target, node.iter = ast.Name(position.id, ast.Store()), call("range", length)
        return self.visit_While(node)

    def element(self, sequence: ast.expr, position: ast.expr) -> tuple[ast.expr, ast.expr] | None:
        """Length and element of what a loop runs over; None if these are not elements of arrays."""
        if isinstance(sequence, ast.Name | ast.Subscript):
            element = ast.copy_location(ast.Subscript(copy.deepcopy(sequence), position, ast.Load()), sequence)
            return call("len", sequence), element
        if not isinstance(sequence, ast.Call) or dotted(sequence.func) not in ("zip", "enumerate"):
            return None
        zipped = dotted(sequence.func) == "zip"
        found = [self.element(a, position) for a in (sequence.args if zipped else sequence.args[:1])]
        if None in found:
            return None
        lengths, elements = ([*each] for each in zip(*found, strict=True))
        if not zipped:
            start = [*sequence.args[1:], *(k.value for k in sequence.keywords)]
            elements.insert(0, ast.BinOp(position, ast.Add(), start[0]) if start else position)
        length = call("min", *lengths) if len(lengths) > 1 else lengths[0]
        return length, ast.Tuple(elements, ast.Load())

    def visit_While(self, node: ast.For | ast.While) -> Any:
        self.generic_visit(node)
        if not self.profile:
            return node
        outer, number = self.unit.fresh("outer"), self.unit.fresh("round")
        node.body[:0] = ast.parse(f"{number} += 1\nadvance({outer}, {number})").body
        return [*ast.parse(f"{outer}, {number} = path(), 0").body, node, *ast.parse(f"advance({outer}, 0)").body]


class CheckedEmitter(Emitter):
    """Writes the kernel."""

    def __init__(self, access: InstrumentedAccess, *args: Any):
        super().__init__(*args)
        self.access, self.masked = access, set()

    def _head(self) -> None:
        super()._head()
        whole = "_all" if self.unit.cooperative else ""
        arrays = [f"{v}{'_of' * (a.kind == 'local')}" for v, a in self.unit.arrays.items()]
        kinds = [a.kind for a in self.unit.arrays.values()]
        declared = [("dynamic", 0)] * ("dynamic" in kinds)
        declared += [(array, k + 1) for k, array in enumerate(arrays) if kinds[k] != "dynamic"]
        for array, number in declared:
            self.line(f"declare({number}, {array}{whole}.ctypes.data, {array}{whole}.nbytes)")

    def write(self) -> str:
        """The text of the function `blocks`."""
        if self.unit.cooperative:
            self.storage.nodes.append(Once(0, ast.parse("end_block(last)").body))
        return super().write()

    def _units(self, node: Units) -> None:
        if node.level == GRID:
            end = [] if self.unit.cooperative else [Once(0, ast.parse("end_block(1)").body)]
            node.nodes = [Once(0, ast.parse("begin_block(block)").body), *node.nodes, *end]
        super()._units(node)

    def _at_barrier(self, node: Barrier) -> None:
        super()._at_barrier(node)
        (sync,) = node.statements
        bounds = "0, threads * last" if node.level == GRID else BOUNDS[node.level]
        orders = int(node.level != WARP or sync.what == "syncwarp")
        announced = f"meet({node.level}, {self.access.sites.number(sync, sync.what)}, {bounds}, {orders})"
        self.lines.insert(len(self.lines) - bool(sync.collective), "    " * self.depth + announced)

    def _whole(self, node: Branch) -> None:
        """Regions are written once, so that they compile fast."""

    def _thread_loops(self, *args: Any) -> tuple[Loops, list[ast.expr]]:
        loops, rest = super()._thread_loops(*args)
        loops.inside.append("enter(thread)")
        return loops, rest

    def _statement(self, statement: ast.stmt, access: Access) -> None:
        for one in flat([self.access.visit(copy.deepcopy(statement))]):
            for content in text(one).split("\n"):
                self.line(content)


def flat(found: list) -> list[ast.stmt]:
    """Statements, and lists of them, as one list."""
    return [s for one in found for s in (one if isinstance(one, list) else [one])]


class CheckedTranslation(Translation):
    """A kernel compiled with checks: its generated module, as `code`, and the sizes that `compile.Compiled` has.

    Attributes:
        sites: the rows of Sites.
        typing: what numba.cuda says against it, once that was asked.
    """

    imports = "from miniflow.hostcuda.arrivals import *\nfrom miniflow.hostcuda.lookup import *\n"
    checked = True

    def __init__(self, kernel: Any, argument_types: tuple[types.Type, ...], rank: Rank, profile: bool):
        self.profile, self.places, self.typing = profile, None, None
        super().__init__(kernel, argument_types, rank, False)
        self.shared_bytes, self.local_bytes = self.unit.nbytes("shared"), self.unit.nbytes("local")
        self.const_bytes, self.cooperative = sum(a.nbytes for a in self.hidden), self.unit.cooperative
        self.code = self.compile()

    def _facts(self) -> list:
        devices = [(ast.dump(d.tree, include_attributes=True), d.must_inline) for d in self.unit.devices]
        return ["checked", self.profile, self.unit.filename, devices]

    def _translate(self) -> str:
        text = super()._translate()
        rows = "\n".join(f"    {row!r}," for row in self.places.rows)
        return f"{text}\n\nSITES = [\n{rows}\n]\n"

    def _emitter(self, storage: Storage, *args: Any) -> Emitter:
        self.places = Sites(self.unit)
        storage.kept_arrays = {v for v, a in self.unit.arrays.items() if a.kind == "local"}
        access = InstrumentedAccess(self.places, "", self.profile)
        return CheckedEmitter(access, self.tree, self.unit, storage, *args)

    def _functions(self) -> str:
        """The texts of the device functions, which are told where they are called; of the probe, without checks."""
        if self.places is None:
            return super()._functions()
        found = []
        for device in (d for d in self.unit.devices if not d.must_inline):
            tree, access = copy.deepcopy(device.tree), InstrumentedAccess(self.places, "caller", self.profile)
            tree.body = flat([access.visit(s) for s in tree.body])
            checked = DeviceFunction(device.name, tree, False, [*device.coordinates, "caller"])
            found.append(device_text(checked, self.unit))
        return "".join(f"{text}\n\n\n" for text in found)
