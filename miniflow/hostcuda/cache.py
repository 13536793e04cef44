"""Files for generated code and machine code: one process writes them, and later ones find them.

Both lie in MINIFLOW_CACHE_DIR, or else in the user's cache folder. What lies there is executed, so the folder must be
the user's own, and nobody else may write to it, or replace it. Where that is not so, or nothing can be written, nothing
is kept; the first time, a warning says so. NUMBA_CACHE_DIR does not count for this package: numba reads it unchecked.
Beside the sources, where numba puts machine code by default, it would outlive `pip uninstall`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import threading
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm
from numba.core import caching, ccallback, dispatcher
from numba.core.bytecode import FunctionIdentity
from numba.core.runtime import _nrt_python

from miniflow.hostcuda.errors import CacheWarning

PACKAGE = str(Path(__file__).parents[1]) + os.sep
NOWHERE = Path(os.devnull)  # no file can lie in it
WARNED: list[str] = []


def base_folder() -> Path:
    """MINIFLOW_CACHE_DIR, or the folder `miniflow` in the user's cache folder."""
    if chosen := os.environ.get("MINIFLOW_CACHE_DIR"):
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "miniflow" if os.path.isabs(caches) else NOWHERE  # a user without a home


def cache_folder(name: str = "hostcuda") -> Path:
    """The folder of that name in the cache, made if it is missing; where there cannot be one, a folder in NOWHERE."""
    try:
        folder = base_folder() / name
        for part in (*reversed(folder.parents), folder):
            if not part.exists():
                part.mkdir(mode=0o700, exist_ok=True)
        trouble = why_unsafe(folder.resolve())
    except OSError as error:
        trouble = str(error)
    if trouble:
        warn_once(trouble)
        return NOWHERE / name
    return folder


def why_unsafe(folder: Path) -> str:
    """Why somebody else may have put files into a folder; "" if nobody can have."""
    if not hasattr(os, "getuid"):  # on Windows, the user's folders are the user's
        return ""
    status = folder.stat()
    if status.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {folder}: delete it"
    for parent in folder.parents:
        status = parent.stat()
        if status.st_uid not in (0, os.getuid()):
            return f"the owner of {parent} may replace what is in it"
        shared = stat.S_IWOTH if is_private(status.st_gid) else stat.S_IWGRP | stat.S_IWOTH
        if status.st_mode & shared and not status.st_mode & stat.S_ISVTX:
            return f"others may replace what is in {parent}"
    return ""


def is_private(group: int) -> bool:
    """Whether a group is the user's own: many systems make one for each user, of the same name, and let it write."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user and {user}.issuperset(entry.gr_mem)


def warn_once(trouble: str) -> None:
    """Say once in a process that code is compiled again in each."""
    if not WARNED:
        WARNED.append(trouble)
        warnings.warn(
            f"compiled kernels are not kept ({trouble}), so that each process compiles them again; "
            "MINIFLOW_CACHE_DIR names a folder of your own",
            CacheWarning,
            stacklevel=3,
        )


def keep(path: Path, text: str) -> str:
    """Write the text to its file, if that is possible: at once or not at all. Returns the text."""
    temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as error:
        warn_once(str(error))
        with suppress(OSError):
            temporary.unlink()
    return text


@cache
def package_digest(folder: Path = Path(__file__).parent) -> str:
    """A digest of this package, or of a wider one, so that a changed one does not find what the old one wrote."""
    return hashlib.sha256(b"".join(module.read_bytes() for module in sorted(folder.rglob("*.py")))).hexdigest()


@cache
def add_runtime_symbols() -> None:
    """Tell LLVM where the functions of numba's runtime are, which machine code calls: numba compiles others with it."""
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def number_functions() -> None:
    """Let numba number the functions of this process from a random number on, not from 1.

    Names of machine code end in these numbers. Closures of one definition have no other difference: of two that two
    processes compiled and kept, a third process would link the one for both, had they one number.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "little"))


class Locator(caching.InTreeCacheLocator):
    """Tells numba where it keeps the machine code of a function of ours."""

    def __init__(self, py_func: Any, py_file: str):
        super().__init__(py_func, py_file)
        self._cache_path = str(cache_folder(f"numba/{self.get_suitable_cache_subpath(py_file)}"))

    def get_source_stamp(self) -> Any:
        """Of functions of this package, a stamp of all its files, since they call each other."""
        stamp = super().get_source_stamp()
        return (stamp, package_digest()) if self._py_file.startswith(str(Path(__file__).parent)) else stamp

    def ensure_cache_path(self) -> None:
        """`cache_folder` made it; writing to it is not tried beforehand."""
        if NOWHERE in Path(self._cache_path).parents:
            raise FileNotFoundError(self._cache_path)


class MachineCode(caching.FunctionCache):
    """numba's cache of one function."""

    class _impl_class(caching.CompileResultCacheImpl):
        _locator_classes = (Locator,)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Without what numba prepares for compiling, which takes 0.2 s; where it compiles, it does so then."""
        add_runtime_symbols()
        return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """A disk that is full, or that cannot be written, costs a warning."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_once(str(error))


def cache_of(function: Any) -> Any:
    """The cache of a function compiled with cache=True; it takes the place of numba's FunctionCache."""
    path = function.__code__.co_filename
    if not path.startswith((PACKAGE, str(base_folder()), str(NOWHERE))):
        return caching.FunctionCache(function)
    try:
        return MachineCode(function)
    except RuntimeError:  # there is no such file, or no folder for it
        return caching.NullCache()


ccallback.FunctionCache = dispatcher.FunctionCache = cache_of
number_functions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=number_functions)
