"""Files for generated code and machine code: one process writes them, and later ones find them.

Generated modules lie in the user's cache folder, and beside them numba's machine code. The machine code of this
package's own functions is kept in that folder too. Where numba puts it by default, beside the sources, it would outlive
`pip uninstall`. NUMBA_CACHE_DIR chooses another folder for it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from numba.core import caching

PACKAGE = str(Path(__file__).parents[1]) + os.sep


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


class PackageCacheLocator(caching.InTreeCacheLocator):
    """Tells numba where the machine code of this package's functions is kept: in the user's cache folder."""

    def __init__(self, py_func: Any, py_file: str):
        super().__init__(py_func, py_file)
        self._cache_path = str(cache_folder("numba") / self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> PackageCacheLocator | None:
        """The locator of a function; None for one that is not of this package."""
        return super().from_function(py_func, py_file) if py_file.startswith(PACKAGE) else None


caching.CompileResultCacheImpl._locator_classes.insert(1, PackageCacheLocator)  # after that of NUMBA_CACHE_DIR
