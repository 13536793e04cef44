"""`flow.save` and `flow.load`: one safetensors file that holds tensors and the nested structure around them.

The tensors are stored under readable names, so that any safetensors reader opens it. The structure is JSON in the
header's metadata, under `miniflow.structure`: null, booleans, strings, integers, finite floats and lists stand for
themselves, and everything else is an object with a single tag:

    {"dict": [[key, value], ...]}   {"ordered": [[key, value], ...]}   {"tuple": [...]}   {"size": [2, 3]}
    {"float": "nan"}   {"tensor": name}   {"leaf": name} (a tensor that requires grad)   {"array": name} (of NumPy)
    {"cuda:0": {"tensor": name}} (a tensor that was on that device)

The metadata also holds, under `miniflow.crc32`, a checksum of the tensors and the structure, which `load` checks.
Files without these entries, as torch and others write them, load as a flat dict. Nothing is ever pickled: reading a
file cannot run code. Format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

from miniflow.backends.memory import address, to_host
from miniflow.device import device
from miniflow.dtype import ALL, BY_NUMPY, tensor_buffer
from miniflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    AutogradError,
    CheckpointError,
    CheckpointNotFoundError,
    DeviceError,
)
from miniflow.parallel import world
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.nest import each_tensor, tensors_in
from miniflow.parallel.placement import placement
from miniflow.sbp import B
from miniflow.serialization.atomic import replacing, writing
from miniflow.tensor import Size, Tensor

Location = str | device | dict[Any, Any] | placement | Callable[[Tensor, str], Tensor | None] | None
STRUCTURE, CHECKSUM = "miniflow.structure", "miniflow.crc32"
BY_NAME = {t.name: t.numpy for t in ALL}
SUPPORTED = ", ".join(t.name for t in ALL)
MAPPINGS, SEQUENCES = {"dict": dict, "ordered": OrderedDict}, {"tuple": tuple, "size": Size}
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
GRAPH, GRAPHS = "graph.safetensors", "miniflow.graph.serialize"  # in its folder; a layer above, imported when needed
FOREIGN = {  # first bytes -> what such a file is
    b"PK\x03\x04": "a zip archive, as torch.save and numpy.savez write",
    b"\x80": "a pickle, as torch.save, oneflow.save and pickle.dump write",
}


def save(
    obj: Any,
    path: str | os.PathLike | IO[bytes],
    *,
    global_dst_rank: int | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Write tensors, and the dicts, lists and tuples they are nested in, to one file.

    The file is written whole or not at all; a failed save leaves an older file unchanged. Tensors that share all their
    memory (tied weights) are stored once and share it again after `load`. Parameters come back as tensors.

    Args:
        obj: a Tensor, NumPy array, None, bool, int, float (nan and inf too), str or Size, or dicts, OrderedDicts, lists
            and tuples of such; keys of dicts are str, int, float, bool, None or tuples of them. The state dicts of
            modules and optimizers are such objects. Or a compiled nn.Graph, which is written as a folder.
        path: the file; its folder exists. The usual suffix is `.safetensors`. For a graph, the name of a folder, which
            is made with its parents if need be. Or an object to write to, such as `io.BytesIO()` or a file that is
            open in binary mode.
        global_dst_rank: the rank that writes; needed for global tensors, which are gathered there, and come back as
            local ones. All ranks have to call it. `flow.distributed.checkpoint` lets each rank write its own part.
        save_as_external_data: of OneFlow, without effect.

    Raises:
        ArgumentError: for a rank that does not exist.
        ArgumentTypeError: for something that is not a path.
        CheckpointError: for an object that cannot be saved, naming its place inside `obj`.
        FileWriteError: if the file cannot be written.

    >>> import miniflow as flow, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flow.save({"step": 3, "weights": [flow.ones(2)]}, folder + "/model.safetensors")
    ...     flow.load(folder + "/model.safetensors")
    {'step': 3, 'weights': [tensor([1., 1.], dtype=miniflow.float32)]}

    Source: `torch.save`, with safetensors instead of pickle.
    """
    if hasattr(path, "write"):
        with tempfile.TemporaryDirectory() as folder:
            save(obj, written := Path(folder, "object"), global_dst_rank=global_dst_rank)
            path.write(written.read_bytes())
        return
    path = _path("save", path, "write to")
    _check_rank("save: got global_dst_rank", global_dst_rank)
    if hasattr(obj, "_to_save"):
        return import_module(GRAPHS).save_graph(obj._to_save(), path)
    packer = _Packer(global_dst_rank)
    try:
        structure = json.dumps(packer.pack(obj, ()), allow_nan=False)
    except RecursionError:
        raise CheckpointError(
            "save: the object contains itself, or is nested too deep; expected a tree of dicts, lists and tuples"
        ) from None
    if global_dst_rank not in (None, *world.owned()):
        return
    write_file(path, packer.arrays, {STRUCTURE: structure})


def write_file(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write a safetensors file whole or not at all, with a checksum among its metadata.

    Raises:
        FileWriteError: if it cannot be written.
    """
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    metadata = {"format": "pt", **metadata}
    metadata[CHECKSUM] = checksum(arrays, metadata)
    with writing("save", path), replacing(path) as temporary:
        safetensors.numpy.save_file(arrays, temporary, metadata=metadata)


def _path(name: str, path: Any, use: str) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(f"{name}: got a {type(path).__name__}; expected a path, or an object to {use}")
    return Path(path)


def load(
    path: str | os.PathLike | IO[bytes],
    map_location: Location = None,
    *,
    weights_only: bool = True,
    global_src_rank: int | None = None,
    support_pytorch_format: bool = True,
) -> Any:
    """Read what `save` wrote, or any other safetensors file as a flat dict of tensors.

    Args:
        path: the file, or the folder of a graph, or an object to read from, such as `io.BytesIO(data)`.
        map_location: the device to put all tensors on; None for the one each was saved from (for a file without
            structure, the CPU). Or a dict of devices: where to put those that were saved from a device; a placement,
            on which they become global and broadcast; or a function of a tensor on the CPU and the name of its device,
            which returns the tensor to use, or None.
        global_src_rank: the rank that reads the file; all ranks have to call it, and get global tensors that are
            broadcast on a placement of that rank alone.
        weights_only: of PyTorch; no file is read that could run code, whatever it says.
        support_pytorch_format: of OneFlow; files of PyTorch are read if they are safetensors.

    Returns:
        the object that was saved, in fresh memory; for a graph, what can be called as the graph.

    Raises:
        CheckpointNotFoundError: if there is no such file.
        CheckpointError: if the path is a folder without a graph, or the file is truncated, damaged or of another kind:
            the message says which.
        ArgumentError: for a rank that does not exist.
        DeviceError: if a device that tensors were on does not exist here.

    Source: `torch.load`, with safetensors instead of pickle.
    """
    if not (isinstance(map_location, str | device | dict | placement | None) or callable(map_location)):
        name = type(map_location).__name__
        raise ArgumentTypeError(f"load: got map_location of type {name}; expected a device or its name, such as 'cpu'")
    if hasattr(path, "read"):
        with tempfile.TemporaryDirectory() as folder:
            read = Path(folder, "object")
            read.write_bytes(path.read())
            return load(read, map_location, global_src_rank=global_src_rank)
    path = _path("load", path, "read from")
    _check_rank("load: got global_src_rank", global_src_rank)
    if global_src_rank is not None:
        return _load_on(global_src_rank, path)
    if path.is_dir():
        return import_module(GRAPHS).load_graph(path, map_location)
    arrays, metadata = read_file(path)
    if STRUCTURE not in metadata:
        return {name: _tensor(array, "cpu", map_location) for name, array in arrays.items()}
    try:
        return _unpacker(arrays, map_location)(json.loads(metadata[STRUCTURE]))
    except (ValueError, KeyError, TypeError, RecursionError, AutogradError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: the structure in {path} is damaged ({reason}); restore an intact copy") from error


class _Packer:
    """Converts an object to JSON values, and collects the arrays in it under names."""

    def __init__(self, global_rank: int | None):
        self.global_rank = global_rank  # where global tensors are gathered
        self.arrays: dict[str, np.ndarray] = {}
        self.names: dict[tuple, str] = {}  # memory -> name, for tensors met before

    def pack(self, obj: Any, path: tuple) -> Any:
        """The JSON value for `obj`, which was reached by the keys and indices in `path`."""
        cls = type(obj)
        if obj is None or cls in (bool, int, str):
            return obj
        if isinstance(obj, float):
            return float(obj) if math.isfinite(obj) else {"float": repr(float(obj))}
        if isinstance(obj, np.generic) and obj.dtype in BY_NUMPY:
            return self.pack(obj.item(), path)
        if isinstance(obj, Tensor) and obj.is_global:
            if self.global_rank is None:
                raise CheckpointError(
                    f"save: {_access(path)}: Please set global_dst_rank in `flow.save` to save global tensor, or let "
                    "each rank write its part: flow.distributed.checkpoint.save"
                )
            return {"tensor": self.add(obj._array.numpy(), path, "tensor", "cpu")}
        if isinstance(obj, Tensor):
            if obj.dtype is tensor_buffer:
                expected = "numbers: save x.numpy(), a list of arrays"
                raise CheckpointError(f"save: {_access(path)} is a tensor of tensor_buffer; expected one of {expected}")
            tag, device_name = "leaf" if obj.requires_grad else "tensor", str(obj._device)
            packed = {tag: self.add(obj._array, path, tag, device_name)}
            return packed if device_name == "cpu" else {device_name: packed}
        if cls is np.ndarray and obj.dtype in BY_NUMPY:
            return {"array": self.add(obj, path, "array", "cpu")}
        if cls in (list, tuple, Size):
            items = [self.pack(item, (*path, index)) for index, item in enumerate(obj)]
            return items if cls is list else {"size" if cls is Size else "tuple": items}
        if cls in (dict, OrderedDict):
            pairs = [[self.pack_key(key, path), self.pack(value, (*path, key))] for key, value in obj.items()]
            return {"ordered" if cls is OrderedDict else "dict": pairs}
        raise CheckpointError(_refusal(obj, path))

    def pack_key(self, key: Any, path: tuple) -> Any:
        """The JSON value for a key of a dict: no tensors or containers, save tuples."""
        if key is None or isinstance(key, bool | int | float | str | tuple | np.number):
            return self.pack(key, path)
        raise CheckpointError(
            f"save: {_access(path)} has the key {key!r} of type {type(key).__name__}; "
            "expected str, int, float, bool, None or a tuple of them"
        )

    def add(self, array: Any, path: tuple, tag: str, device_name: str) -> str:
        """The name under which `array` is stored: that of one in the same memory, or a new one from `path`."""
        memory = (address(array), array.shape, array.strides, array.dtype, tag, device_name)
        if memory not in self.names:
            base = ".".join(map(str, path)) or "tensor"
            name, count = base, 1
            while name in self.arrays or name == "__metadata__":  # the header's own entry
                count += 1
                name = f"{base}#{count}"
            self.arrays[name] = to_host(array)
            self.names[memory] = name
        return self.names[memory]


def _refusal(obj: Any, path: tuple) -> str:
    """Why `obj` cannot be saved, and what to do."""
    got = f"save: cannot save {_access(path)}, a {type(obj).__module__}.{type(obj).__qualname__}"
    if hasattr(obj, "state_dict"):
        return (
            f"{got}: save its state, flow.save(x.state_dict(), path), "
            "and restore it with x.load_state_dict(flow.load(path))"
        )
    return (
        f"{got}; expected numbers, strings, None, plain dicts, lists and tuples, and tensors and arrays of {SUPPORTED}"
    )


def _access(path: tuple) -> str:
    """The expression for an entry of the saved object: `obj['model'][0]`."""
    return "obj" + "".join(f"[{key!r}]" for key in path)


def _unpacker(arrays: dict[str, np.ndarray], map_location: Location) -> Callable[[Any], Any]:
    """The function from a JSON value to the object; tensors that were shared are shared again."""
    objects: dict[tuple[str, str], Any] = {}  # (tag, name) -> the object

    def unpack(value: Any) -> Any:
        if isinstance(value, list):
            return [unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        if tag in MAPPINGS:
            return MAPPINGS[tag]([(unpack(key), unpack(item)) for key, item in content])
        if tag in SEQUENCES:
            return SEQUENCES[tag]([unpack(item) for item in content])
        if tag == "float":
            return FLOATS[content]
        device_name = "cpu"
        if tag.startswith("cuda:"):
            device_name = tag
            ((tag, content),) = content.items()
        if (tag, content) not in objects:
            restored: Any = arrays[content]
            if tag not in ("array", "tensor", "leaf"):
                raise ValueError(f"unknown tag {tag!r}")
            if tag != "array":
                restored = _tensor(restored, device_name, map_location).requires_grad_(tag == "leaf")
            objects[tag, content] = restored
        return objects[tag, content]

    return unpack


def _tensor(array: np.ndarray, device_name: str, map_location: Location) -> Tensor:
    tensor = Tensor._wrap(array)
    try:
        if callable(map_location):
            mapped = map_location(tensor, device_name)
            return tensor.to(device_name) if mapped is None else mapped
        if isinstance(map_location, placement):
            return tensor.to_global(map_location, B)
        if isinstance(map_location, dict):
            map_location = {str(device(old)): new for old, new in map_location.items()}.get(device_name)
        return tensor.to(device_name if map_location is None else map_location)
    except DeviceError as error:
        raise DeviceError(f"load: {error}; or give map_location='cpu'") from None


def _check_rank(got: str, rank: int | None) -> None:
    if rank not in (None, *range(world.size())):
        raise ArgumentError(f"{got}={rank!r}; expected None or a rank below {world.size()}")


def _load_on(rank: int, path: Path) -> Any:
    """What a file holds that one rank reads, with global tensors on that rank."""
    on_rank = placement("cpu", [rank])
    obj = load(path, "cpu") if rank in world.owned() else None
    metas = each_tensor(obj, lambda x: GlobalMeta(on_rank, (B,), tuple(x.shape), x._array.dtype))
    metas = world.communicator().all_gather_object(metas, range(world.size()))[rank]
    arrays = iter([] if obj is None else tensors_in(obj))

    def spread(meta: GlobalMeta) -> Tensor:
        shards = {rank: next(arrays)._array} if obj is not None else {}
        return Tensor._wrap(GlobalArray(GlobalMeta.of(on_rank, (B,), meta.shape, meta.dtype), shards))

    return each_tensor(metas, spread, GlobalMeta)


def _refuse_foreign(path: Path) -> None:
    """Refuse what is not a file, and files of other kinds, which their first bytes identify."""
    if path.exists() and not path.is_file():  # a pipe might never end
        raise CheckpointError(f"load: {path} is not a regular file; expected one that flow.save wrote")
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError as error:
        error_class = CheckpointNotFoundError if isinstance(error, FileNotFoundError) else CheckpointError
        raise error_class(f"load: cannot read {path}: {error.strerror}") from error
    for magic, description in FOREIGN.items():
        # a safetensors file may begin with any byte, but the ninth opens its JSON header
        if start.startswith(magic) and start[8:9] != b"{":
            raise CheckpointError(
                f"load: {path} is {description}; expected safetensors; pickles can run code and are never read here: "
                "in the framework that wrote it, write the state_dict with "
                "safetensors.torch.save_file(state_dict, path)"
            )


def read_file(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file, checked against its size and its checksum, which files that
    other programs wrote do not have.

    Raises:
        CheckpointError: for a file that is missing, damaged, or of another kind.
    """
    _refuse_foreign(path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (OSError, safetensors.SafetensorError, ValueError) as error:  # ValueError: impossible sizes, no text
        raise CheckpointError(
            f"load: {path} is not an intact safetensors file: {error}; "
            "it was cut short, damaged, or written by something else"
        ) from error
    except (TypeError, AttributeError, KeyError) as error:
        raise CheckpointError(
            f"load: {path} has an element type that NumPy does not know: {error}; convert it"
        ) from error
    for name, array in arrays.items():
        if array.dtype not in BY_NUMPY:
            raise CheckpointError(
                f"load: tensor {name!r} in {path} has dtype {array.dtype}; expected one of {SUPPORTED}: "
                "convert it in the program that wrote it"
            )
    expected, is_ours = metadata.pop(CHECKSUM, None), any(key.startswith("miniflow.") for key in metadata)
    if (expected is not None or is_ours) and expected != checksum(arrays, metadata):
        what = "wrong" if expected else "lost"
        raise CheckpointError(f"load: {path} is damaged: its checksum is {what}; restore an intact copy")
    return arrays, metadata


def checksum(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """The CRC-32 of contiguous arrays, with their names, dtypes and shapes, and of metadata: of the checksums that find
    every flipped bit the fastest."""
    described = [(name, str(array.dtype), array.shape) for name, array in sorted(arrays.items())]
    crc = zlib.crc32(json.dumps([described, metadata], sort_keys=True).encode())
    for _, array in sorted(arrays.items()):
        crc = zlib.crc32(array.reshape(-1).view(np.uint8), crc)
    return f"{crc:08x}"
