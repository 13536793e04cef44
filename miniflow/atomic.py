"""Files that are written completely or not at all, and their checksums."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PIECE = 1 << 20  # bytes of a file that are read at a time


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Provide a temporary file next to `path`; when the block succeeds, that file replaces `path`.

    The data reaches the disk (fsync) before the name does (rename), so a crash at any moment leaves either the old file
    or the new one. When the block raises, the temporary file is removed and `path` is as before. Every thread has a
    temporary file of its own. The permissions are those of the file that is replaced, or for a new one those that the
    umask gives, whatever the block sets.

    Args:
        path: where the file will be; a symbolic link is followed and stays.

    Yields:
        the path of the temporary file, which the block must write.

    Raises:
        OSError: if the folder does not exist, is not writable, or the disk is full.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "answer.txt"
    ...     with replacing(target) as temporary:
    ...         _ = temporary.write_text("42")
    ...     target.read_text(), len(list(Path(folder).iterdir()))
    ('42', 1)
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.touch()
        mode = (target if target.exists() else temporary).stat().st_mode
        temporary.unlink()
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))
        sync(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        sync(target.parent)


def sync(path: Path) -> None:
    """Wait until the disk holds the contents of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest()
