"""The folder of a graph: `graph.json` and `weights.safetensors`, which are replaced together or not at all.

`graph.json` is put in place last, in one step, and names the weights by their checksum: so a save that is interrupted
leaves the older graph whole, or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from miniflow.errors import CheckpointError
from miniflow.graph.saved.fields import record
from miniflow.serialization.atomic import checksum as file_checksum
from miniflow.serialization.atomic import replacing, sync, writing
from miniflow.serialization.states import GRAPH, parse

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

FORMAT, VERSION = "miniflow.graph", 1
WEIGHTS = "weights.safetensors"
NEXT = ".weights.safetensors.next"  # the weights of a graph.json that is about to be put in place
MAX_BYTES = 1 << 29  # of graph.json
READS, READS_UNCHANGED = 100, 3  # how often a folder is read while somebody writes to it
KEYS = (
    "format", "version", "checksum", "weights", "graph", "config", "numbers", "scaler", "schedules", "arguments",
    "results",
)  # fmt: skip

_writing: dict[str, threading.Lock] = {}  # a lock for each folder


# writing


def write_folder(folder: Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a graph to a folder, which is made if it does not exist; an older graph there is replaced at the end.

    Args:
        folder: its parent exists.
        document: the entries of `graph.json` but for the format, the version and the checksums.
        arrays: the weights by name.

    Raises:
        CheckpointError: if there is a file of that name.
        FileWriteError: if the folder cannot be written; it then is as it was before.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CheckpointError(f"save: {folder} is a file; expected the name of a folder for the graph")
    with _writing.setdefault(os.path.realpath(folder), threading.Lock()):
        is_new = not os.path.exists(folder)
        try:
            with writing("save", folder):
                folder.mkdir(exist_ok=True)
                with alone(folder):
                    write(folder, {"format": FORMAT, "version": VERSION, **document}, arrays)
        except BaseException:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise


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


# checksums


def checksum(document: dict[str, Any]) -> str:
    """SHA-256 of a document without its checksum."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


# reading


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a folder, whose contents are not yet checked, and the arrays that belong to it.

    While somebody saves another graph there, the files may be of two graphs: then they are read again.

    Raises:
        CheckpointError: for files that are missing, damaged, of another version, or of two graphs.
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


def read_document(folder: Path) -> dict[str, Any]:
    """The JSON object of a folder, of this version and undamaged; its contents are not yet checked."""
    path = folder / GRAPH
    try:
        source = read_file(path, MAX_BYTES).decode("utf-8")
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


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file; a pipe or a device is refused, which might never end.

    Raises:
        OSError: for what cannot be read.
        CheckpointError: for a file of more than `most` bytes, or more than there is memory for.
    """
    if path.exists() and not path.is_file():
        raise OSError(None, "it is not a regular file")
    size = path.stat().st_size
    try:
        if most is None or size <= most:
            return path.read_bytes()
    except MemoryError:
        pass
    raise CheckpointError(f"load: {path} has {size} bytes, which is too large to be read; restore an intact copy")


def read_weights(folder: Path, expected: Any) -> tuple[bytes | None, bool]:
    """The bytes of the file with this checksum, if there is one, and whether there is any file of weights."""
    found = False
    for name in (WEIGHTS, NEXT):
        with suppress(OSError):
            content = read_file(folder / name)
            found = True
            if hashlib.sha256(content).hexdigest() == expected:
                return content, True
    return None, found


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; refused if a key occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")
