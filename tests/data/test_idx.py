"""The IDX reader: every element type, and every way in which a file can be broken."""

import gzip
import struct

import numpy as np
import pytest

from miniflow.data.idx import DTYPES, read_idx
from miniflow.errors import DataError


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
    "empty": (b"", "not an IDX file: got magic number nothing"),
    "three bytes": (b"\0\0\x08", "not an IDX file: got magic number 000008"),
    "wrong magic": (b"\x01" + GOOD[1:], "not an IDX file: got magic number 01000803"),
    "a picture": (b"\x89PNG\r\n\x1a\n", "not an IDX file"),
    "unknown type": (GOOD[:2] + b"\x0a" + GOOD[3:], "element type code 0x0a; expected one of 0x08, 0x09, 0x0b"),
    "half a header": (GOOD[:10], "truncated: got 10 bytes, expected 16 for 3 sizes"),
    "one byte short": (GOOD[:-1], "truncated: got 59 bytes of elements, expected 60 for shape (5, 4, 3) of uint8"),
    "header only": (GOOD[:16], "truncated: got 0 bytes"),
    "one byte more": (GOOD + b"x", "has trailing bytes: got 61 bytes of elements, expected 60"),
    "too many sizes": (bytes([0, 0, 8, 200]) + bytes(900), "200 dimensions; expected at most 32"),
    "huge sizes": (bytes([0, 0, 8, 3]) + b"\xff" * 12, "truncated: got 0 bytes of elements"),
    "short gzip": (gzip.compress(GOOD)[:-9], "damaged gzip file"),
    "gzip with a flipped bit": (gzip.compress(GOOD)[:-5] + b"\0" + gzip.compress(GOOD)[-4:], "damaged gzip file"),
    "gzip of something else": (gzip.compress(b"hello, world"), "not an IDX file: got magic number 68656c6c"),
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
    with pytest.raises(DataError, match="cannot read .*nothing: No such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DataError, match="Is a directory"):
        read_idx(tmp_path)
