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
import os
import struct
import zlib
from pathlib import Path

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
    try:
        data = Path(path).read_bytes()
        data = gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
        zero, code, ndim = struct.unpack_from(">HBB", data)
        if zero or code not in DTYPES:
            raise ValueError(f"it begins with {data[:4].hex()}, which is not IDX")
        shape = struct.unpack_from(f">{ndim}I", data, 4)
        elements = np.frombuffer(data, DTYPES[code], offset=4 + 4 * ndim)
        return elements.reshape(shape).astype(elements.dtype.newbyteorder("="))
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise DataError(f"read_idx: cannot read {path}: {error}; expected a whole IDX file: fetch it again") from error
