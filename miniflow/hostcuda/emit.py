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
            for array, dtype, _ in private_arrays(variable, kind):
                if variable in self.storage.in_warp:
                    for name in [array, f"{array}_copy"] if self.compilation.boundscheck else [array]:
                        self.line(f"{name} = stack((32,), {dtype})")
                else:
                    self._allocate(array, "threads", CELLS * itemsize(dtype), dtype)
        for level in sorted(self.masked):
            self._allocate(f"{ARRIVED[level]}_of", "threads", CELLS * itemsize("np.int64"), "np.int64")
        if self.masked and self.compilation.cooperative:
            self.line("missed = 0")
            for level in sorted(self.masked):
                self.line(f"{self._votes_of_group(ARRIVED[level], GRID)[0]}[:] = 0")

    def _allocate(self, variable: str, shape: str, nbytes: int | None, dtype: str, comment: str = "") -> None:
        """An array for each block: on the stack if its bytes are known, and there is room."""
        if self.compilation.cooperative:  # the blocks of a grid that synchronises have memory of their own
            self.line(f"{variable}_all = np.empty({extents('last', shape)}, {dtype}){comment}")
            self.of_block.append(f"{variable} = {variable}_all[block]")
            return
        self.stacked += nbytes or 0
        if nbytes is not None and self.stacked <= STACK:
            extent = CELLS if shape == "threads" else shape
            self.line(f"{variable} = stack({extents(extent)}, {dtype}){comment}")
        else:
            self.line(f"{variable} = np.empty({extents(shape)}, {dtype}){comment}")

    def _array(self, variable: str, array: Allocation) -> None:
        shape, comment = ", ".join(map(str, array.shape)), f"  # {array.kind}, line {array.line}"
        if array.kind == "shared":
            nbytes = array.nbytes if array.dtype.startswith("np.") else None
            self._allocate(variable, shape, nbytes, array.dtype, comment)
        elif variable in self.storage.in_warp:
            self.line(f"{variable}_of = np.empty({extents(shape, 32)}, {array.dtype}){comment}")
        elif array.kind == "local" and variable in self.storage.kept_arrays:
            self._allocate(f"{variable}_of", extents("threads", shape)[1:-1], None, array.dtype, comment)
        elif array.kind == "local":
            self.line(f"{variable} = np.empty({extents(shape)}, {array.dtype}){comment}")
        else:
            size = array.itemsize or array.dtype.removesuffix("dtype") + "itemsize"
            view = f"{variable} = dynamic[: dynamic.size // {size} * {size}].view({array.dtype})  # line {array.line}"
            self.of_block.append(view) if self.compilation.cooperative else self.line(view)

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
        """The coordinates of a block or a warp; those that are not used are dropped later."""
        if level == GRID:
            self.line("blockIdx_x = block % gridDim_x")
            self.line("blockIdx_y = block // gridDim_x % gridDim_y")
            self.line("blockIdx_z = block // (gridDim_x * gridDim_y)")
            for line in self.of_block:
                self.line(line)
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
    """Bytes of a scalar.

    >>> itemsize("np.float32")
    4
    """
    return np.dtype(dtype.removeprefix("np.")).itemsize
