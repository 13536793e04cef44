"""The IDX format, in which MNIST and its relatives are published.

    offset  size  meaning
    0       2     zero
    2       1     type code of the elements
    3       1     number of dimensions n
    4       4 n   the sizes, big-endian unsigned 32-bit
    4+4n    rest  the elements in row-major order, big-endian

Source: "THE IDX FILE FORMAT" on the MNIST page of LeCun, Cortes and Burges.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib

import numpy as np

from miniflow.errors import DataError

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | os.PathLike) -> np.ndarray:
    """Read an IDX file, gzip-compressed or not: the contents decide, not the name.

    Args:
        path: the file.

    Returns:
        an array of the file's shape and element type, in the machine's byte order.

    Raises:
        DataError: if the file is missing, is not IDX, or is shorter or longer than its header says.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([0, 0, 0x08, 1]) + (3).to_bytes(4, "big") + bytes([7, 8, 9]))
    ...     file.flush()
    ...     read_idx(file.name)
    array([7, 8, 9], dtype=uint8)
    """
    data = _contents(path)
    dtype, shape = _header(path, data)
    start = 4 + 4 * len(shape)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) - start != expected:
        what = "truncated" if len(data) - start < expected else "has trailing bytes"
        raise DataError(
            f"read_idx: {path} {what}: got {len(data) - start} bytes of elements, expected {expected} "
            f"for shape {shape} of {dtype.name}; fetch the file again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _contents(path: str | os.PathLike) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise DataError(f"read_idx: cannot read {path}: {error.strerror}; expected an IDX file") from error
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"read_idx: {path} is a damaged gzip file ({error}); fetch the file again") from error


def _header(path: str | os.PathLike, data: bytes) -> tuple[np.dtype, tuple[int, ...]]:
    """The element type and the shape."""
    if len(data) < 4 or data[:2] != b"\0\0":
        magic = data[:4].hex() or "nothing"
        raise DataError(f"read_idx: {path} is not an IDX file: got magic number {magic}, expected two zero bytes first")
    code, ndim = data[2], data[3]
    if code not in DTYPES:
        known = ", ".join(f"0x{c:02x}" for c in DTYPES)
        raise DataError(f"read_idx: {path} has element type code 0x{code:02x}; expected one of {known}")
    if len(data) < 4 + 4 * ndim:
        raise DataError(
            f"read_idx: {path} truncated: got {len(data)} bytes, expected {4 + 4 * ndim} for {ndim} sizes alone"
        )
    if ndim > 32:
        raise DataError(f"read_idx: {path} has {ndim} dimensions; expected at most 32")
    return np.dtype(DTYPES[code]), struct.unpack_from(f">{ndim}I", data, 4)
