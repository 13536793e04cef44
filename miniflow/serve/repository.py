"""A model repository of NVIDIA Triton in OneFlow's layout.

    MODELS/
        resnet18/
            config.pbtxt    what Triton is told; one that is there already is left as it is
            1/              a version; the largest is served
                model/      what `flow.save(graph, folder)` wrote
                model.py    lets Triton's Python backend run it

Source: the documentation of https://github.com/Oneflow-Inc/serving.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from miniflow.errors import ArgumentError, CheckpointError, DeviceError, GraphError
from miniflow.graph.ir import Slot
from miniflow.graph.serialize import load_graph
from miniflow.serialization.atomic import made, writing
from miniflow.serialization.states import GRAPH, save
from miniflow.serve.config import CONFIG, DATATYPES, engine_of, message_class, read_config, write_config
from miniflow.serve.saved import SavedModel, check_servable

FAILURES = (ArgumentError, CheckpointError, DeviceError, GraphError, MemoryError)  # of preparing and loading a model
LARGEST_BATCH = 8  # of a graph that was saved with fewer rows
DELAY = 2000  # microseconds
MODEL = '''"""Lets Triton serve the graph in the folder `model` beside this file; `miniflow.serve.prepare` wrote it."""

from miniflow.serve.triton import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


def prepare(
    folder: str | os.PathLike,
    *,
    names: bool = False,
    max_batch_size: int | None = None,
    engines: Mapping[str, str] | None = None,
) -> list[Path]:
    """Make a model repository of a folder that holds folders of `flow.save(graph, folder)`, or of one such folder.

    A saved graph moves to `1/model` in its folder. Files that are there already are left as they are, so the call can
    be repeated.

    Args:
        folder: of models.
        names: whether inputs and outputs that have a name in the graph (arguments by name, keys of dicts) are called
            so; else INPUT_0, INPUT_1 ... and OUTPUT_0 ..., by position.
        max_batch_size: how many rows a batch may have; by default as many as the graph was saved with, or 8 if those
            are fewer and the graph can be run with more. 0: requests have the shapes of the saved graph.
        engines: name of a model -> "openvino" or "tensorrt", which runs it in place of the replay.

    Returns:
        the folders of the models; those that cannot be prepared are named on stderr, and left out.

    Raises:
        ArgumentError: if there is no model, or for an engine of none.
        CheckpointError, GraphError: if no graph can be loaded and served.
        FileWriteError: if no files can be written.

    >>> import miniflow as flow, tempfile
    >>> class Double(flow.nn.Graph):
    ...     def build(self, x):
    ...         return 2 * x
    >>> graph = Double()
    >>> _ = graph(flow.ones(4, 3))
    >>> with tempfile.TemporaryDirectory() as models:
    ...     flow.save(graph, models + "/double")
    ...     (model,) = prepare(models)
    ...     sorted(path.relative_to(model).as_posix() for path in model.rglob("*.*"))
    ['1/model.py', '1/model/graph.safetensors', 'config.pbtxt']
    """
    models, engines = {model.name: model for model in models_in(folder)}, engines or {}
    if not models:
        got = f"{folder} holds no models" if os.path.isdir(folder) else f"there is no folder {folder}"
        written = f'graph.save("{Path(folder, "NAME")}", serve=True) writes one'
        raise ArgumentError(f"serve: {got}; expected a folder of folders, one for each model: {written}")
    if engines.keys() - models.keys():
        raise ArgumentError(f"serve: got engines for {sorted(engines)}; expected names of the models {list(models)}")
    return each(lambda path: prepare_model(path, names, max_batch_size, engines.get(path.name)), list(models.values()))


def each(action: Callable[[Path], Any], models: Sequence[Path]) -> list[Any]:
    """What an action returns for each model. Those for which it fails are named on stderr, and left out.

    Raises:
        What the action raised for the last model, if it fails for all.
    """
    found, failures = [], []
    for model in models:
        try:
            found.append(action(model))
        except FAILURES as error:
            failures.append((model.name, error))
    for name, error in failures if found else failures[:-1]:
        print(f"serve: {name} cannot be loaded: {error}", file=sys.stderr)
    if not found:
        raise failures[-1][1]
    return found


def save_model(graph: Any, folder: str | os.PathLike, **options: Any) -> None:
    """Save a graph as the version of a model that is served, the first or the last; see `prepare`.

    A graph that cannot be served, or a folder that cannot be that of a model, is refused before anything is replaced.
    """
    folder = Path(folder).absolute()
    check_folder(folder)
    if models_in(folder) not in ([], [folder]):
        raise ArgumentError(f"serve: {folder} is a folder of models; expected one of a model, such as {folder}/NAME")
    version, draft = folder / str([1, *versions_of(folder)][-1]) / "model", folder / ".draft"
    with writing("save", folder), made(folder):
        try:
            save(graph, draft)
            check_servable(load_graph(draft))
            version.mkdir(parents=True, exist_ok=True)
            (draft / GRAPH).replace(version / GRAPH)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    prepare(folder, **options)


def check_folder(model: Path) -> None:
    """Refuse what cannot be the folder of a model."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", model.name):  # with others Triton ends, and all models with it
        raise ArgumentError(f"serve: got a model {model.name!r}; expected a name of ASCII letters, digits, _ . and -")
    if model.name == "model" and model.parent.name.isdecimal():
        raise ArgumentError(f"serve: got {model}, a version of a model; expected the folder {model.parents[1]}")


def models_in(folder: str | os.PathLike) -> list[Path]:
    """The folders of models in a folder, or the folder itself, if it is one of a model."""
    folder = Path(folder).absolute()
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    found = [path for path in places if (path / GRAPH).exists() or (path / CONFIG).exists() or versions_of(path)]
    return [folder] if folder in found else found


def versions_of(model: Path) -> list[int]:
    """The versions in the folder of a model that hold a graph, in order."""
    names = [path.parent.parent.name for path in model.glob(f"*/model/{GRAPH}")]
    return sorted(int(name) for name in names if name.isdecimal())


def prepare_model(model: Path, names: bool, max_batch_size: int | None, engine: str | None) -> Path:
    """Write what is missing in the folder of one model; see `prepare`."""
    check_folder(model)
    with writing("serve", model):
        if (model / GRAPH).exists():
            version = model / str(max(versions_of(model), default=0) + 1) / "model"
            version.mkdir(parents=True)
            (model / GRAPH).rename(version / GRAPH)
        versions = versions_of(model)
        if not versions:
            written = f'graph.save("{model}", serve=True) writes one'
            raise ArgumentError(f"serve: {model} has no version; expected a saved graph in {model}/1/model: {written}")
        if not (model / CONFIG).exists():
            saved = SavedModel(model / str(versions[-1]) / "model")
            write_config(model, config_of(saved, model.name, names, max_batch_size, engine))
        kept = read_config(model)
        if engine not in (None, engine_of(kept)) or max_batch_size not in (None, kept.max_batch_size):
            print(f"serve: {model.name} keeps its config.pbtxt, which decides, not the options", file=sys.stderr)
        for version in versions:
            path = model / str(version) / "model.py"
            if not path.exists():
                path.write_text(MODEL, encoding="utf-8")
    return model


def config_of(saved: SavedModel, name: str, names: bool, max_batch_size: int | None, engine: str | None) -> Any:
    """The config of a saved graph."""
    if max_batch_size is None:
        max_batch_size = max(saved.rows, min(LARGEST_BATCH, saved.most))
    saved.check_most(f"{name}: got", max_batch_size)

    def tensors(side: str, slots: Sequence[Slot], keys: Sequence[str]) -> list[dict[str, Any]]:
        alone = [key for key in keys if names and keys.count(key) == 1 and not key.isdecimal()]
        called = [key if key in alone else f"{side}_{i}" for i, key in enumerate(keys)]
        dims = [slot.shape[1:] if max_batch_size else slot.shape for slot in slots]  # Triton wants at least one
        return [{"name": called[i], "data_type": f"TYPE_{DATATYPES[slot.dtype]}", "dims": dims[i] or [1]}
                for i, slot in enumerate(slots)]  # fmt: skip

    return message_class()(
        backend="python",
        max_batch_size=max_batch_size,
        input=tensors("INPUT", saved.inputs, saved.arguments),
        output=tensors("OUTPUT", saved.outputs, saved.results),
        instance_group=[{"count": 1, "kind": "KIND_CPU" if saved.device.type == "cpu" else "KIND_GPU"}],
        dynamic_batching={"max_queue_delay_microseconds": DELAY} if max_batch_size else None,
        parameters=[{"key": "xrt", "value": {"string_value": engine}}] if engine else [],
    )
