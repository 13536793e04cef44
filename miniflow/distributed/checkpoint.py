"""States that all ranks save together, each the parts that it holds, and load in any other layout.

A checkpoint is a folder: a safetensors file for each rank, and `index.json`, which says which part of a tensor is in
which of them. The folder appears under its name when it is complete. The metadata of a file holds the CRC-32 of each
part, which is checked when it is read.

Source: `torch.distributed.checkpoint`.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from miniflow.backends import memory
from miniflow.dispatch.tape import no_grad
from miniflow.dtype import ALL, tensor_buffer
from miniflow.errors import ArgumentError, CheckpointError, FileWriteError, ShapeError
from miniflow.parallel import check, world
from miniflow.parallel.boxing import box, without_partial
from miniflow.parallel.messages import described
from miniflow.parallel.partition import Region, intersection, region, within
from miniflow.serialization.atomic import draft_of, remove_drafts, sync, writing
from miniflow.tensor import Tensor

INDEX = "index.json"


@no_grad
def save(state: dict[str, Any], folder: str | os.PathLike) -> None:
    """Write a state: all ranks have to call it, with the same keys.

    Args:
        state: tensors, global or local, numbers, strings and None, in nested dicts and lists, as `state_dict()` of
            modules and optimizers. Of local tensors and all else, what rank 0 has is written.
        folder: its name; its parents are made if need be. An older checkpoint there is replaced, and until then kept as
            `.NAME.older`. All ranks have to see the same file system.

    Raises:
        CheckpointError: if it holds something else.
        PlacementError: if the global tensors of the ranks differ in name, shape or dtype.
        FileWriteError: if a rank cannot write; an older checkpoint is kept.

    >>> import miniflow as flow, tempfile
    >>> x = flow.ones(2, 3, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
    >>> with tempfile.TemporaryDirectory() as root:
    ...     flow.distributed.checkpoint.save({"x": x}, root + "/state")
    ...     y = flow.zeros(2, 3, placement=flow.placement.all("cpu"), sbp=flow.sbp.broadcast)
    ...     flow.distributed.checkpoint.load({"x": y}, root + "/state")
    ...     y.sum().item()
    6.0
    """
    target = Path(folder)
    index, files = divided(state)
    draft = target.with_name(gathered(draft_of(target).name)[0])
    writer = world.rank() == 0

    def begin() -> None:
        remove_drafts(target.parent)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)

    def write() -> None:
        for rank, arrays in files.items():
            checksums = {name: f"{zlib.crc32(a.reshape(-1).view(np.uint8)):08x}" for name, a in arrays.items()}
            safetensors.numpy.save_file(arrays, draft / f"rank_{rank}.safetensors", metadata=checksums)
            sync(draft / f"rank_{rank}.safetensors")

    def finish() -> None:
        (draft / INDEX).write_text(json.dumps(index))
        sync(draft / INDEX)
        older = target.with_name(f".{target.name}.older")
        shutil.rmtree(older, ignore_errors=True)
        if target.exists():
            target.rename(older)
        draft.rename(target)
        sync(target.parent)
        shutil.rmtree(older, ignore_errors=True)

    try:
        together(target, begin if writer else None)
        together(target, write)
        together(target, finish if writer else None)
    except BaseException:
        if writer:
            shutil.rmtree(draft, ignore_errors=True)
        raise


def divided(state: dict[str, Any]) -> tuple[dict[str, Any], dict[int, dict[str, np.ndarray]]]:
    """The index of a checkpoint, and the arrays that the ranks of this process write, by name."""
    tensors, others = {}, {}
    for path, value in entries(state):
        name = name_of(path)
        if name in tensors or name in others:
            raise CheckpointError(f"save: two entries of the state are called {name}")
        if isinstance(value, Tensor) and value.dtype is tensor_buffer:
            raise CheckpointError(f"save: {name} is a tensor of tensor_buffer; expected one of numbers")
        if isinstance(value, Tensor):
            tensors[name] = value
        elif value is None or isinstance(value, bool | int | float | str):
            others[name] = value
        elif not isinstance(value, dict):
            raise CheckpointError(f"save: {name} is a {type(value).__name__}; expected tensors, numbers and strings")
    descriptions = [f"checkpoint.save with {name}: {described(x._array)}" for name, x in tensors.items() if x.is_global]
    check.compare("\n".join(descriptions), range(world.size()))
    index: dict[str, Any] = {"others": others, "tensors": {}}
    files: dict[int, dict[str, np.ndarray]] = {r: {} for r in world.owned()}
    for name, x in tensors.items():
        index["tensors"][name] = {"shape": list(x.shape), "dtype": x.dtype.name, "parts": []}
        for rank, bounds, array in parts_of(x):
            index["tensors"][name]["parts"].append({"rank": rank, "bounds": bounds})
            if array is not None:
                files[rank][name] = np.ascontiguousarray(memory.to_host(array))
    return index, files


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, in order."""
    return world.communicator().all_gather_object(value, range(world.size()))


def together(target: Path, step: Callable[[], None] | None) -> None:
    """Run `step`, if this rank has one, and wait for the other ranks: if one fails, all raise.

    Raises:
        FileWriteError: if a rank could not write.
    """
    failure = None
    try:
        with writing("save", target):
            if step:
                step()
    except FileWriteError as error:
        failure = error
    messages = gathered(failure and str(failure))
    if any(messages):
        raise failure or FileWriteError(next(filter(None, messages)))


def parts_of(x: Tensor) -> Iterator[tuple[int, Region, Any]]:
    """The parts to be written: the rank, the bounds, and the array if this process holds it. Each comes once."""
    if not x.is_global:
        yield 0, tuple([(0, n) for n in x.shape]), x._array if 0 in world.owned() else None
        return
    array = box(x._array, x.placement, without_partial(x.shape, x.placement, x.sbp))
    seen = set()
    for rank in array.placement.flat:
        bounds = region(array.shape, array.placement, array.sbp, rank)
        if bounds not in seen:
            seen.add(bounds)
            yield rank, bounds, array.shards.get(rank)


@no_grad
def load(state: dict[str, Any], folder: str | os.PathLike) -> None:
    """Read a checkpoint into a state: its tensors keep their layouts and get the values, other entries are replaced.

    All ranks have to call it; each reads the parts that it needs.

    Args:
        state: with the keys that are wanted, such as `model.state_dict()`; pass it to `load_state_dict` afterwards if
            it holds more than tensors.
        folder: what `save` wrote, on any number of ranks.

    Raises:
        CheckpointError: if it is missing, incomplete, damaged, or has no such entry.
        ShapeError, ArgumentError: for a tensor of another shape, or a partial sum. Nothing is changed unless a file is
            damaged.
    """
    source = Path(folder)
    try:
        index = json.loads((source / INDEX).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"load: {source} is not a checkpoint: {error}") from error
    targets = list(entries(state))
    empty = tuple(f"{name_of(path)}/" for path, value in targets if isinstance(value, dict))
    for name in (*index["tensors"], *index["others"]):
        if name.startswith(empty):
            raise CheckpointError(
                f"load: {source} has {name}, where the state has an empty dict: an optimizer has its state after a step"
            )
    tensors, others = [], []
    for path, value in targets:
        name = name_of(path)
        if isinstance(value, dict):
            continue
        if not isinstance(value, Tensor):
            if name not in index["others"]:
                raise CheckpointError(f"load: {source} has no {name}")
            others.append((path, index["others"][name]))
            continue
        if name not in index["tensors"]:
            raise CheckpointError(f"load: {source} has no tensor {name}")
        entry = index["tensors"][name]
        if tuple(entry["shape"]) != tuple(value.shape):
            raise ShapeError(
                f"load: {name} has shape {tuple(entry['shape'])} in {source}; expected {tuple(value.shape)}"
            )
        if value.is_global and any(sbp.kind == "P" for sbp in value.sbp):
            raise ArgumentError(f"load: {name} is a partial sum; expected split or broadcast tensors")
        tensors.append((value, name, entry))
    files: dict[int, Any] = {}
    for value, name, entry in tensors:
        fill(value, name, entry, source, files)
    for path, value in others:
        replaced(state, path, value)


def fill(x: Tensor, name: str, entry: dict[str, Any], source: Path, files: dict[int, Any]) -> None:
    """Write what the files hold of a tensor into its shards."""
    array = x._array
    shards = array.shards if x.is_global else {world.rank(): array}
    for rank, shard in shards.items():
        all_elements = tuple([(0, n) for n in x.shape])
        bounds = region(array.shape, array.placement, array.sbp, rank) if x.is_global else all_elements
        dtype = next(t.numpy for t in ALL if t.name == entry["dtype"])
        values, missing = np.empty(tuple(memory.layout(shard).shape), dtype), shard.size
        for part in entry["parts"]:
            held = tuple([tuple(b) for b in part["bounds"]])
            common = intersection(bounds, held)
            if common is not None and missing:
                values[within(common, bounds)] = read(source, part["rank"], name, files)[within(common, held)]
                missing -= int(np.prod([stop - start for start, stop in common]))
        if missing:
            raise CheckpointError(f"load: {source} does not hold all of {name}")
        memory.copy_into(shard, memory.move(values.astype(shard.dtype, copy=False), memory_of(x, rank)))
    if x.is_global:
        array.wrote()
    x._written()


def memory_of(x: Tensor, rank: int) -> Any:
    """The device of a shard."""
    return world.device(x.placement.type, rank) if x.is_global else x.device


def read(source: Path, rank: int, name: str, files: dict[int, Any]) -> np.ndarray:
    """The part of a tensor in the file of a rank."""
    try:
        if rank not in files:
            files[rank] = safetensors.safe_open(source / f"rank_{rank}.safetensors", framework="numpy")
        array = files[rank].get_tensor(name)
        expected = (files[rank].metadata() or {}).get(name)
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"load: {source}: the part of {name} of rank {rank} cannot be read: {error}") from error
    if expected != f"{zlib.crc32(array.reshape(-1).view(np.uint8)):08x}":
        raise CheckpointError(f"load: {source}: the part of {name} of rank {rank} is damaged: its checksum is wrong")
    return array


def entries(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of nested dicts and lists, and empty dicts, with the keys on the way: `("param_groups", 0, "lr")`."""
    if isinstance(value, dict | list | tuple) and (value or not isinstance(value, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from entries(item, (*path, key))
    else:
        yield path, value


def name_of(path: tuple[Any, ...]) -> str:
    """The name of an entry in a checkpoint: `param_groups/0/lr`."""
    return "/".join(map(str, path))


def replaced(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """`state` with `value` at `path`: lists and dicts are changed in place, tuples made again."""
    if not path:
        return value
    key, *tail = path
    item = replaced(state[key], tail, value)
    if isinstance(state, tuple):
        return (*state[:key], item, *state[key + 1 :])
    state[key] = item
    return state
