"""Fetch a file, and check that it is the published one by its checksum where that is known."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.request
from pathlib import Path

from tqdm import tqdm

from miniflow.errors import DownloadError
from miniflow.serialization.atomic import checksum, replacing

CHUNK = 1 << 16  # bytes


def download(url: str, path: str | os.PathLike, digest: str | None = None, *, timeout: float = 30.0) -> Path:
    """Fetch `url` to `path` with a progress bar, unless `path` already has the right contents.

    The file appears under its name only when it is whole and its checksum is right.

    Args:
        url: where the file is.
        path: where it goes; missing folders are made.
        digest: the SHA-256 of the contents, 64 hexadecimal digits, or their MD5, 32 digits; without it, a file that is
            there is right, and one that arrives whole.
        timeout: seconds to wait for the server's next bytes.

    Returns:
        the path.

    Raises:
        DownloadError: without a network, for a file cut short, or for contents with another checksum; `path` is then
            unchanged.
    """
    path = Path(path)
    algorithm, name = ("md5", "MD5") if digest and len(digest) == 32 else ("sha256", "SHA-256")
    if path.is_file() and digest in (None, checksum(path, algorithm)):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                _copy(response, temporary, path.name)
            if digest is not None and (got := checksum(temporary, algorithm)) != digest:
                raise DownloadError(f"download: {url} has {name} {got}; expected {digest}: it is not the published one")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"download: could not fetch {url} to {path}: {reason or type(error).__name__}") from error
    return path


def _copy(response: http.client.HTTPResponse, path: Path, name: str) -> None:
    """Write the body to a file under a progress bar."""
    length = response.headers.get("Content-Length")
    total = int(length) if length else None
    with (
        open(path, "wb") as file,
        tqdm.wrapattr(file, "write", total, False, desc=name, unit="B", unit_scale=True) as shown,
    ):
        shutil.copyfileobj(response, shown, CHUNK)
    if total is not None and (received := path.stat().st_size) != total:
        raise DownloadError(f"download: {response.url} broke off: got {received} of {total} bytes; try again")
