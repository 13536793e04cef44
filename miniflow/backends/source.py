"""Generated modules. Files are named by a hash of all that a module depends on, so that later processes find them."""

from __future__ import annotations

import hashlib
import sys
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

import numba

from miniflow.hostcuda.cache import cache_folder, keep

DEPENDENCIES = (  # what generates the modules, and what they call: a change of any changes their names
    "backends/body.py", "backends/cpu/pointwise.py", "backends/cpu/scalars.py",
    "backends/cuda/pointwise.py", "formulas/gamma.py", "hostcuda/transcendental.py", "kernels/*.py",
    "formulas/scalar.py",
)  # fmt: skip


making = threading.RLock()


def module_of(name: str, text: str) -> ModuleType:
    """The module of a generated text, run once in a process.

    Args:
        name: of its file, without what the text depends on.
        text: Python.
    """
    identifier = f"miniflow_pointwise_{name}_{hashlib.sha256((text + versions()).encode()).hexdigest()[:20]}"
    with making:  # another thread may be at it
        return sys.modules.get(identifier) or execute(identifier, text)


def execute(identifier: str, text: str) -> ModuleType:
    """Write a module to a file and execute it."""
    path = cache_folder("pointwise") / f"{identifier}.py"
    if not path.exists():
        keep(path, text)
    module = ModuleType(identifier)
    module.__file__ = str(path)
    sys.modules[identifier] = module  # numba looks its globals up there
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[identifier]
        raise
    return module


@cache
def versions() -> str:
    """A digest of the files and packages that generated modules depend on."""
    folder = Path(__file__).parents[1]
    files = [path for pattern in DEPENDENCIES for path in sorted(folder.glob(pattern))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"{digest} {numba.__version__} {sys.version_info[:2]}"
