"""Broken and hostile files: an OnnxError that says what is wrong, and no file outside of the model's folder is opened.

MINIFLOW_FUZZ_SECONDS=900 lets the fuzz test run for so long.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto
from onnx import helper as h

import miniflow as flow
from miniflow.onnx.loader.reader import array_of

OPSETS = [h.make_opsetid("", 17)]
WITH_MINE = [*OPSETS, h.make_opsetid("mine", 1)]
WITH_ML = [*OPSETS, h.make_opsetid("ai.onnx.ml", 1)]


def info(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, shape or [2, 3])


def model_of(nodes: list, inputs: tuple = ("x",), outputs: tuple = ("y",), **rest) -> ModelProto:
    """A model of these nodes on tensors of shape (2, 3)."""
    functions, opsets = rest.pop("functions", []), rest.pop("opsets", OPSETS)
    graph = h.make_graph(nodes, "main", [info(x) for x in inputs], [info(y) for y in outputs], **rest)
    return h.make_model(graph, ir_version=8, opset_imports=opsets, functions=functions)


def relu(x: str = "x", y: str = "y", name: str = "relu") -> onnx.NodeProto:
    return h.make_node("Relu", [x], [y], name)


def with_weight(**fields) -> ModelProto:
    """x + w, with fields of the tensor w changed."""
    w = onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    for name, value in fields.items():
        if name == "dims":
            w.ClearField("dims")
            w.dims.extend(value)
        else:
            setattr(w, name, value)
    return model_of([h.make_node("Add", ["x", "w"], ["y"], "add")], initializer=[w])


def with_function(calls: dict[str, list[str]]) -> ModelProto:
    """Calls the function f; each function calls others in a row, or computes Relu."""
    domain, opsets = "mine", WITH_MINE
    functions = []
    for name, called in calls.items():
        names = ["x", *[f"t{i}" for i in range(len(called) - 1)], "y"]
        nodes = [h.make_node(f, [names[i]], [names[i + 1]], domain=domain) for i, f in enumerate(called)] or [relu()]
        functions.append(h.make_function(domain, name, ["x"], ["y"], nodes, opsets))
    return model_of([h.make_node("f", ["x"], ["y"], "call", domain=domain)], functions=functions, opsets=opsets)


def nested(depth: int) -> ModelProto:
    graph = h.make_graph([relu("x", "y0")], "inner", [], [info("y0")])
    for i in range(1, depth):
        node = h.make_node("If", ["c"], [f"y{i}"], f"if{i}", then_branch=graph, else_branch=graph_of(i))
        graph = h.make_graph([node], f"depth{i}", [], [info(f"y{i}")])
    model = model_of([], outputs=())
    model.graph.CopyFrom(graph)
    model.graph.input.extend([info("x"), h.make_tensor_value_info("c", TensorProto.BOOL, [])])
    return model


def graph_of(i: int) -> GraphProto:
    return h.make_graph([relu("x", f"e{i}")], "else", [], [info(f"e{i}")])


def changed(model: ModelProto, **fields) -> ModelProto:
    for name, value in fields.items():
        setattr(model, name, value)
    return model


BIG = [2**31, 2**31]
BROKEN = {  # name -> (model, what the message says)
    "cyclic": (model_of([relu("b", "a", "first"), relu("a", "b", "second")], outputs=("a",)), "sorted.*'b'.*first"),
    "out_of_order": (model_of([relu("a", "y", "second"), relu("x", "a", "first")]), "sorted.*'a'.*second"),
    "missing_input": (model_of([h.make_node("Add", ["x", "nowhere"], ["y"], "add")]), "'nowhere'.*add"),
    "missing_output": (model_of([relu()], outputs=("y", "nowhere")), "nowhere"),
    "two_values_of_a_name": (model_of([relu(), relu()]), "SSA.*'y'"),
    "initializer_twice": (
        model_of([relu()], initializer=[*with_weight().graph.initializer] * 2), "initializer 'w' is there twice"),
    "too_few_inputs": (model_of([h.make_node("Add", ["x"], ["y"], "add")]), "add.*input size 1"),
    "unknown_operator": (model_of([h.make_node("Rleu", ["x"], ["y"], "r")]), "Rleu"),
    "unknown_domain": (
        model_of([h.make_node("F", ["x"], ["y"], "r", domain="ai.onnx.ml")], opsets=WITH_ML), "No Op registered for F"),
    "own_domain": (
        model_of([h.make_node("F", ["x"], ["y"], "r", domain="mine")], opsets=WITH_MINE),
        "not supported: F of the domain 'mine'.*F \"r\""),
    "wrong_attribute_type": (model_of([h.make_node("Softmax", ["x"], ["y"], "s", axis="first")]), "type in 's : axis'"),
    "unknown_attribute": (model_of([h.make_node("Relu", ["x"], ["y"], "r", slope=0.1)]), "slope.*r"),
    "no_opset": (model_of([relu()], opsets=[]), "opset"),
    "old_opset": (
        model_of([h.make_node("Add", ["x", "x"], ["y"], axis=1), relu()], opsets=[h.make_opsetid("", 6)]),
        "opset 6; expected 7 to .*version_converter"),
    "opset_0": (model_of([relu()], opsets=[h.make_opsetid("", 0)]), "opset 0; expected 7 to"),
    "new_opset": (model_of([relu()], opsets=[h.make_opsetid("", 999)]), "opset 999; expected 7 to"),
    "new_ir": (changed(model_of([relu()]), ir_version=1000), "ir_version"),
    "function_calls_itself": (with_function({"f": ["f"]}), "recurs"),
    "functions_call_each_other": (with_function({"f": ["g", "g"], "g": ["f", "f"]}), "recurs"),
    "missing_function": (with_function({"f": ["g"]}), "not supported: g of the domain 'mine'"),
    "function_twice": (changed_functions := with_function({"f": []}), "implementation id|same"),
    "many_calls": (
        with_function({**{"f" if i == 0 else f"f{i}": [f"f{i + 1}"] * 2 for i in range(40)}, "f40": []}),
        "nodes; expected at most 500000"),
    "fewer_values": (with_weight(raw_data=b"1234"), "tensor 'w': got 4 bytes for FLOAT .2, 3.; expected 24"),
    "huge_shape": (with_weight(dims=BIG), f"tensor 'w': got the shape .{BIG[0]}"),
    "large_shape": (with_weight(dims=[2**20, 2**20]), "tensor 'w': got 24 bytes.*expected 4398046511104"),
    "negative_shape": (with_weight(dims=[-2, -3]), "tensor 'w': got the shape"),
    "many_dims": (with_weight(dims=[1] * 100), "tensor 'w': got the shape"),
    "unknown_element_type": (with_weight(data_type=200), "tensor 'w': the model is broken: .*200"),
    "undefined_element_type": (with_weight(data_type=0), "tensor 'w'"),
    "strings_as_bytes": (with_weight(data_type=TensorProto.STRING), "tensor 'w'"),
}  # fmt: skip
changed_functions.functions.append(changed_functions.functions[0])


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_refused(name, tmp_path):
    model, words = BROKEN[name]
    with pytest.raises(flow.onnx.OnnxError, match=f"(?s){words}"):
        flow.onnx.load(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flow.onnx.OnnxError):
        flow.onnx.load(tmp_path / "model.onnx")


def test_all_unsupported_operators_are_listed_with_their_nodes():
    nodes = [h.make_node("Foo", ["x"], [f"a{i}"], f"foo{i}", domain="mine") for i in range(5)]
    nodes += [
        h.make_node("SequenceConstruct", ["x"], ["s"], "make"),
        h.make_node("Bar", ["x"], ["y"], "bar", domain="mine"),
    ]
    with pytest.raises(flow.onnx.OnnxError) as caught:
        flow.onnx.load(model_of(nodes, opsets=WITH_MINE))
    for words in (
        """Foo of the domain 'mine', opset 1 (Foo "foo0", Foo "foo1", Foo "foo2" and 2 more)""",
        """Bar of the domain 'mine', opset 1 (Bar "bar")""",
        """SequenceConstruct, sequences are not supported (SequenceConstruct "make")""",
    ):
        assert words in str(caught.value)


def test_sparse_initializers_are_refused():
    model = model_of([relu()])
    values = h.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    model.graph.sparse_initializer.append(h.make_sparse_tensor(values, h.make_tensor("i", 7, [1], [2]), [10]))
    with pytest.raises(flow.onnx.OnnxError, match="sparse initializers"):
        flow.onnx.load(model)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files_are_refused(keep, tmp_path):
    data = with_weight(name="w" * 10).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(flow.onnx.OnnxError):
        flow.onnx.load(path)
    with pytest.raises(flow.onnx.OnnxError):
        flow.onnx.load(path.read_bytes())


def test_files_that_are_no_models():
    with pytest.raises(flow.onnx.OnnxError, match="not a model of ONNX"):
        flow.onnx.load(b"\x89PNG\r\n\x1a\n and more")


def message(number: int, data: bytes) -> bytes:
    """A field of the wire format that holds a message."""
    size, varint = len(data), b""
    while True:
        size, low = size >> 7, size & 127
        varint += bytes([low | 128 * (size > 0)])
        if not size:
            return bytes([number << 3 | 2]) + varint + data


@pytest.mark.parametrize("depth", [50, 5000])
def test_deep_nesting_is_refused(depth):
    graph = b""
    for _ in range(depth):
        attribute = message(1, b"then_branch") + message(6, graph) + bytes([20 << 3, 1, 5])
        graph = message(1, message(4, b"If") + message(5, attribute))
    with pytest.raises(flow.onnx.OnnxError, match="not a model of ONNX"):
        flow.onnx.load(message(7, graph))


UNREADABLE = {  # what the path leads to -> what the message says
    "missing": "No such file",
    "folder": "not a plain file",
    "plain/below": "Not a directory",
    "loop": "symbolic links",
    "a" * 5000: "File name too long",
    "nul\0": "null byte",
    "empty": "not a model|ir_version",
    "3GB": "3,000,000,000 bytes; expected less than 2 GB",
    "1TB": "1,099,511,627,776 bytes; expected less than 2 GB",
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("kind", [str, Path])
def test_files_that_cannot_be_read(kind, name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for file, size in {"plain": 9, "empty": 0, "3GB": 3 * 10**9, "1TB": 2**40}.items():
        (tmp_path / file).touch()
        os.truncate(tmp_path / file, size)  # holes, which take no space
    with pytest.raises(flow.onnx.OnnxError, match=f"({UNREADABLE[name]}).*in the file '.*/{re.escape(repr(name)[1:])}"):
        flow.onnx.load(kind(tmp_path / name))


def without(*fields: str, model: ModelProto | None = None) -> ModelProto:
    """A model without these fields."""
    model = model or with_weight()
    for path in fields:
        message, (*path, last) = model, path.split(".")
        for name in path:
            message = getattr(message, name) if not name.isdigit() else message[int(name)]
        message.ClearField(last)
    return model


def with_metadata_twice() -> ModelProto:
    model = with_weight()
    for value in "ab":
        model.metadata_props.add(key="author", value=value)
    return model


def with_other_domain() -> ModelProto:
    model = with_weight()
    model.graph.node[0].domain = "ai.onnx"
    return model


UNUSUAL = {  # what the specification asks for, and onnxruntime does not
    "outputs without a shape": without("graph.output.0.type.tensor_type.shape"),
    "outputs without a type": without("graph.output.0.type"),
    "inputs without a shape": without("graph.input.0.type.tensor_type.shape"),
    "no shape at all": without("graph.input.0.type.tensor_type.shape", "graph.output.0.type.tensor_type.shape"),
    "a graph without a name": without("graph.name"),
    "one key of metadata twice": with_metadata_twice(),
    "the long name of the default domain": with_other_domain(),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_onnxruntime_runs_is_loaded(name):
    model = UNUSUAL[name]
    ort, x = pytest.importorskip("onnxruntime"), VALUES - 2
    (expected,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    module = flow.onnx.load(model)
    np.testing.assert_array_equal(module(x).numpy(), expected)
    assert [v.type for v in module.model.graph.output] == [v.type for v in model.graph.output]  # as it was


@pytest.mark.parametrize("field", ["type", "type.tensor_type.elem_type"])
def test_inputs_without_an_element_type_are_named(field):
    with pytest.raises(flow.onnx.OnnxError, match="'x' has no element type"):
        flow.onnx.load(without(f"graph.input.0.{field}"))


# external data


def external(folder: Path, location: str, *, name: str = "model.onnx", **entries) -> Path:
    """A model of x + w, with w in another file."""
    model = with_weight()
    (w,) = model.graph.initializer
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        w.external_data.add(key=key, value=str(value))
    (folder / name).write_bytes(model.SerializeToString())
    return folder / name


VALUES = np.arange(6, dtype="<f4").reshape(2, 3)


@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin", "./weights.bin"])
def test_external_data_is_read(location, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / location).write_bytes(b"1234" + VALUES.tobytes())
    module = flow.onnx.load(external(tmp_path, location, offset=4, length=24))
    np.testing.assert_array_equal(module.w.numpy(), VALUES)


def test_external_data_with_a_link_inside_of_the_folder(tmp_path):
    (tmp_path / "weights.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "link.bin").symlink_to("weights.bin")
    np.testing.assert_array_equal(flow.onnx.load(external(tmp_path, "link.bin")).w.numpy(), VALUES)


@pytest.fixture
def folders(tmp_path):
    """A folder for a model, with links and devices in it, and a file outside."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.bin").write_bytes(VALUES.tobytes())
    (inside / "weights.bin").write_bytes(VALUES.tobytes())
    (inside / "file_link").symlink_to(tmp_path / "outside.bin")
    (inside / "folder_link").symlink_to(tmp_path)
    (inside / "loop").symlink_to("loop")
    os.mkfifo(inside / "pipe")
    (inside / "empty").touch()
    return inside


OUTSIDE = {
    "../outside.bin": "outside of the model's folder",
    "sub/../../outside.bin": "outside of the model's folder",
    "../inside/weights.bin": "outside of the model's folder",
    "file_link": "outside of the model's folder",
    "folder_link/outside.bin": "outside of the model's folder",
    "/dev/zero": "outside of the model's folder",
    "/proc/self/environ": "outside of the model's folder",
    "..\\outside.bin": "expected the name of a file",
    "C:/outside.bin": "expected the name of a file",
    "file://weights.bin": "expected the name of a file",
    "": "expected the name of a file",
    "weights.bin\0": "expected the name of a file",
    "missing.bin": "No such file",
    "loop": "external data",
    "pipe": "not a plain file",
    ".": "not a plain file|directory",
    "empty": "of a file of 0 bytes",
    "a" * 5000: "external data",
}


@pytest.mark.parametrize("location", OUTSIDE)
def test_external_data_stays_in_the_folder(location, folders, opened):
    path = external(folders, location)
    with pytest.raises(flow.onnx.OnnxError, match=f"tensor 'w': .*({OUTSIDE[location]})|{OUTSIDE[location]}"):
        flow.onnx.load(path)
    assert not [p for p in opened if "outside.bin" in p or p.startswith(("/dev", "/proc"))]


def test_absolute_paths_into_the_folder_are_refused(folders):
    path = external(folders, str(folders / "weights.bin"))
    with pytest.raises(flow.onnx.OnnxError, match="outside of the model's folder"):
        flow.onnx.load(path)


@pytest.mark.parametrize(
    "entries",
    [{"offset": -1}, {"offset": 1}, {"offset": 2**63}, {"length": 23}, {"length": 2**62}, {"length": -24},
     {"offset": "a"}, {"length": "1e3"}, {"offset": 24}],
)  # fmt: skip
def test_external_data_of_wrong_sizes(entries, folders):
    path = external(folders, "weights.bin", **entries)
    with pytest.raises(flow.onnx.OnnxError, match="tensor 'w'"):
        flow.onnx.load(path)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_external_data_without_a_folder(as_bytes, folders):
    data = external(folders, "weights.bin").read_bytes()
    with pytest.raises(flow.onnx.OnnxError, match="load the model by its path"):
        flow.onnx.load(data if as_bytes else ModelProto.FromString(data))


def test_external_data_in_attributes_and_subgraphs(folders, opened):
    model = ModelProto.FromString(external(folders, "../outside.bin").read_bytes())
    tensor = model.graph.initializer.pop()
    graph = h.make_graph([relu("w", "z")], "branch", [], [info("z")], initializer=[tensor])
    node = h.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph_of(1))
    constant = h.make_node("Constant", [], ["y"], value=tensor)
    for nodes in ([node], [constant]):
        inner = model_of(nodes)
        inner.graph.input.append(h.make_tensor_value_info("c", TensorProto.BOOL, []))
        (folders / "inner.onnx").write_bytes(inner.SerializeToString())
        with pytest.raises(flow.onnx.OnnxError, match="outside of the model's folder"):
            flow.onnx.load(folders / "inner.onnx")
    assert not [p for p in opened if "outside.bin" in p]


def test_declared_sizes_take_no_memory(tmp_path):
    model = with_weight(dims=[2**20, 2**20])
    (w,) = model.graph.initializer
    w.ClearField("raw_data")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flow.onnx.OnnxError, match="tensor 'w'"):
        flow.onnx.load(tmp_path / "model.onnx")


@pytest.mark.skipif(Path("/proc/sys/vm/overcommit_memory").read_text() == "1\n", reason="memory is overcommitted here")
def test_sizes_beyond_the_memory(tmp_path):
    (tmp_path / "weights.bin").touch()
    os.truncate(tmp_path / "weights.bin", 2**42)  # 4 TB of holes
    model = ModelProto.FromString(external(tmp_path, "weights.bin").read_bytes())
    model.graph.initializer[0].dims[:] = [2**20, 2**20]
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(flow.onnx.OnnxError, match="tensor 'w': does not fit into memory.*model.onnx"):
        flow.onnx.load(tmp_path / "model.onnx")


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.keys()) - {"UNDEFINED", "STRING"}))
def test_external_data_of_all_types(kind, tmp_path):
    number = TensorProto.DataType.Value(kind)
    values = np.array([[0, 1, 0], [1, 1, 0]]).astype(h.tensor_dtype_to_np_dtype(number))
    (tmp_path / "weights.bin").write_bytes(onnx.numpy_helper.from_array(values).raw_data)
    outside = TensorProto(name="w", data_type=number, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="weights.bin")
    array = array_of(outside, tmp_path)
    assert (array.dtype, array.shape, array.flags.owndata) == (values.dtype, values.shape, True)
    assert array.tobytes() == values.tobytes()


# fuzzing

audited: list[str] | None = None


def audit(event: str, arguments: tuple) -> None:
    if audited is not None and event == "open" and arguments and isinstance(arguments[0], str | bytes):
        audited.append(os.fsdecode(arguments[0]))


sys.addaudithook(audit)


@pytest.fixture
def opened():
    """The paths that Python opens."""
    global audited
    audited = []
    yield audited
    audited = None


def seeds(folder: Path) -> list[bytes]:
    """Models to mutate."""
    (folder / "weights.bin").write_bytes(VALUES.tobytes())
    found = [
        external(folder, "weights.bin", offset=0, length=24).read_bytes(),
        with_function({"f": ["g", "g"], "g": []}).SerializeToString(),
        nested(4).SerializeToString(),
        with_weight().SerializeToString(),
    ]
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for name in (
        "simple/test_expand_shape_model1",
        "pytorch-operator/test_operator_add_broadcast",
        "simple/test_shrink",
    ):
        model = onnx.load(data / name / "model.onnx")
        model.opset_import[0].version = max(model.opset_import[0].version, 9)
        found.append(model.SerializeToString())
    return found


WORDS = [b"../x", b"/etc/passwd", b"\xff" * 9, b"", b"x", b"y", b"w", b"location", b"Loop", b"Scan", b"ai.onnx.ml"]
NUMBERS = [0, 1, -1, 7, 16, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63)]


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, cut out or put in twice."""
    result = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(result) + 1)
        size = draw.randint(0, 20)
        result[at : at + draw.choice([0, 1, size])] = draw.choice(
            [bytes([draw.randrange(256)]), bytes(result[at : at + size]), draw.choice(WORDS), b""]
        )
    return bytes(result)


def mutated_fields(data: bytes, draw: random.Random) -> bytes:
    """Some fields of a model changed: any field of any message in it."""
    model = ModelProto.FromString(data)
    for _ in range(draw.randint(1, 3)):
        message = model
        while True:
            fields = message.ListFields()
            if not fields:
                break
            descriptor, value = draw.choice(fields)
            if descriptor.message_type is None:
                change_field(message, descriptor, draw)
                break
            parent, message = message, draw.choice(list(value)) if descriptor.is_repeated else value
            if draw.random() < 0.1:
                if descriptor.is_repeated:
                    draw.choice([value.pop, lambda v=value, m=message: v.add().CopyFrom(m)])()
                else:
                    parent.ClearField(descriptor.name)
                break
    try:
        return model.SerializeToString()
    except ValueError:  # not UTF-8
        return data


def change_field(message, descriptor, draw: random.Random) -> None:
    old = getattr(message, descriptor.name)
    of_bytes, of_strings = descriptor.type == descriptor.TYPE_BYTES, descriptor.type == descriptor.TYPE_STRING
    new = draw.choice(WORDS) if of_bytes or of_strings else draw.choice(NUMBERS)
    new = new.decode("latin1") if of_strings else new
    try:
        if descriptor.is_repeated:
            draw.choice([lambda: old.append(new), lambda: old.pop(), lambda: old.extend([new] * 50)])()
        else:
            setattr(message, descriptor.name, new)
    except (ValueError, IndexError, TypeError):  # out of the field's range
        message.ClearField(descriptor.name)


def test_types_that_do_not_fit_are_refused():
    model = model_of([h.make_node("Cast", ["x"], ["i"], to=7), h.make_node("Add", ["x", "i"], ["y"], "add")])
    with pytest.raises(flow.onnx.OnnxError, match='Add "add": got operands of the types float32, int64; expected one'):
        flow.onnx.load(model)(flow.ones(2, 3))


def test_shapes_that_take_all_memory_are_not_inferred():
    shape = h.make_tensor_value_info("s", TensorProto.INT64, [2**31 - 1])
    model = model_of([h.make_node("Expand", ["x", "s"], ["y"], "expand")])
    model.graph.input.append(shape)
    begin = time.monotonic()
    flow.onnx.load(model)
    assert time.monotonic() - begin < 10


def test_mutated_models_load_or_are_refused(tmp_path, opened):
    seconds = float(os.environ.get("MINIFLOW_FUZZ_SECONDS", 3))
    folder = tmp_path / "models"
    folder.mkdir()
    models, path = seeds(folder), folder / "mutated.onnx"
    fresh = random.randrange(2**32)
    end, counts = time.monotonic() + seconds, {"loaded": 0, "refused": 0}
    while time.monotonic() < end:
        for seed in (sum(counts.values()), fresh + sum(counts.values())):
            draw = random.Random(seed)
            data = draw.choice([mutated_bytes, mutated_fields])(draw.choice(models), draw)
            path.write_bytes(data)
            begin = time.process_time()
            try:
                flow.onnx.load(path)
                counts["loaded"] += 1
            except flow.onnx.OnnxError:
                counts["refused"] += 1
            except BaseException as error:
                raise AssertionError(f"{type(error).__name__}: {error}; seed {seed}, file {data!r}") from error
            assert time.process_time() - begin < 20, f"seed {seed} takes too long: {data!r}"
    assert min(counts.values()) > 10, counts
    allowed = (str(folder), str(Path(onnx.__file__).parent))
    assert not [p for p in opened if not p.startswith(allowed) and not p.endswith((".py", ".pyc"))]
