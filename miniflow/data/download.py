"""Fetch a file whose contents are known beforehand by their SHA-256."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.request
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from miniflow.atomic import checksum, replacing
from miniflow.errors import DownloadError

CHUNK = 1 << 16  # bytes
MOST = 1 << 30  # bytes of a file


def download(url: str, path: str | os.PathLike, sha256: str, *, timeout: float = 30.0, limit: float = 600.0) -> Path:
    """Fetch `url` to `path` with a progress bar, unless `path` already has the right contents.

    The file appears under its name only when it is whole and its checksum is right.

    Args:
        url: where the file is.
        path: where it goes; missing folders are made.
        sha256: the SHA-256 of the contents, 64 hexadecimal digits.
        timeout: seconds to wait for the server's next bytes.
        limit: seconds for the whole file.

    Returns:
        the path.

    Raises:
        DownloadError: without a network, for a file cut short, above 1 GB or later than `limit`, or for contents with
            another checksum; `path` is then unchanged.
    """
    path = Path(path)
    if path.is_file() and checksum(path) == sha256:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            with urllib.request.urlopen(url, timeout=timeout) as response, open(temporary, "wb") as file:
                got = _copy(response, file, path.name, limit)
            if got != sha256:
                raise DownloadError(
                    f"download: {url} has SHA-256 {got}; expected {sha256}: that is not the published file"
                )
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"download: could not fetch {url} to {path}: {reason or type(error).__name__}") from error
    return path


def _copy(response: http.client.HTTPResponse, file: BinaryIO, name: str, limit: float) -> str:
    """Copy the body under a progress bar and return its SHA-256."""
    length = response.headers.get("Content-Length")
    total = int(length) if length else None
    digest, received, start = hashlib.sha256(), 0, time.monotonic()
    with tqdm(total=total, unit="B", unit_scale=True, desc=name) as bar:
        while chunk := response.read1(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            bar.update(len(chunk))
            if received > MOST or time.monotonic() - start > limit:
                raise DownloadError(
                    f"download: {response.url} is too large or too slow: got {received} bytes; expected at most {MOST} "
                    f"bytes in {limit:g} s"
                )
    if total is not None and received != total:
        raise DownloadError(f"download: {response.url} broke off: got {received} of {total} bytes; try again")
    return digest.hexdigest()
