"""Writes the tree of a kernel as Python text for numba: loops over blocks, warps and threads.

def blocks(first, last, gridDim_x, ..., x, y):
    room = np.empty(64, np.float32)              # shared memory
    total_of = np.empty(threads, np.float32)     # private: one entry a thread
    for block in range(first, last):
        blockIdx_x = block % gridDim_x
        for threadIdx_x in range(blockDim_x):    # a region
            ...
        # cuda.syncthreads of line 12
"""

from __future__ import annotations

import ast
import copy
import math

import numpy as np

from miniflow.hostcuda.accesses import Access
from miniflow.hostcuda.region_tree import Barrier, Branch, ForEachGroup, Loop, Node, Once, Threads
from miniflow.hostcuda.syntax import (
    AXES,
    BLOCK,
    GRID,
    WARP,
    Allocation,
    text,
)
from miniflow.hostcuda.thread_loops import INDENT, ThreadLoops, private_arrays

LAUNCH = "first, last, gridDim_x, gridDim_y, gridDim_z, blockDim_x, blockDim_y, blockDim_z, dynamic_bytes, error"
CELLS = 1040
"""Entries of a private array on the stack: 1,024 threads, and more, since arrays 4,096 bytes apart share cache sets."""
STACK = 128 * 1024
"""Bytes of shared and private arrays on the stack; LLVM knows that these do not overlap. Others are on the heap."""


class Emitter(ThreadLoops):
    """Writes one kernel for blocks of one rank."""

    def write(self) -> str:
        """The text of the function `blocks`."""
        self._head()
        self._nodes(self.storage.nodes)
        self.line("return 0")
        return "\n".join(self.lines) + "\n"

    # memory

    def _head(self) -> None:
        parameters = [a.arg for a in self.tree.args.args] + list(self.compilation.captured_arrays)
        self.lines.append(f"def blocks({', '.join([LAUNCH, *parameters])}):")
        axes = AXES[: self.rank.axes]
        for axis, size in zip(axes, self.rank.sizes or (), strict=False):
            self.line(f"blockDim_{axis} = {size}")
        self.line(f"threads = {' * '.join(f'blockDim_{axis}' for axis in axes)}")
        for name, constant in (("threadIdx", 0), ("blockDim", 1)):
            if flat := "".join(f"{name}_{axis} = " for axis in AXES[len(axes) :]):
                self.line(f"{flat}{constant}")
        if any(a.kind == "dynamic" for a in self.compilation.arrays.values()):
            self._allocate("dynamic", "dynamic_bytes", None, "np.uint8")
        for variable, array in self.compilation.arrays.items():
            self._array(variable, array)
        for variable, kind in sorted(self.storage.private.items()):
            for cell, dtype, _ in private_arrays(variable, kind):
                if variable in self.storage.in_warp:
                    for array in [cell, f"{cell}_copy"] if self.compilation.boundscheck else [cell]:
                        self.line(f"{array} = stack((32,), {dtype})")
                else:
                    self._allocate(cell, "threads", CELLS, dtype)
        if BLOCK in self.masked:
            self._allocate("arrived_of", "threads", CELLS, "np.int64")
        if self.masked and self.compilation.cooperative:
            self.line("missed = 0")
            for level in sorted(self.masked):
                if level == GRID:
                    self._allocate("arrived_in_grid_of", "threads", CELLS, "np.int64")
                self.line(f"{self._votes_of_group(ARRIVED[level], GRID)[0]}[:] = 0")

    def _allocate(self, variable: str, shape: str, size: int | None, dtype: str, comment: str = "") -> None:
        """An array for each block: of `size` elements, on the stack if there is room."""
        if size is not None and not self.compilation.cooperative and self._fits(size * itemsize(dtype)):
            extent = CELLS if shape == "threads" else shape
            self.line(f"{variable} = stack({extents(extent)}, {dtype}){comment}")
        elif self.compilation.cooperative:
            self.line(f"{variable}_all = np.empty({extents('last', shape)}, {dtype}){comment}")
        else:
            self.line(f"{variable} = np.empty({extents(shape)}, {dtype}){comment}")

    def _fits(self, size: int) -> bool:
        self.stacked += size
        return self.stacked <= STACK

    def _array(self, variable: str, array: Allocation) -> None:
        shape, comment = ", ".join(map(str, array.shape)), f"  # {array.kind}, line {array.line}"
        if array.kind == "shared":
            self._allocate(variable, shape, math.prod(array.shape), array.dtype, comment)
        elif variable in self.storage.in_warp:
            self.line(f"{variable}_of = np.empty({extents(shape, 32)}, {array.dtype}){comment}")
        elif array.kind == "local" and variable in self.storage.kept_arrays:
            self._allocate(f"{variable}_of", extents("threads", shape)[1:-1], None, array.dtype, comment)
        elif array.kind == "local":
            self.line(f"{variable} = np.empty({extents(shape)}, {array.dtype}){comment}")
        elif not self.compilation.cooperative:
            self._dynamic(variable, array)

    def _dynamic(self, variable: str, array: Allocation) -> None:
        size = itemsize(array.dtype) if array.dtype.startswith("np.") else f"{array.dtype}.itemsize"
        known = self.compilation.injected.get(array.dtype)
        size = known.itemsize if known is not None else size
        size = array.dtype.removesuffix("dtype") + "itemsize" if array.dtype.endswith(".dtype") else size
        self.line(f"{variable} = dynamic[: dynamic.size // {size} * {size}].view({array.dtype})  # line {array.line}")

    def _bind_block(self) -> None:
        """In a grid that synchronises, every block has memory of its own."""
        for variable, array in self.compilation.arrays.items():
            if array.kind == "shared":
                self.line(f"{variable} = {variable}_all[block]")
        if any(a.kind == "dynamic" for a in self.compilation.arrays.values()):
            self.line("dynamic = dynamic_all[block]")
        for variable, array in self.compilation.arrays.items():
            if array.kind == "dynamic":
                self._dynamic(variable, array)
            elif variable in self.storage.kept_arrays - self.storage.in_warp:
                self.line(f"{variable}_of = {variable}_of_all[block]")
        if BLOCK in self.masked:
            self.line("arrived_of = arrived_of_all[block]")
        for variable, kind in sorted(self.storage.private.items()):
            for cell, *_ in private_arrays(variable, kind) if variable not in self.storage.in_warp else []:
                self.line(f"{cell} = {cell}_all[block]")

    # nodes

    def _nodes(self, nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, Threads):
                self._threads(node)
            elif isinstance(node, Once):
                for statement in node.statements:
                    self._statement(self._expanded(statement), Access(self.compilation, self.affine, self.arrays))
            elif isinstance(node, ForEachGroup):
                self._for_each_group(node)
            elif isinstance(node, Barrier):
                self._barrier(node)
            elif isinstance(node, Loop):
                self._loop(node)
            else:
                self._branch(node)

    def _for_each_group(self, node: ForEachGroup) -> None:
        blocks = f"block in range({'0' if self.compilation.cooperative else 'first'}, last)"
        with self.indented(f"for {blocks if node.level == GRID else 'warp in range((threads + 31) // 32)'}:"):
            start = len(self.lines)
            self._coordinates(node.level)
            body = len(self.lines)
            if node.level == GRID and self.masked and not self.compilation.cooperative:
                self.line("arrived_of[:] = missed = 0")
            self._nodes(node.nodes)
            self._drop_unused(start, body)

    def _coordinates(self, level: int) -> None:
        """What a block or a warp has of its own; what of it nobody uses is dropped later."""
        if level == GRID:
            self.line("blockIdx_x = block % gridDim_x")
            self.line("blockIdx_y = block // gridDim_x % gridDim_y")
            self.line("blockIdx_z = block // (gridDim_x * gridDim_y)")
            if self.compilation.cooperative:
                self._bind_block()
            return
        self.line("warp_first = warp * 32")
        self.line(f"lanes = {'32' if self.rank.whole_warps else 'min(32, threads - warp_first)'}")
        self.line("warp_end = warp_first + lanes")
        if self.rank.axes > 1 and self.rank.whole_warps:  # rows of threads are whole warps
            self.line("warp_x = warp_first % blockDim_x")
            self.line("threadIdx_y = warp_first // blockDim_x % blockDim_y")
            self.line("threadIdx_z = warp_first // (blockDim_x * blockDim_y)")

    def _barrier(self, node: Barrier) -> None:
        (sync,) = node.statements
        self.line(f"# cuda.{sync.intrinsic} of line {sync.lineno}")
        if node.level in self.masked:
            self._arrive(node)
        if sync.collective:
            function, voted, result = sync.collective
            votes, bounds = self._votes_of_group(voted, node.level)
            self.line(f"{result} = {function}({votes}, {bounds})")

    def _arrive(self, node: Barrier) -> None:
        """No thread may come to a barrier that has missed another; those that have left miss the rest."""
        arrived, bounds = self._votes_of_group(ARRIVED[node.level], node.level)
        mask = self._votes_of_group(node.mask, node.level)[0] if node.mask else "None"
        whole = f"whole_{node.mask}" if node.mask in self.masks_of_all and node.level == BLOCK else ""
        self.line(f"if {f'(missed or not {whole}) and ' if whole else ''}arrive({arrived}, {mask}, {bounds}):")
        self.line(f"{INDENT}return missed")
        if node.mask:
            self.line(f"{f'if not {whole}: ' if whole else ''}missed = {self._line_of(node.mask)}")

    def _line_of(self, mask: str) -> int:
        return self.storage.conditions[mask].statement.lineno

    def _votes_of_group(self, variable: str, level: int) -> tuple[str, str]:
        """The array of what each thread of a group votes, and the range of its threads there."""
        if level == GRID:
            return f"{variable}_of_all.reshape(-1)", f"0, {variable}_of_all.size"
        return f"{variable}_of", "0, lanes" if variable in self.storage.in_warp else BOUNDS[level]

    def _group_condition(self, node: Branch) -> str:
        """Whether a group takes a branch or another round of a loop: whether any of its threads does."""
        if node.divergent:
            if node.test.id not in self.storage.private:
                return "True"
            votes, bounds = self._votes_of_group(node.test.id, node.level)
            return f"any_of({votes}, {bounds})"
        return self._expression(node.test)

    def _branch(self, node: Branch) -> None:
        test = self._group_condition(node)
        if test == "True":  # every region asks for itself
            return self._nodes(node.body)
        start = len(self.lines)
        with self.indented(f"if {test}:"):
            self._note_if_all_active(node)
            self._nodes(node.body)
        if node.orelse:
            with self.indented("else:" if len(self.lines) > start else f"if not ({test}):"):
                self._nodes(node.orelse)

    def _note_if_all_active(self, node: Branch) -> None:
        """Whether all threads of the block are in a branch, so that nobody has to ask."""
        if node.divergent and node.level == BLOCK and node.test.id in self.storage.private:
            self.masks_of_all.add(node.test.id)
            self.line(f"whole_{node.test.id} = all_of({node.test.id}_of, {BOUNDS[BLOCK]})")

    def _loop(self, node: Loop) -> None:
        statement = node.statements[0]
        head = f"while {self._group_condition(node)}:"
        if isinstance(statement, ast.For) and not node.divergent:
            target = copy.deepcopy(statement.target)
            for n in ast.walk(target):
                if isinstance(n, ast.Name) and n.id not in self.storage.once:
                    n.id = f"{n.id}_now"
            head = f"for {text(target)} in {self._expression(node.test)}:"
        self.line(head)
        self.depth += 1
        start = len(self.lines)
        self._note_if_all_active(node)
        self._nodes(node.body)
        if all(line.strip().startswith("#") for line in self.lines[start:]):
            self.line("pass")
        self.depth -= 1


ARRIVED = {BLOCK: "arrived", GRID: "arrived_in_grid"}
BOUNDS = {WARP: "warp_first, warp_end", BLOCK: "0, threads"}


def extents(*dims: object) -> str:
    """A shape as a tuple; a part of it may be the text of several dims, or of none."""
    parts = ", ".join(str(dim) for dim in dims if dim != "")
    return f"({parts},)" if parts and "," not in parts else f"({parts})"


def itemsize(dtype: str) -> int:
    """Bytes of an element; of a record or a dtype that is known when compiling only, enough to rule out the stack."""
    try:
        return np.dtype(dtype.removeprefix("np.")).itemsize
    except TypeError:
        return STACK
