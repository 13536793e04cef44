"""flow.save and flow.load: what goes in comes out, and every broken file is refused with the reason."""

import io
import json
import math
import os
import pickle
import struct
import zipfile
from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import miniflow as flow
from miniflow.dtype import ALL
from miniflow.errors import ArgumentError, CheckpointError
from miniflow.serialization.states import checksum


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.safetensors"


def round_trip(obj, path):
    flow.save(obj, path)
    return flow.load(path)


def assert_same(got, wanted):
    """Equality of values and of types, in containers, tensors and numbers."""
    assert type(got) is type(wanted)
    if isinstance(wanted, flow.Tensor):
        assert got.dtype is wanted.dtype and got.shape == wanted.shape and got.requires_grad == wanted.requires_grad
        assert got.detach().numpy().tobytes() == wanted.detach().numpy().tobytes()
    elif isinstance(wanted, np.ndarray):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()
    elif isinstance(wanted, dict):
        assert list(got) == list(wanted) and [type(key) for key in got] == [type(key) for key in wanted]
        for key in wanted:
            assert_same(got[key], wanted[key])
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_same(a, b)
    else:
        assert got == wanted or (got != got and wanted != wanted)


NESTED = [
    None,
    True,
    7,
    -(2**70),
    0.1,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    "",
    'quotes " and \\ and ünïcödé \U0001f600',
    [],
    {},
    (),
    [1, [2.5, (None, "x")], {"a": ()}],
    {"state": {0: {"step": 3, "lr": 1e-300}, 1: {}}, "groups": [{"betas": (0.9, 0.999), "params": [0, 1]}]},
    OrderedDict([("z", 1), ("a", OrderedDict())]),
    {1: "int", "1": "str", 1.5: "float", None: "none", (1, "x", (2,)): "tuple"},
    {False: "bool", 2: "int"},
    {"dict": 1, "tensor": "not a tensor", "float": "nan"},
    {"__metadata__": [1], "miniflow.structure": 2},
]


@pytest.mark.parametrize("obj", NESTED, ids=lambda obj: repr(obj)[:40])
def test_structure(path, obj):
    assert_same(round_trip(obj, path), obj)
    assert math.copysign(1, round_trip(-0.0, path)) == -1


KINDS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (2, 1, 3)])
def test_tensors_and_arrays_of_every_dtype(path, kind, shape):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 60, (*shape, 1)).astype(kind)[..., 0]
    obj = {"tensor": flow.from_numpy(array), "array": array, "list": [flow.from_numpy(array.copy())]}
    assert_same(round_trip(obj, path), obj)


def test_what_is_no_path_is_refused():
    for wrong in (None, 3):
        with pytest.raises(
            TypeError, match=f"^save: got a {type(wrong).__name__}; expected a path, or an object to wr"
        ):
            flow.save({}, wrong)
        with pytest.raises(
            TypeError, match=f"^load: got a {type(wrong).__name__}; expected a path, or an object to re"
        ):
            flow.load(wrong)


def test_values_that_comparisons_miss(path):
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    array[0] = np.frombuffer(b"\x01\x02\xc0\x7f", np.float32)[0]  # a NaN with a payload
    assert_same(round_trip(flow.from_numpy(array), path), flow.from_numpy(array))


def test_memory_that_is_not_contiguous(path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = {"t": base.T, "step": base[::2, ::-3], "broadcast": np.broadcast_to(base[0], (3, 6)), "column": base[:, 2]}
    loaded = round_trip({name: flow.from_numpy(view) for name, view in views.items()}, path)
    for name, view in views.items():
        np.testing.assert_array_equal(loaded[name].numpy(), view)
        assert loaded[name].is_contiguous()


def test_sizes_and_numpy_scalars(path):
    assert_same(round_trip([flow.Size((2, 3))], path), [flow.Size((2, 3))])
    assert_same(
        round_trip({np.int64(3): [np.float32(0.5), np.float64(0.25), np.bool_(True)]}, path), {3: [0.5, 0.25, True]}
    )


def test_loaded_tensors_are_leaves_in_fresh_writable_memory(path):
    weight = flow.tensor([1.0, 2.0], requires_grad=True)
    loaded = round_trip([weight, weight.detach()], path)
    assert loaded[0].requires_grad and loaded[0].is_leaf and not loaded[1].requires_grad
    loaded[0].detach().numpy()[0] = 9
    assert weight.tolist() == [1.0, 2.0] and loaded[1].tolist() == [1.0, 2.0]
    assert flow.load(path)[0].tolist() == [1.0, 2.0]


def test_shared_tensors_are_stored_once_and_shared_again(path):
    array = np.arange(1000, dtype=np.float32)
    tensor = flow.from_numpy(array)
    obj = {
        "a": tensor,
        "b": tensor,
        "c": tensor.detach(),
        "half": flow.from_numpy(array[:500]),
        "other": flow.from_numpy(array.copy()),
    }
    loaded = round_trip(obj, path)
    assert loaded["a"] is loaded["b"] and loaded["a"] is loaded["c"]
    assert loaded["a"] is not loaded["other"] and loaded["half"].shape == (500,)
    assert 4 * 2500 < path.stat().st_size < 4 * 2500 + 2000


def test_names_in_the_file_are_the_paths(path):
    one = flow.from_numpy(np.ones(2, np.float32))
    objs = [flow.from_numpy(np.full(2, i, np.float32)) for i in range(6)]
    obj = {
        "model": {"fc.weight": objs[0]},
        "model.fc.weight": objs[1],
        1: objs[2],
        "1": objs[3],
        "__metadata__": objs[4],
    }
    assert_same(round_trip(obj, path), obj)
    names = set(safetensors.numpy.load_file(path))
    assert names == {"model.fc.weight", "model.fc.weight#2", "1", "1#2", "__metadata__#2"}
    flow.save(one, path)
    assert list(safetensors.numpy.load_file(path)) == ["tensor"]


def test_reads_plain_safetensors(path):
    arrays = {"w": np.arange(6, dtype=np.float64).reshape(2, 3), "b": np.array([True, False])}
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
        loaded = flow.load(path)
        assert type(loaded) is dict and set(loaded) == set(arrays)
        for name in arrays:
            assert_same(loaded[name], flow.from_numpy(arrays[name]))


def test_map_location(path):
    flow.save({"w": flow.from_numpy(np.ones(3, np.float32))}, path)
    assert flow.load(path, map_location="cpu")["w"].device == flow.device("cpu")
    with pytest.raises(TypeError, match="map_location of type set; expected a device"):
        flow.load(path, map_location={1})


class Other:
    def __repr__(self):
        return "Other()"


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (Other(), "cannot save obj, a .*Other; expected numbers"),
        ({"a": [1, {"b": Other()}]}, r"cannot save obj\['a'\]\[1\]\['b'\], a "),
        ([{1, 2}], r"cannot save obj\[0\], a builtins.set"),
        (b"bytes", "a builtins.bytes"),
        (1j, "a builtins.complex"),
        ([Pair(1, 2)], r"obj\[0\], a .*Pair; expected .* plain dicts, lists and tuples"),
        ({"x": np.array(["a"])}, r"obj\['x'\], a numpy.ndarray; expected .*arrays of .*float32"),
        ({(1, (2, b"x")): 1}, "a builtins.bytes; expected"),
        ({"k": {Other: 1}}, r"obj\['k'\] has the key <class"),
    ],
    ids=repr,
)
def test_objects_that_cannot_be_saved(tmp_path, path, obj, words):
    flow.save({"old": 1}, path)
    with pytest.raises(CheckpointError, match=words):
        flow.save(obj, path)
    assert flow.load(path) == {"old": 1} and list(tmp_path.iterdir()) == [path]


def test_a_module_is_not_saved_but_its_state_is(path):
    module = flow.nn.Linear(3, 2)
    with pytest.raises(
        CheckpointError, match=r"cannot save obj\['net'\], a .*Linear: save its state, flow.save\(x.state_dict"
    ):
        flow.save({"net": module}, path)
    assert not path.exists()


def test_an_object_that_contains_itself(path):
    obj = {"a": []}
    obj["a"].append(obj)
    with pytest.raises(CheckpointError, match="the object contains itself, or is nested too deep"):
        flow.save(obj, path)
    shared = [1]
    assert round_trip([shared, shared], path) == [[1], [1]]
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(CheckpointError, match="nested too deep"):
        flow.save(deep, path)


def test_module_and_optimizer_state(path):
    flow.manual_seed(0)
    model = flow.nn.Sequential(flow.nn.Linear(4, 3), flow.nn.BatchNorm1d(3), flow.nn.Linear(3, 2))
    optimizer = flow.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.9))
    for _ in range(3):
        optimizer.zero_grad()
        model(flow.randn(5, 4)).sum().backward()
        optimizer.step()
    loaded = round_trip({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    assert_same(loaded["model"], model.state_dict())
    assert_same(loaded["optimizer"], optimizer.state_dict())
    other = flow.nn.Sequential(flow.nn.Linear(4, 3), flow.nn.BatchNorm1d(3), flow.nn.Linear(3, 2))
    other.load_state_dict(loaded["model"])
    restored = flow.optim.Adam(other.parameters(), lr=1.0)
    restored.load_state_dict(loaded["optimizer"])
    x = flow.randn(5, 4)
    for network, stepper in ((model, optimizer), (other, restored)):
        stepper.zero_grad()
        network(x).sum().backward()
        stepper.step()
    assert_same(other.state_dict(), model.state_dict())


def test_tied_weights_of_a_module_are_stored_once(path):
    first, second = flow.nn.Linear(50, 50, bias=False), flow.nn.Linear(50, 50, bias=False)
    second.weight = first.weight
    flow.save(flow.nn.Sequential(first, second).state_dict(), path)
    assert path.stat().st_size < 1.5 * 4 * 2500


# files


def good_file(path) -> bytes:
    flow.save({"w": flow.from_numpy(np.arange(100, dtype=np.float32)), "epoch": 1}, path)
    return path.read_bytes()


def header(text: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + data


def with_structure(structure: str) -> bytes:
    arrays, metadata = {"w": np.zeros(1, np.float32)}, {"miniflow.structure": structure}
    metadata["miniflow.crc32"] = checksum(arrays, metadata)
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    return header(json.dumps({"__metadata__": metadata, "w": entry}).encode(), bytes(4))


HUGE = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
OVERFLOW = json.dumps({"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}).encode()
NOTHING = json.dumps({"w": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}).encode()
HOSTILE = {
    "empty": (b"", "not an intact safetensors file"),
    "text": (b"hello, I am a text file, not a checkpoint", "not an intact safetensors file"),
    "header of 2^63 bytes": (struct.pack("<Q", 2**63) + b"{}", "not an intact safetensors file"),
    "header longer than the file": (struct.pack("<Q", 1 << 26) + b"{}", "not an intact safetensors file"),
    "header is a list": (header(b"[]"), "not an intact safetensors file"),
    "header is not JSON": (header(b"{]"), "not an intact safetensors file"),
    "data beyond the end": (header(HUGE, bytes(64)), "not an intact safetensors file"),
    "sizes that overflow": (header(OVERFLOW, bytes(4)), "not an intact safetensors file"),
    "sizes that no array can have": (header(NOTHING), "not an intact safetensors file"),
    "trailing bytes": (header(b"{}", b"more"), "not an intact safetensors file"),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "written by something else"),
    "structure is not JSON": (with_structure("{"), "structure in .* is damaged .JSONDecodeError"),
    "unknown tag": (with_structure('{"reduce": "os.system"}'), "is damaged .KeyError"),
    "tag on a real tensor": (with_structure('{"object": "w"}'), "is damaged .ValueError: unknown tag 'object'"),
    "two tags": (with_structure('{"dict": [], "tuple": []}'), "is damaged .ValueError"),
    "tensor that is not there": (with_structure('{"tensor": "v"}'), "is damaged .KeyError: 'v'"),
    "key that is a list": (with_structure('{"dict": [[[1], 2]]}'), "is damaged .TypeError"),
    "pair of three": (with_structure('{"dict": [[1, 2, 3]]}'), "is damaged .ValueError"),
    "no pairs": (with_structure('{"dict": 3}'), "is damaged .TypeError"),
    "unknown float": (with_structure('{"float": "pi"}'), "is damaged .KeyError"),
    "nested too deep": (with_structure("[" * 100_000 + "]" * 100_000), "is damaged .RecursionError"),
    "unsupported dtype": (
        header(b'{"w":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}}', bytes(8)),
        "tensor 'w' in .* has dtype uint64; expected one of .*float32",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_foreign_files(path, name):
    contents, words = HOSTILE[name]
    path.write_bytes(contents)
    with pytest.raises(CheckpointError, match=words) as caught:
        flow.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_truncated_files(path, keep):
    contents = good_file(path)
    path.write_bytes(contents[: int(len(contents) * keep)])
    with pytest.raises(CheckpointError, match="not an intact safetensors file.*cut short"):
        flow.load(path)


@pytest.mark.parametrize("byte", range(0, 800, 37))
def test_a_flipped_bit_is_refused(path, byte):
    contents = bytearray(good_file(path))
    place = byte * len(contents) // 800
    contents[place] ^= 1 << byte % 8
    path.write_bytes(contents)
    with pytest.raises(CheckpointError, match="not an intact safetensors file|is damaged"):
        flow.load(path)


def test_a_checksum_of_another_name_is_refused(path):
    contents = good_file(path)
    start = contents.index(b"miniflow.crc32")
    for place in range(start, start + len(b"miniflow.crc32")):
        path.write_bytes(contents[:place] + bytes([contents[place] ^ 1]) + contents[place + 1 :])
        with pytest.raises(CheckpointError, match="is damaged: its checksum is lost; restore an intact copy"):
            flow.load(path)


def test_every_dtype_has_a_checksum(path):
    tensors = {t.name: flow.ones(3).to(t) for t in ALL} | {"empty": flow.zeros(0, 3), "scalar": flow.tensor(1.0)}
    flow.save(tensors, path)
    contents = bytearray(path.read_bytes())
    assert set(flow.load(path)) == set(tensors)
    start = 8 + struct.unpack("<Q", contents[:8])[0]
    for place in range(start, len(contents)):
        path.write_bytes(contents[:place] + bytes([contents[place] ^ 1]) + contents[place + 1 :])
        with pytest.raises(CheckpointError, match="is damaged: its checksum is wrong; restore an intact copy"):
            flow.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused(path):
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        flow.load(path)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask_and_those_of_an_older_file_stay(path, umask):
    before = os.umask(umask)
    try:
        flow.save(flow.ones(2), path)
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask
        path.chmod(0o640)
        flow.save(flow.ones(3), path)
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_pickles_and_zips_are_named_and_never_run(path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(path) + ".ran",)

    for protocol in (2, 4, 5):
        path.write_bytes(pickle.dumps({"x": Bomb()}, protocol=protocol))
        with pytest.raises(CheckpointError, match="is a pickle, as torch.save.*safetensors.torch.save_file"):
            flow.load(path)
    assert not os.path.exists(str(path) + ".ran")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="zip archive, as torch.save.*safetensors.torch.save_file"):
        flow.load(path)


@pytest.mark.parametrize("size", [0x80, 0x8B1F, 0x4B50])
def test_a_header_whose_length_looks_like_another_format(path, size):
    """The first bytes of a safetensors file are a length, which may be any number."""
    text = b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    path.write_bytes(header(text + b" " * (size - len(text)), b"\x01\x02"))
    assert flow.load(path)["w"].tolist() == [1, 2]


def test_missing_file_directory_and_no_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="cannot read .*nothing: No such file"):
        flow.load(tmp_path / "nothing")
    error = f"load: {tmp_path} is a folder without graph.safetensors; expected a file, or a folder that .* wrote$"
    with pytest.raises(CheckpointError, match=error):
        flow.load(tmp_path)
    with pytest.raises(CheckpointError, match="cannot write .*: .*directory"):
        flow.save(1, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match="cannot write .*missing"):
        flow.save(1, tmp_path / "missing" / "file")


def test_a_str_is_a_path(tmp_path):
    flow.save([1], str(tmp_path / "x"))
    assert flow.load(str(tmp_path / "x")) == [1]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, path, monkeypatch):
    flow.save("old", path)

    def half(arrays, filename, metadata):
        filename.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", half)
    with pytest.raises(CheckpointError, match="cannot write .*No space left"):
        flow.save("new", path)
    assert flow.load(path) == "old" and list(tmp_path.iterdir()) == [path]


def test_a_failed_load_leaves_the_model_untouched(path):
    model = flow.nn.Linear(3, 2)
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    flow.save(model.state_dict(), path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError):
        model.load_state_dict(flow.load(path))
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_ranks_of_oneflow(tmp_path):
    path = tmp_path / "weights"
    flow.save({"w": flow.ones(2)}, path, global_dst_rank=0, save_as_external_data=True)
    assert flow.load(path, global_src_rank=0, support_pytorch_format=True)["w"].tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="save: got global_dst_rank=1; expected None or a rank below 1"):
        flow.save({}, path, global_dst_rank=1)
    with pytest.raises(ArgumentError, match="load: got global_src_rank=3; expected None or a rank below 1"):
        flow.load(path, global_src_rank=3)


def test_objects_that_are_written_to_and_read_from(tmp_path):
    state = {"w": flow.arange(3), "n": [1, "text"]}
    buffer = io.BytesIO()
    flow.save(state, buffer)
    buffer.seek(0)
    assert flow.load(buffer)["w"].tolist() == [0, 1, 2]
    with open(tmp_path / "state", "wb") as file:
        flow.save(state, file)
    assert flow.load(tmp_path / "state")["n"] == [1, "text"]
    with pytest.raises(CheckpointError, match="cannot be read|damaged|truncated"):
        flow.load(io.BytesIO(buffer.getvalue()[:-3]))


def test_devices_are_mapped_by_a_dict(tmp_path):
    flow.save({"a": flow.ones(2, device="cuda"), "b": flow.ones(2)}, tmp_path / "state")
    for location in ({"cuda:0": "cpu"}, {"cuda": "cpu"}):
        assert {x.device for x in flow.load(tmp_path / "state", location).values()} == {flow.device("cpu")}
    found = flow.load(tmp_path / "state", {"cpu": "cuda"})
    assert {x.device for x in found.values()} == {flow.device("cuda:0")}


def test_devices_are_chosen_by_a_function_or_a_placement(tmp_path):
    flow.save({"a": flow.ones(2, device="cuda"), "b": flow.ones(2)}, tmp_path / "state")
    seen = []
    found = flow.load(tmp_path / "state", lambda storage, location: seen.append(location) or storage)
    assert seen == ["cuda:0", "cpu"] and {x.device.type for x in found.values()} == {"cpu"}
    found = flow.load(tmp_path / "state", lambda storage, location: None)
    assert [str(x.device) for x in found.values()] == ["cuda:0", "cpu"]
    found = flow.load(tmp_path / "state", flow.placement.all("cpu"))
    assert all(x.is_global and x.numpy().tolist() == [1, 1] for x in found.values())
