"""A reference executor for kernels of numba.cuda: one thread at a time, each operation by NumPy.

It shares nothing with the compiler. A kernel's source is rewritten into a generator (`reference_source`) that computes
with numba's types (`reference_numbers`); each thread runs until it waits at a barrier or a function of its warp, which
happens when all threads that have not returned wait there. Shared and local memory start with random bytes, so a kernel
that reads what nobody wrote gives different results for different seeds, and one with a race for different orders.

A variable has the type of what it holds, where numba gives it one type for the whole function: a kernel whose variable
is an integer on one path and a float on the other is outside of what this executor can judge.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, GeneratorType, SimpleNamespace
from typing import Any

import numpy as np
import reference_names as names
import reference_numbers as numbers
from numba.core.types import Type
from numba.np.numpy_support import as_dtype
from reference_names import AtSite, Caster, Waiting
from reference_numbers import UndefinedBehaviour
from reference_source import rewritten

from miniflow.hostcuda import cuda
from miniflow.hostcuda.intrinsic import Intrinsic
from miniflow.hostcuda.kernel import Kernel

WARP = 32


def run_reference(
    function: FunctionType,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    order: str = "forward",
    seed: int = 0,
) -> None:
    """Run a kernel; its arrays are changed in place.

    Args:
        function: the Python function, not jitted.
        order: in which blocks, and the threads of a block, run: forward or backward.
        seed: of what uninitialised memory holds.

    Raises:
        UndefinedBehaviour: if the kernel does what CUDA leaves undefined, as far as that is seen.
        IndexError: if a thread leaves an array.
    """
    dims = Dims(three(grid), three(block), shared_bytes, order)
    kernel = Program(np.random.default_rng(seed)).function(function)
    blocks = [Block(dims, number) for number in range(math.prod(dims.grid))]
    for each in blocks:
        each.start(kernel, arguments, seed)
    while blocks:
        blocks = [each for each in dims.ordered(blocks) if each.run_to_grid_barrier()]
        blocks.sort(key=lambda each: each.number)


def three(dims: int | tuple[int, ...]) -> tuple[int, int, int]:
    dims = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    return (*map(int, dims), 1, 1)[:3]


@dataclass
class Dims:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    order: str

    def ordered(self, items: list) -> list:
        return items[::-1] if self.order == "backward" else list(items)


@dataclass
class Request:
    """What a thread waits for."""

    scope: str
    operation: str
    site: str
    arguments: tuple


@dataclass(eq=False)
class Thread:
    block: Block
    index: tuple[int, int, int]
    number: int
    generator: Generator
    waiting: Request | None = None
    answer: Any = None
    exited: bool = False

    @property
    def lane(self) -> int:
        return self.number % WARP

    def resume(self) -> None:
        """Run to the next place where it waits, or to the end."""
        CURRENT.thread = self
        try:
            self.waiting = self.generator.send(self.answer)
        except StopIteration:
            self.exited = True

    def continue_with(self, answer: Any) -> None:
        self.waiting, self.answer = None, answer


CURRENT = SimpleNamespace(thread=None)


@dataclass(eq=False)
class Block:
    dims: Dims
    number: int
    threads: list[Thread] = field(default_factory=list)
    shared: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def index(self) -> tuple[int, int, int]:
        return unravelled(self.number, self.dims.grid)

    def start(self, kernel: Any, arguments: Sequence[Any], seed: int) -> None:
        self.random = np.random.default_rng([seed, self.number])
        self.dynamic = self.poison(self.dims.shared_bytes, np.dtype(np.uint8))
        for number in range(math.prod(self.dims.block)):
            body = generator_of(kernel, arguments)
            self.threads.append(Thread(self, unravelled(number, self.dims.block), number, body))

    def poison(self, shape: Any, dtype: np.dtype) -> np.ndarray:
        """Memory with random content."""
        shape = tuple(map(int, shape)) if isinstance(shape, tuple) else (int(shape),)
        return np.frombuffer(self.random.bytes(math.prod(shape) * dtype.itemsize), dtype).copy().reshape(shape)

    def run_to_grid_barrier(self) -> bool:
        """Whether its threads wait for the other blocks; else they have all ended."""
        for thread in self.threads:
            if thread.waiting is not None:  # at the grid's barrier, which all blocks have reached by now
                thread.continue_with(None)
        while True:
            for thread in self.dims.ordered(self.threads):
                if thread.waiting is None and not thread.exited:
                    thread.resume()
            if not self.complete_warps():
                live = [thread for thread in self.threads if not thread.exited]
                if not live or all(thread.waiting.scope == "grid" for thread in live):
                    return bool(live)
                complete_barrier(live)

    def complete_warps(self) -> bool:
        """Carry out what the lanes of a warp do together; whether there was anything."""
        done = False
        for first in range(0, len(self.threads), WARP):
            live = [thread for thread in self.threads[first : first + WARP] if not thread.exited]
            groups: dict[tuple, list[Thread]] = {}
            for thread in live:
                if thread.waiting is not None and thread.waiting.scope == "warp":
                    groups.setdefault((thread.waiting.site, mask_of(thread.waiting)), []).append(thread)
            for (_, mask), lanes in groups.items():
                if {thread.lane for thread in live if mask >> thread.lane & 1} == {lane.lane for lane in lanes}:
                    answer_warp(lanes)
                    done = True
        return done


def unravelled(number: int, dims: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = dims
    return number % x, number // x % y, number // (x * y)


def mask_of(request: Request) -> int:
    return int(request.arguments[0]) & 0xFFFFFFFF if request.arguments else 0xFFFFFFFF


def complete_barrier(live: list[Thread]) -> None:
    """All threads that are left wait at one barrier of the block."""
    places = {(thread.waiting.scope, thread.waiting.operation, thread.waiting.site) for thread in live}
    if len(places) != 1 or live[0].waiting.scope != "block":
        raise UndefinedBehaviour(f"threads of one block wait at {sorted(places)}")
    operation = live[0].waiting.operation
    votes = [bool(thread.waiting.arguments[0]) for thread in live] if operation != "syncthreads" else []
    combine = {"syncthreads_count": sum, "syncthreads_and": all, "syncthreads_or": any, "syncthreads": len}[operation]
    for thread in live:
        thread.continue_with(np.int32(combine(votes)))


def answer_warp(lanes: list[Thread]) -> None:
    """The answers of a vote or shuffle among these lanes."""
    request = lanes[0].waiting
    operands = {thread.lane: thread.waiting.arguments[1:] for thread in lanes}
    for thread in lanes:
        thread.continue_with(answer_lane(request.operation, thread, operands))


def answer_lane(operation: str, thread: Thread, operands: dict[int, tuple]) -> Any:
    mine = operands[thread.lane]
    if operation.startswith("shfl"):
        value = numbers.typed(mine[0])
        if value.dtype.name not in ("int32", "int64", "float32", "float64"):
            raise TypeError(f"{operation} of {value.dtype}")
        source = names.shuffle_source(operation, thread.lane, int(mine[1]))
        if source in operands:
            return numbers.typed(operands[source][0])
        return thread.block.poison(1, value.dtype)[0]  # undefined: the lane has returned
    if operation in ("syncwarp", "activemask"):
        return names.mask_of(operands)
    if operation.startswith("match"):
        same = [lane for lane, (value,) in operands.items() if value == mine[0]]
        if operation == "match_any_sync":
            return names.mask_of(same)
        everyone = len(same) == len(operands)
        return names.mask_of(same if everyone else ()), np.bool_(everyone)
    return names.vote(operation, {lane: value for lane, (value,) in operands.items()})


# What a kernel calls


def generator_of(function: Any, arguments: Sequence[Any]) -> Generator:
    result = function(*arguments)
    if isinstance(result, GeneratorType):
        yield from result


def call(site: str, function: Any, *arguments: Any, **keywords: Any) -> Generator:
    """Every call in a kernel."""
    if isinstance(function, Waiting):
        return (yield Request(function.scope, function.operation, site, arguments))
    if isinstance(function, AtSite):
        return function.function(site, *arguments, **keywords)
    result = function(*arguments, **keywords)
    return (yield from result) if isinstance(result, GeneratorType) and function is not names.typed_range else result


def shared_array(site: str, shape: Any, dtype: Any) -> np.ndarray:
    """One array for all threads of the block; without a size, the dynamic memory."""
    block, dtype = CURRENT.thread.block, names.dtype_of(dtype)
    if not isinstance(shape, tuple) and int(shape) == 0:
        return block.dynamic[: block.dynamic.size // dtype.itemsize * dtype.itemsize].view(dtype)
    if site not in block.shared:
        block.shared[site] = block.poison(shape, dtype)
    return block.shared[site]


def local_array(site: str, shape: Any, dtype: Any) -> np.ndarray:
    return CURRENT.thread.block.poison(shape, names.dtype_of(dtype))


class Position:
    """`cuda.threadIdx` and its kind: x, y and z as int32."""

    def __init__(self, read: Any):
        self.read = read

    def __getattr__(self, name: str) -> np.int32:
        return np.int32(self.read(CURRENT.thread)["xyz".index(name)])


def grid(ndim: Any) -> Any:
    thread = CURRENT.thread
    sizes, blocks = thread.block.dims.block, thread.block.index
    values = tuple(np.int64(b * s + t) for b, s, t in zip(blocks, sizes, thread.index, strict=True))
    return values[0] if ndim == 1 else values[: int(ndim)]


def gridsize(ndim: Any) -> Any:
    dims = CURRENT.thread.block.dims
    values = tuple(np.int64(g * b) for g, b in zip(dims.grid, dims.block, strict=True))
    return values[0] if ndim == 1 else values[: int(ndim)]


WARP_FUNCTIONS = (
    "syncwarp activemask all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync "
    "shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync"
).split()
BLOCK_FUNCTIONS = "syncthreads syncthreads_count syncthreads_and syncthreads_or".split()


class Cuda:
    """`cuda` in a kernel."""

    threadIdx = Position(lambda thread: thread.index)
    blockIdx = Position(lambda thread: thread.block.index)
    blockDim = Position(lambda thread: thread.block.dims.block)
    gridDim = Position(lambda thread: thread.block.dims.grid)
    warpsize = np.int32(WARP)
    shared = SimpleNamespace(array=AtSite(shared_array))
    local = SimpleNamespace(array=AtSite(local_array))
    const = SimpleNamespace(array_like=lambda array: array)
    cg = SimpleNamespace(this_grid=lambda: SimpleNamespace(sync=Waiting("grid", "sync")))
    atomic = names.ATOMICS
    fp16 = names.FP16
    popc, clz, ffs, brev, selp = map(staticmethod, (names.popc, names.clz, names.ffs, names.brev, names.selp))
    fma = staticmethod(numbers.fused_multiply_add)
    cbrt = staticmethod(numbers.function_of_floats(np.cbrt))
    rsqrt = staticmethod(numbers.function_of_floats(lambda x: (1 / np.sqrt(x)).astype(x.dtype)))
    grid, gridsize = staticmethod(grid), staticmethod(gridsize)
    threadfence = threadfence_block = threadfence_system = nanosleep = staticmethod(lambda *_: None)
    lanemask_lt = staticmethod(lambda: np.int32((1 << CURRENT.thread.lane) - 1))

    @property
    def laneid(self) -> np.int32:
        return np.int32(CURRENT.thread.lane)

    def __getattr__(self, name: str) -> Any:
        if name in WARP_FUNCTIONS:
            return Waiting("warp", name)
        return Waiting("block", name) if name in BLOCK_FUNCTIONS else Caster(as_dtype(getattr(cuda, name)))


class Program:
    """The functions of one launch, each rewritten once; what the host's names mean in them."""

    def __init__(self, random: np.random.Generator):
        self.cuda = Cuda()
        self.functions: dict[FunctionType, Any] = {}

    def function(self, function: FunctionType) -> Any:
        if function not in self.functions:
            self.functions[function] = lambda *a, **k: self.functions[function](*a, **k)  # for recursion
            self.functions[function] = rewritten(function, RUNTIME, self.convert)
        return self.functions[function]

    def convert(self, value: Any) -> Any:
        """What a captured value stands for in the reference."""
        if isinstance(value, Kernel):
            return self.function(value.py_func)
        if value is cuda or value is np or value is math:
            return {id(cuda): self.cuda, id(np): names.Numpy(), id(math): names.Math()}[id(value)]
        if isinstance(value, Intrinsic):
            return self.dotted(value.name)
        if isinstance(value, Type):
            return Caster(as_dtype(value))
        if isinstance(value, type) and issubclass(value, np.generic):
            return Caster(value)
        if isinstance(value, FunctionType):
            return self.function(value)
        if isinstance(value, np.ndarray):
            return value.copy()
        hashable = isinstance(value, type) or type(value).__name__ == "builtin_function_or_method"
        return names.BUILTINS.get(value, value) if hashable else value

    def dotted(self, name: str) -> Any:
        found = self.cuda
        for part in name.split("."):
            found = getattr(found, part)
        return found


RUNTIME = {
    "_binary": numbers.binary,
    "_unary": numbers.unary,
    "_compare": numbers.compare,
    "_load": names.load,
    "_store": names.store,
    "_slice": slice,
    "_attribute": names.attribute,
    "_set_attribute": names.set_attribute,
    "_call": call,
}
