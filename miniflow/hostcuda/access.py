"""Every element that a kernel reads or writes in the checked executor passes here.

    array[i, j]           load(thread, array, (i, j), site)
    array[i, j] = value   store(thread, array, (i, j), value, site)
    array[2:5]            a view: another Watched on the same Memory
    records[i].x          a Record, then a load from the view of that field

`site` numbers the place in the source. An access out of bounds ends the thread (`ThreadStop`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.hostcuda.arithmetic import is_integer, loaded
from miniflow.hostcuda.watched import Record, Watched, as_dtype


class ThreadStop(Exception):
    """The thread cannot go on; what it did wrong is noted."""


def load(thread: Any, array: Any, index: Any, site: int) -> Any:
    """The value of array[index]."""
    if type(array) is not Watched:
        return _load_other(thread, array, index, site)
    position = _position(array, index)
    if position is None:
        position = locate(thread, array, index, site)
        if type(position) is not int:
            return position
    if array.fields is not None:
        return Record(array, index if isinstance(index, tuple) else (index,))
    memory = array.memory
    if array.itemsize == memory.granule and array.flat is not None:
        written = memory.written
        if written is not None and not written[position]:
            _uninitialised(thread, array, index, site)
        if memory.tracked:
            conflict = memory.note_read(position, thread.era, site)
            if conflict is not None:
                _race(thread, array, index, site, "reads", conflict)
    else:
        _note_cells(thread, array, position, index, site, "reads")
    if thread.profile is not None:
        thread.profile.access(thread, array, position, index, site, "load")
    value = array.flat[position] if array.flat is not None else array.host[index]
    return int(value) if array.wide else value


def store(thread: Any, array: Any, index: Any, value: Any, site: int) -> None:
    """array[index] = value"""
    if type(array) is not Watched:
        return _store_other(thread, array, index, value, site)
    position = _position(array, index)
    if position is None:
        position = locate(thread, array, index, site)
        if type(position) is not int:
            return _store_slice(thread, position, value, site)
    if array.fields is not None:
        return _store_record(thread, array, index, value, site)
    memory = array.memory
    if memory.space == "const" or not array.host.flags.writeable:
        _constant(thread, array, index, site)
    if array.itemsize == memory.granule and array.flat is not None:
        if memory.written is not None:
            memory.written[position] = 1
        if memory.tracked:
            conflict = memory.note_write(position, thread.era, site)
            if conflict is not None:
                _race(thread, array, index, site, "writes", conflict)
    else:
        _note_cells(thread, array, position, index, site, "writes")
    if thread.profile is not None:
        thread.profile.access(thread, array, position, index, site, "store")
    array.put(position, index, value)


def update(thread: Any, array: Any, index: Any, operate: Any, value: Any, site: int) -> None:
    """array[index] = array[index] <operator> value"""
    store(thread, array, index, operate(load(thread, array, index, site), value), site)


def atomic(thread: Any, array: Watched, index: Any, operate: Any, site: int, reads: bool = True) -> Any:
    """array[index] = operate(array[index]) in one step; returns the old value."""
    position = locate(thread, array, index, site)
    if type(position) is not int:
        thread.fail("exception", f"an atomic on {array.name} needs the index of one element", "write it out", site)
    memory = array.memory
    if memory.space in ("local", "const"):
        thread.fail("exception", f"an atomic on {array.name} in {memory.space} memory", "atomics are for global and "
                    "shared memory", site)  # fmt: skip
    _note_cells(thread, array, position, index, site, "atomically updates", reads)
    if memory.space == "global":
        memory.publish(array.cells_of(position)[0], thread)
    if thread.profile is not None:
        thread.profile.access(thread, array, position, index, site, "atomic")
    old = array.get(position, index)
    array.put(position, index, operate(old))
    return old


def attribute(thread: Any, owner: Any, name: str, site: int) -> Any:
    """owner.name: a field of a record or of an array of records, a number's `view`, or an attribute."""
    if type(owner) is Record:
        return load(thread, owner.array.field(name), owner.index, site)
    if type(owner) is Watched and owner.fields is not None and name in owner.fields:
        return owner.field(name)
    if name == "view" and isinstance(owner, int | np.generic):
        scalar = np.int64(owner) if type(owner) is int else owner
        return lambda dtype: loaded(scalar.view(as_dtype(dtype)))
    return getattr(owner, name)


def set_attribute(thread: Any, owner: Any, name: str, value: Any, site: int) -> None:
    """owner.name = value, of a record."""
    if type(owner) is not Record:
        raise AttributeError(f"{type(owner).__name__} has no field {name} to assign")
    store(thread, owner.array.field(name), owner.index, value, site)


def iterate(thread: Any, sequence: Any, site: int) -> Any:
    """What a `for` loop runs over."""
    if type(sequence) is Watched:
        return (load(thread, sequence, i, site) for i in range(len(sequence)))
    return sequence


def _load_other(thread: Any, owner: Any, index: Any, site: int) -> Any:
    if type(owner) is Record:
        names = list(owner.array.fields)
        return load(thread, owner.array.field(index if isinstance(index, str) else names[index]), owner.index, site)
    return owner[int(index) if isinstance(index, np.integer) else index]


def _store_other(thread: Any, owner: Any, index: Any, value: Any, site: int) -> None:
    if type(owner) is not Record:
        raise TypeError(f"{type(owner).__name__} does not support item assignment")
    names = list(owner.array.fields)
    store(thread, owner.array.field(index if isinstance(index, str) else names[index]), owner.index, value, site)


def _store_record(thread: Any, array: Watched, index: Any, value: Any, site: int) -> None:
    for name in array.fields:
        part = attribute(thread, value, name, site) if type(value) is Record else value[name]
        store(thread, array.field(name), index, part, site)


def _store_slice(thread: Any, view: Watched, value: Any, site: int) -> None:
    """view[...] = a scalar, or an array of the same shape, element by element."""
    for index in np.ndindex(*view.shape):
        if type(value) is Watched:
            skipped = view.rank - value.rank
            own = tuple(0 if n == 1 else i for i, n in zip(index[skipped:], value.shape, strict=True))
            store(thread, view, index, load(thread, value, own, site), site)
        else:
            store(thread, view, index, value, site)


# Where an element lies


def _position(array: Watched, index: Any) -> int | None:
    """Its position in `flat`, if the index is plain and inside; None sends the caller to `locate`."""
    try:
        if array.plain == 1:
            if 0 <= index < array.rows:
                position = array.first + index * array.row_step
                return position if type(position) is int else None
        elif array.plain == 2:
            i, j = index
            if 0 <= i < array.rows and 0 <= j < array.columns:
                position = array.first + i * array.row_step + j * array.column_step
                return position if type(position) is int else None
    except (TypeError, ValueError):  # a slice, or the wrong number of indices
        pass
    return None


def locate(thread: Any, array: Watched, index: Any, site: int) -> Any:
    """The position of any index, after checking its bounds; a view if it names more than one element."""
    indices = index if isinstance(index, tuple) else (index,)
    checked, axis = [], 0
    for item in indices:
        if item is Ellipsis:
            axis = array.rank - (len(indices) - len(checked) - 1)
        elif is_integer(item):
            if axis >= array.rank:
                thread.fail("exception", f"{array.name} has {array.rank} dims, got {len(indices)} indices",
                            "give one index for each dim", site)  # fmt: skip
            item = _inside(thread, array, indices, axis, int(item), site)
            axis += 1
        elif isinstance(item, slice):
            item = slice(*(None if part is None else int(part) for part in (item.start, item.stop, item.step)))
            axis += 1
        else:
            thread.fail("exception", f"{array.name} is indexed with {item!r}", "an index is an integer: int(...)", site)
        checked.append(item)
    if len(checked) == array.rank and all(isinstance(item, int) for item in checked):
        return array.first + sum(i * step for i, step in zip(checked, array.steps, strict=True)) if (
            array.flat is not None
        ) else _byte_of(array, tuple(checked))  # fmt: skip
    return Watched(f"{array.name}[{_spelled(checked)}]", array.host[tuple(checked)], array.memory, array.root)


def _byte_of(array: Watched, index: tuple[int, ...]) -> int:
    element = array.host[tuple(slice(i, i + 1) for i in index)]
    return element.__array_interface__["data"][0] - array.memory.start


def _inside(thread: Any, array: Watched, indices: tuple, axis: int, item: int, site: int) -> int:
    """The index along one axis, wrapped if it is negative; noted unless it is literally so in the source."""
    size = array.shape[axis]
    if 0 <= item < size:
        return item
    described = f"{array.name}[{_spelled(indices)}]"
    details = {"array": array.name, "index": _plain(indices)}
    along = f" along dim {axis}" if array.rank > 1 else ""
    if -size <= item < 0:
        if site not in thread.block.run.program.deliberate:
            thread.note(
                "negative index",
                f"{thread} uses {described}, which wraps around to index {item + size}{along}",
                "guard the access with an `if`, or shift the index; a literal -1 is taken as meant",
                site,
                **details,
            )
        return item + size
    thread.fail(
        "out of bounds",
        f"{thread} uses {described}, but {array.name} has shape {_shape(array.shape)}",
        f"guard it: `if index < {array.name}.shape[{axis}]`, or launch fewer threads",
        site,
        **details,
    )


def _plain(index: Any) -> tuple | None:
    items = index if isinstance(index, tuple) else (index,)
    return tuple(int(item) for item in items) if all(is_integer(item) for item in items) else None


def _spelled(index: Any) -> str:
    items = index if isinstance(index, tuple | list) else (index,)

    def one(item: Any) -> str:
        if isinstance(item, slice):
            ends = ["" if end is None else str(end) for end in (item.start, item.stop)]
            return ":".join(ends) + ("" if item.step is None else f":{item.step}")
        return "..." if item is Ellipsis else str(item)

    return ", ".join(one(item) for item in items)


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


# What is wrong with an access


def _note_cells(
    thread: Any, array: Watched, position: int, index: Any, site: int, verb: str, needs_value: bool = True
) -> None:
    """The accesses of `load`, `store` and `atomic` where an element covers several cells."""
    memory, cells = array.memory, array.cells_of(position)
    written = memory.written
    if written is not None:
        if verb != "writes" and needs_value and not all(written[cell] for cell in cells):
            _uninitialised(thread, array, index, site)
        if verb != "reads":
            for cell in cells:
                written[cell] = 1
    if memory.tracked:
        note = {"reads": memory.note_read, "writes": memory.note_write}.get(verb, memory.note_atomic)
        conflicts = [note(cell, thread.era, site) for cell in cells]
        first = next((conflict for conflict in conflicts if conflict is not None), None)
        if first is not None:
            _race(thread, array, index, site, verb, first)


def _race(thread: Any, array: Watched, index: Any, site: int, verb: str, conflict: tuple) -> None:
    if thread.raced == (site, index):  # the write of `x[i] += 1` after its read
        return
    thread.raced = (site, index)
    era, other_site, other_verb = conflict
    space, other = array.memory.space, era.thread
    where = f"{array.name}[{_spelled(index)}] in {space} memory"
    run = thread.block.run
    if era.block is thread.block:
        missing = "no barrier between them"
        remedy = (
            "put cuda.syncthreads() between the two, where all threads of the block pass; or use cuda.atomic for both"
        )
        other_name = other.short()
    else:
        missing = "nothing orders blocks"
        remedy = "let each element belong to one block, use cuda.atomic for both, or split the work into two launches"
        other_name = str(other)
    if "atomic" in (verb + other_verb):
        remedy = f"use cuda.atomic for both accesses, or {remedy.partition(';')[0]}"
    other_place = run.program.sites[other_site]
    thread.note(
        "race",
        f"{thread} {verb} {where}, which {other_name} {other_verb} at {other_place}; {missing}",
        remedy,
        site,
        other=other_place,
        array=array.name,
        index=_plain(index),
    )


def _uninitialised(thread: Any, array: Watched, index: Any, site: int) -> None:
    space = array.memory.space
    origin = "device_array" if space == "global" else f"cuda.{space}.array"
    thread.note(
        "uninitialised read",
        f"{thread} reads {array.name}[{_spelled(index)}] in {space} memory, which nothing has written",
        f"{origin} leaves garbage: write the element first",
        site,
        array=array.name,
        index=_plain(index),
    )


def _constant(thread: Any, array: Watched, index: Any, site: int) -> None:
    thread.fail(
        "constant write",
        f"{thread} writes {array.name}[{_spelled(index)}], which is constant",
        "pass the array as an argument to write to it",
        site,
        array=array.name,
        index=_plain(index),
    )
