"""The IDX reader: every element type, and every way in which a file can be broken."""

import gzip
import struct

import numpy as np
import pytest

from miniflow.errors import DataError
from miniflow.utils.data.idx import DTYPES, read_idx


def encode(array: np.ndarray) -> bytes:
    """The format written from its definition."""
    code = next(code for code, kind in DTYPES.items() if np.dtype(kind) == array.dtype.newbyteorder(">"))
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


GOOD = encode(np.arange(60, dtype=np.uint8).reshape(5, 4, 3))


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("shape", [(7,), (5, 4, 3), (0, 28, 28), ()])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["raw", "gzip"])
def test_reads_what_was_written(tmp_path, kind, shape, compress):
    array = np.random.default_rng(0).uniform(-100, 100, shape).astype(kind if kind != "u1" else "i1").astype(kind)
    (tmp_path / "file").write_bytes(compress(encode(array)))
    result = read_idx(tmp_path / "file")
    assert result.dtype == np.dtype(kind) and result.dtype.isnative and result.shape == shape
    np.testing.assert_array_equal(result, array)
    result[...] = 0  # fresh memory, which may be written


def test_type_codes_are_those_of_the_format():
    codes = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
    assert {code: np.dtype(kind).newbyteorder("=").name for code, kind in DTYPES.items()} == codes
    assert GOOD[:8] == bytes([0, 0, 8, 3, 0, 0, 0, 5])


BROKEN = {
    "empty": (b"", "requires a buffer of at least 4 bytes"),
    "three bytes": (b"\0\0\x08", "requires a buffer of at least 4 bytes"),
    "wrong magic": (b"\x01" + GOOD[1:], "begins with 01000803, which is not IDX"),
    "a picture": (b"\x89PNG\r\n\x1a\n", "which is not IDX"),
    "unknown type": (GOOD[:2] + b"\x0a" + GOOD[3:], "begins with 00000a03, which is not IDX"),
    "half a header": (GOOD[:10], "requires a buffer of at least 16 bytes"),
    "one byte short": (GOOD[:-1], "array of size 59 into shape (5,4,3)"),
    "header only": (GOOD[:16], "array of size 0 into shape (5,4,3)"),
    "one byte more": (GOOD + b"x", "array of size 61 into shape (5,4,3)"),
    "part of an element": (encode(np.arange(3.0)) + b"x", "must be a multiple of element size"),
    "too many sizes": (bytes([0, 0, 8, 200]) + bytes(900), "200"),
    "huge sizes": (bytes([0, 0, 8, 3]) + b"\xff" * 12, "cannot read"),
    "short gzip": (gzip.compress(GOOD)[:-9], "ended before"),
    "gzip with a flipped bit": (gzip.compress(GOOD)[:-5] + b"\0" + gzip.compress(GOOD)[-4:], "CRC check failed"),
    "gzip of something else": (gzip.compress(b"hello, world"), "begins with 68656c6c, which is not IDX"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_the_reason(tmp_path, name):
    contents, message = BROKEN[name]
    path = tmp_path / "broken-idx"
    path.write_bytes(contents)
    with pytest.raises(DataError) as caught:
        read_idx(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="cannot read .*nothing: .*No such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DataError, match="Is a directory"):
        read_idx(tmp_path)
