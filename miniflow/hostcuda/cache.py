"""Files for generated code: one process writes a module, later ones find it, and beside it numba's machine code."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder(name: str = "hostcuda") -> Path:
    """Where generated modules are kept: MINIFLOW_CACHE_DIR, or the user's cache folder, or a temporary one.

    Args:
        name: of the folder within it.
    """
    chosen = os.environ.get("MINIFLOW_CACHE_DIR")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "miniflow"
    for folder in (base / name, Path(tempfile.gettempdir()) / f"miniflow-{os.getuid()}" / name):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    raise OSError("no folder for compiled kernels can be written to: set MINIFLOW_CACHE_DIR")


def keep(path: Path, text: str) -> str:
    """Write the text to its file, so that it appears at once or not at all; returns the text."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)
    return text
