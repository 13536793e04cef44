"""`flow.save(graph, folder)` and `flow.load(folder)`: a compiled graph without the Python code of its model.

The folder holds two files: `graph.json`, the program as it was recorded (see `saved.program`), and
`weights.safetensors`, the values of parameters, buffers, states of optimizers and constants. Passes run anew when the
graph is loaded, so that a folder written on one machine fits another.

A training graph can be saved too, and goes on where it stopped. The numbers that change from step to step are in
`LoadedGraph.numbers`: steps are counted there, learning rates stay what they were until they are set. Schedulers are
Python code and are not saved.

`graph.json` is put in place last, in one step, and names the weights by their checksum: so a save that is interrupted
leaves the older graph whole, or none. Nothing in the files is believed: what does not fit is a CheckpointError.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from miniflow.amp.grad_scaler import GradScaler
from miniflow.atomic import replacing, sync
from miniflow.errors import CheckpointError
from miniflow.graph.config import PASSES, GraphConfig
from miniflow.graph.ir import Program, Scalar, Slot
from miniflow.graph.loaded import LoadedGraph, kind_of
from miniflow.graph.nested import DICT, SEQUENCE, Tree
from miniflow.graph.overlap import sharing
from miniflow.graph.replay import check_state
from miniflow.graph.saved import program as programs
from miniflow.graph.saved.fields import choice, integer, items, record, refuse, text
from miniflow.graph.saved.parts import Parts
from miniflow.graph.saved.trees import count, decode_tree, describe, encode_tree
from miniflow.graph.saved.values import DTYPES, NAMES, decode_value, encode_value
from miniflow.serialization import GRAPH, parse
from miniflow.tensor import Tensor

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

FORMAT, VERSION = "miniflow.graph", 1
WEIGHTS = "weights.safetensors"
NEXT = ".weights.safetensors.next"  # the weights of a graph.json that is about to be put in place
MAX_BYTES = 1 << 29  # of graph.json
READS, READS_UNCHANGED = 100, 3  # how often a folder is read while somebody writes to it
KEYS = ("format", "version", "checksum", "weights", "graph", "config", "numbers", "scaler", "arguments", "results")
SCALE = "grad_scaler.scale"  # the name of the number that a scaler gives
CONFIG = (
    "training", "amp_dtype", "accumulation_steps", "checkpoint_scopes", "disabled_passes", "outputs_buffer_size",
    "sparse_parameters",
)  # fmt: skip
FAILURES = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError, AssertionError,
            MemoryError, RecursionError, LookupError)  # fmt: skip


_writing: dict[str, threading.Lock] = {}  # a lock for each folder


def save_graph(saving: AbstractContextManager[Parts], path: str | os.PathLike) -> None:
    """Write a graph to a folder, which is made if it does not exist; an older graph there is replaced at the end.

    Args:
        saving: gives the parts of the graph; no step is made as long as it is open.
        path: the folder.

    Raises:
        CheckpointError: for a graph that contains what cannot be written or read again, or a folder that cannot be
            written.
        GraphError: for a graph that was not called yet, or whose model has changed since.
    """
    folder = Path(path)
    with saving as parts:
        document, arrays = encoded(parts)
    check_readable(document, arrays)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"save: {folder} is a file; expected the name of a folder for the graph")
    with _writing.setdefault(os.path.realpath(folder), threading.Lock()):
        is_new = not folder.exists()
        try:
            folder.mkdir(exist_ok=True)
            with alone(folder):
                write(folder, document, arrays)
        except BaseException as error:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            if isinstance(error, OSError | safetensors.SafetensorError):
                raise CheckpointError(f"save: cannot write {folder}: {error}") from error
            raise


def encoded(parts: Parts) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a graph, and the arrays that belong to it, which share no memory with the graph.

    Raises:
        CheckpointError: for what has no place in a file.
        GraphError: for a state that is no longer what was recorded.
    """
    for slot in parts.program.states:
        check_state(parts.program.name, slot, parts.program.tensors[slot]._array)
    refuse_shared_memory(parts.program)
    graph, arrays = programs.encode(parts.program)
    varying = {name: s for name, s in parts.program.scalars().items() if not is_draw(name)}
    if parts.skipper is not None:
        varying.pop(SCALE, None)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "graph": graph,
        "config": encode_config(parts.config),
        "numbers": {name: encode_number(name, scalar.source()) for name, scalar in varying.items()},
        "scaler": parts.scaler_state(),
        "arguments": encode_tree(parts.arguments, "arguments"),
        "results": encode_tree(parts.results, "results"),
    }
    return document, arrays


def check_readable(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Refuse a graph that `load_graph` would refuse.

    Raises:
        CheckpointError: naming the place in the document.
    """
    try:
        decoded(json.loads(json.dumps(document, allow_nan=False)), programs.Decoder(arrays))
    except (CheckpointError, *FAILURES) as error:
        reason = str(error).removeprefix("load: ")
        raise CheckpointError(f"save: flow.load would refuse this graph: {reason:.500}") from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let other processes wait that save to this folder, on systems and disks that can."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def refuse_shared_memory(program: Program) -> None:
    """Refuse states that see each other's writes: they would be apart when they are loaded.

    Raises:
        CheckpointError: naming them.
    """
    for a, b in sharing({slot: program.tensors[slot]._array for slot in program.states}):
        if a in program.writes or b in program.writes:
            raise CheckpointError(
                f"save: {a.name} and {b.name} lie in the same memory, and the graph writes to it; expected tensors "
                "with memory of their own: use .clone() for one of them"
            )


def write(folder: Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write both files; the moment that counts is when `graph.json` gets its name."""
    settle(folder)
    try:
        with replacing(folder / NEXT) as temporary:
            safetensors.numpy.save_file(arrays, temporary, metadata={"format": "pt"})
        document = {**document, "weights": file_checksum(folder / NEXT)}
        document["checksum"] = checksum(document)
        with replacing(folder / GRAPH) as temporary:
            temporary.write_text(layout({key: document[key] for key in KEYS}) + "\n", encoding="utf-8")
    except BaseException:
        with suppress(OSError):
            settle(folder)
        raise
    os.replace(folder / NEXT, folder / WEIGHTS)
    if os.name == "posix":
        sync(folder)


def settle(folder: Path) -> None:
    """Give the weights of `graph.json` their name if a save was interrupted before; remove those of no graph."""
    if not (folder / NEXT).exists():
        return
    try:
        belongs = read_document(folder)["weights"] == file_checksum(folder / NEXT)
    except CheckpointError:
        belongs = False
    if belongs:
        os.replace(folder / NEXT, folder / WEIGHTS)
    else:
        (folder / NEXT).unlink(missing_ok=True)


def load_graph(path: str | os.PathLike, map_location: Any = None) -> LoadedGraph:
    """Read a folder that `flow.save(graph, folder)` wrote.

    Args:
        path: the folder.
        map_location: the device to run on; None for the devices that the graph was saved on.

    Returns:
        what can be called as the graph could, with arguments of the same structure.

    Raises:
        CheckpointError: for a folder that is missing or incomplete, and for files that are damaged, of another version,
            or do not make sense: the message says where.
    """
    folder = Path(path)
    document, arrays = read_folder(folder)
    decoder = programs.Decoder(arrays, map_location)
    try:
        parts, numbers = decoded(document, decoder)
        program = parts.program
        for slot in program.states:
            program.tensors[slot] = own_tensor(slot, decoder)
        for slot in program.constants:
            program.constants[slot] = own_tensor(slot, decoder)._array
        return LoadedGraph(parts, numbers)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; in {folder / GRAPH}") from error.__cause__
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: the graph in {folder} does not make sense ({reason:.500})") from error


def decoded(document: dict[str, Any], decoder: programs.Decoder) -> tuple[Parts, dict[str, Any]]:
    """What a document says, checked: the parts, without tensors for the states, and the numbers that vary."""
    program = decoder.program(document["graph"])
    config = decode_config(document["config"])
    numbers = decode_numbers(document["numbers"])
    scaler = decode_scaler(document["scaler"])
    program = bind(program, numbers, scaler)
    arguments, results = (decode_tree(document[name], name) for name in ("arguments", "results"))
    check_trees(arguments, results, program, scaler)
    return Parts(program, config, arguments, results, scaler), numbers


# the files


def layout(value: Any, depth: int = 0) -> str:
    """JSON with a line for each instruction, state and input."""
    if depth > 3 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False)
    if isinstance(value, dict):
        if depth > 1:
            return json.dumps(value, allow_nan=False)
        parts = [f"{json.dumps(key)}: {layout(part, depth + 1)}" for key, part in value.items()]
        return "{\n" + ",\n".join(parts) + "\n}"
    return "[\n" + ",\n".join(layout(part, depth + 1) for part in value) + "\n]"


def checksum(document: dict[str, Any]) -> str:
    """SHA-256 of a document without its checksum."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def file_checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_document(folder: Path) -> dict[str, Any]:
    """The JSON object of a folder, of this version and undamaged; its contents are not yet checked."""
    path = folder / GRAPH
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"load: {path} has more than {MAX_BYTES} bytes; no graph is as large")
        source = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"load: cannot read {path}: {reason}; expected what flow.save(graph, dir) wrote"
        ) from error
    try:
        document = json.loads(source, object_pairs_hook=without_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}; restore an intact copy") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CheckpointError(f"load: {path} is not the program of a graph; expected what flow.save(graph, dir) wrote")
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise CheckpointError(
            f"load: {path} has version {document.get('version')!r:.40}; expected {VERSION}: save it again with this "
            "version of miniflow, or load it with the one that wrote it"
        )
    record(document, str(path), KEYS)
    try:
        intact = document["checksum"] == checksum(document)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise CheckpointError(f"load: {path} is damaged: its checksum is wrong; restore an intact copy")
    return document


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; refused if a key stands there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(f"{name} is no JSON value")


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a folder and the arrays that belong to it.

    While somebody saves another graph there, the files may be of two graphs: then they are read again.
    """
    seen: Counter[str] = Counter()
    while True:
        document = read_document(folder)
        content, found = read_weights(folder, document["weights"])
        if content is not None:
            return document, parse(content, folder / WEIGHTS)
        seen[document["checksum"]] += 1
        if seen.total() >= READS or seen[document["checksum"]] >= READS_UNCHANGED:
            break
        time.sleep(0.005)
    if not found:
        raise CheckpointError(f"load: {folder / WEIGHTS} is missing; copy the whole folder")
    raise CheckpointError(
        f"load: {folder / WEIGHTS} is damaged, or belongs to another graph: its checksum is not the one in {GRAPH}; "
        "restore an intact copy of the folder"
    )


def read_weights(folder: Path, expected: Any) -> tuple[bytes | None, bool]:
    """The bytes of the file with this checksum, if there is one, and whether there is any file of weights."""
    found = False
    for name in (WEIGHTS, NEXT):
        with suppress(OSError):
            content = (folder / name).read_bytes()
            found = True
            if hashlib.sha256(content).hexdigest() == expected:
                return content, True
    return None, found


# what stands in the document beside the program


def encode_config(config: GraphConfig) -> dict[str, Any]:
    """The options that passes read."""
    fields = {name: getattr(config, name) for name in CONFIG}
    fields["amp_dtype"] = None if config.amp_dtype is None else NAMES[config.amp_dtype]
    return {name: sorted(value) if isinstance(value, set | frozenset) else value for name, value in fields.items()}


def decode_config(value: Any) -> GraphConfig:
    """The options, checked."""
    value = record(value, "config", CONFIG)
    config = GraphConfig()
    if type(value["training"]) is not bool:
        refuse("config.training", value["training"], "true or false")
    config._set_training(value["training"])
    if value["amp_dtype"] is not None:
        config.amp_dtype = DTYPES[choice(value["amp_dtype"], "config.amp_dtype", ("float16", "bfloat16"))]
    config.accumulation_steps = integer(value["accumulation_steps"], "config.accumulation_steps", 1, 2**20)
    config.outputs_buffer_size = integer(value["outputs_buffer_size"], "config.outputs_buffer_size", 1, 2**20)
    for name in ("checkpoint_scopes", "sparse_parameters"):
        setattr(config, name, frozenset(text(v, at) for v, at in items(value[name], f"config.{name}")))
    at = "config.disabled_passes"
    config.disabled_passes = {choice(v, place, PASSES) for v, place in items(value["disabled_passes"], at)}
    return config


def encode_number(name: str, value: Any) -> Any:
    """A number that changes from call to call: NumPy's become plain ones, and bools numbers unless a flag is meant."""
    value = value.item() if isinstance(value, np.generic) else value
    if kind_of(name) == "fresh":
        return bool(value)
    return encode_value(int(value) if isinstance(value, bool) else value)


def decode_numbers(value: Any) -> dict[str, Any]:
    """The numbers that change from call to call: what is counted is an integer, what is a flag a bool."""
    if not isinstance(value, dict):
        refuse("numbers", type(value).__name__, "an object")
    numbers = {}
    for name, content in value.items():
        at = f"numbers.{name[:80]}"
        number = decode_value(content, at)
        kind = kind_of(name)
        if kind == "fresh" and not isinstance(number, bool):
            refuse(at, repr(number)[:80], "a bool")
        if kind == "steps":
            integer(number, at, 1)
        elif kind != "fresh" and (isinstance(number, bool) or not isinstance(number, int | float)):
            refuse(at, repr(number)[:80], "a number")
        numbers[name] = number
    return numbers


def is_draw(name: str) -> bool:
    """Whether a number is taken from a random generator at every call."""
    return name.startswith("draw.")


def decode_scaler(value: Any) -> GradScaler | None:
    """The scaler of the loss."""
    if value is None:
        return None
    value = record(value, "scaler", ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"))
    integer(value["_growth_tracker"], "scaler._growth_tracker", 0)
    scaler = GradScaler()
    scaler.load_state_dict(value)
    return scaler


def check_trees(arguments: Tree, results: Tree, program: Program, scaler: GradScaler | None) -> None:
    """Arguments and results hold as many tensors as the program takes and returns."""
    is_call = [child.kind for child in arguments.children] == [SEQUENCE, DICT] and arguments.kind == SEQUENCE
    if not is_call or arguments.children[0].type is not tuple:
        refuse("arguments", describe(arguments), "a tuple of positional ones, and a dict of those with names")
    returned = len(program.outputs) - (scaler is not None)
    for tree, wanted, name in ((arguments, len(program.inputs), "arguments"), (results, returned, "results")):
        if count(tree) != wanted:
            refuse(name, f"{count(tree)} tensors", f"{wanted}, as the program has")
    if scaler is not None and (program.outputs[-1].shape != () or program.outputs[-1].dtype != bool):
        refuse("outputs", f"{program.outputs[-1].type} at the end", "a bool, which tells the scaler of infinities")


def bind(program: Program, numbers: dict[str, Any], scaler: GradScaler | None) -> Program:
    """The program with sources for the numbers that vary: the dict `numbers`, the scaler, generators for draws."""
    sources: dict[str, Scalar] = {name: Scalar(name, partial(numbers.__getitem__, name)) for name in numbers}
    if scaler is not None:
        sources[SCALE] = Scalar(SCALE, scaler.get_scale)
    for number in range(len(program.draws.generators)):
        sources |= {scalar.name: scalar for scalar in program.draws.scalars(number)}
    unknown = program.scalars().keys() - sources.keys()
    if unknown:
        refuse("instructions", f"the numbers {sorted(unknown)[:5]}", "only such as stand in `numbers` or in `draws`")
    instructions = []
    for instruction in program.instructions:
        attrs = {name: with_sources(value, sources.__getitem__) for name, value in instruction.attrs.items()}
        for name, value in attrs.items():
            if isinstance(value, Scalar) and is_draw(value.name) != (name in ("seed", "offset")):
                refuse("instructions", f"{name} from {value.name}", "seeds and offsets from draws, and nothing else")
        instructions.append(instruction.with_(attrs=attrs))
    return program.with_(instructions=instructions)


def with_sources(value: Any, source_of: Callable[[str], Scalar]) -> Any:
    """An attribute whose `Scalar`s have their sources."""
    if isinstance(value, Scalar):
        return source_of(value.name)
    if type(value) in (list, tuple):
        return type(value)(with_sources(part, source_of) for part in value)
    return value


def own_tensor(slot: Slot, decoder: programs.Decoder) -> Tensor:
    """A tensor on the device of a slot with the values from the file, in memory of its own."""
    order = decoder.orders[slot]
    array = np.array(decoder.values[slot].transpose(order), order="C").transpose(np.argsort(order))
    tensor = Tensor._wrap(array)
    return tensor if slot.device.type == "cpu" else tensor.to(slot.device)
