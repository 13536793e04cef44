"""Files that are written completely or not at all, and their checksums."""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from miniflow.errors import CheckpointError, FileWriteError

PIECE = 1 << 20  # bytes of a file that are read at a time
NUMBERS = itertools.count()


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Provide a temporary file next to `path`; when the block succeeds, that file replaces `path`.

    The data reaches the disk (fsync) before the name does (rename), so a crash at any moment leaves either the old file
    or the new one. When the block raises, the temporary file is removed and `path` is as before; those that processes
    left when they were killed are removed too. Every thread has a temporary file of its own. The permissions are those
    of the file that is replaced, or for a new one those that the umask gives, whatever the block sets.

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
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is there, and is no regular file")
    remove_drafts(target.parent)
    temporary = draft_of(target)
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


def draft_of(target: Path) -> Path:
    """A new name in the folder of `target`, for what will replace it, with the machine and the process that write."""
    return target.with_name(f".{target.name[:40]}.{platform.node()}-{os.getpid()}-{next(NUMBERS)}.tmp")


def remove_drafts(folder: Path) -> None:
    """Remove from a folder what processes of this machine that are dead were writing: files, or folders."""
    mine = re.compile(rf"\..*\.{re.escape(platform.node())}-(\d+)-\d+\.tmp")
    with suppress(OSError):  # the save itself will tell
        for path in folder.iterdir():
            match = mine.fullmatch(path.name)
            if match and is_dead(int(match[1])):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def is_dead(process: int) -> bool:
    """Whether there is no process of this number, on systems that tell."""
    if os.name == "posix":
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # that of another user
            return False
    return False


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """A block in which a folder exists, and its parents do. If it raises, those that were missing are removed again."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in missing:
            with suppress(OSError):  # another process has written there
                place.rmdir()
        raise


@contextmanager
def writing(op: str, path: str | os.PathLike) -> Iterator[None]:
    """A block that writes a file or a folder.

    Raises:
        FileWriteError: in place of an OSError, or what safetensors raises for it: with the path, and what to do.
    """
    try:
        yield
    except CheckpointError:  # which may be an OSError, and says itself which file it is
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error  # without the name of a temporary file
        raise FileWriteError(
            f"{op}: cannot write {path}: {reason}; expected room, and a folder that exists and may be written to"
        ) from error


def sync(path: Path) -> None:
    """Wait until the disk holds the contents of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: str | os.PathLike, algorithm: str = "sha256") -> str:
    """The SHA-256 of a file, or its MD5, in hexadecimal digits."""
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
