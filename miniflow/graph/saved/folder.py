"""The folder of a graph: one file, `graph.safetensors`, which is replaced whole or not at all.

Its tensors are the values of states and constants, under readable names, so that any safetensors reader opens it. The
program and all else is a JSON object among the metadata, under `miniflow.graph`, and a checksum of both is beside it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from miniflow.errors import CheckpointError
from miniflow.serialization.atomic import writing
from miniflow.serialization.states import GRAPH, read_file, write_file

DOCUMENT, VERSION = "miniflow.graph", 2
OLDER = "graph.json"  # of version 1, beside weights.safetensors
MOST = 90 << 20  # characters of the document: safetensors reads no larger headers


def write_folder(folder: Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a graph to a folder, which is made if it does not exist; an older graph there is replaced at the end.

    Args:
        folder: its parent exists.
        document: the entries of the JSON object but for the version.
        arrays: the weights by name.

    Raises:
        CheckpointError: if there is a file of that name, or for a program of too many instructions.
        FileWriteError: if the folder cannot be written; it then is as it was before.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CheckpointError(f"save: {folder} is a file; expected the name of a folder for the graph")
    text = json.dumps({"version": VERSION, **document}, allow_nan=False)
    if len(text) > MOST:
        raise CheckpointError(f"save: the program takes {len(text)} characters; expected at most {MOST}")
    is_new = not os.path.exists(folder)
    try:
        with writing("save", folder):
            folder.mkdir(exist_ok=True)
        write_file(folder / GRAPH, arrays, {DOCUMENT: text})
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a folder, whose contents are not yet checked, and the arrays that belong to it.

    Raises:
        CheckpointError: for a file that is missing, damaged, or of another kind or version.
    """
    path = folder / GRAPH
    if not path.exists() and (folder / OLDER).exists():
        raise CheckpointError(
            f"load: {folder} has version 1, of {OLDER} and weights.safetensors; expected {GRAPH}: make the graph by "
            "its code and save it with this version of miniflow, or load it with the one that wrote it"
        )
    arrays, metadata = read_file(path)
    if metadata.keys() != {"format", DOCUMENT}:
        raise CheckpointError(f"load: {path} holds no graph; expected what flow.save(graph, folder) wrote")
    try:
        document = json.loads(metadata[DOCUMENT])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}; restore an intact copy") from error
    version = document.pop("version", None) if isinstance(document, dict) else None
    if version != VERSION:
        raise CheckpointError(
            f"load: {path} has version {version!r:.40}; expected {VERSION}: save it again with this version of "
            "miniflow, or load it with the one that wrote it"
        )
    return document, arrays
