"""Folders of graphs that are damaged, or written to do harm, are refused with a CheckpointError."""

import copy
import json
import os
import random

import numpy as np
import pytest
from checks import assert_same
from compare import count_comparison
from folders import GRAPH, at, batch, document_of, program_in, sign, trained

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentTypeError, CheckpointError, DTypeError, IndexRangeError, ShapeError
from miniflow.graph.saved import attributes, operands
from miniflow.ops.dropout import DropoutGrad
from miniflow.ops.pointwise import Pointwise
from miniflow.serialization.states import read_file


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a training graph, not to be changed, and its document."""
    folder = tmp_path_factory.mktemp("graphs") / "saved"
    trained(folder)
    return folder, document_of(folder)


def copied(saved, folder):
    folder.mkdir()
    (folder / GRAPH).write_bytes((saved[0] / GRAPH).read_bytes())
    return folder


def test_missing_files(saved, tmp_path):
    with pytest.raises(CheckpointError, match="cannot read .*graph.safetensors: No such file"):
        nn.Graph.load(tmp_path / "nowhere")
    folder = copied(saved, tmp_path / "g")
    (folder / GRAPH).unlink()
    for load in (flow.load, nn.Graph.load):
        with pytest.raises(CheckpointError, match="is a folder without graph.safetensors; expected .* wrote$"):
            load(folder)


def test_folders_around_a_graph(saved, tmp_path):
    """Those of a model for a server, and of all its models: the message says where the graph is."""
    (tmp_path / "models" / "small" / "1").mkdir(parents=True)
    graph = copied(saved, tmp_path / "models" / "small" / "1" / "model")
    for folder in (graph.parent, graph.parents[1], graph.parents[2]):
        for load in (flow.load, nn.Graph.load):
            with pytest.raises(CheckpointError, match=f"{folder} is a folder without .* wrote, such as {graph}$"):
                load(folder)
    other = copied(saved, tmp_path / "models" / "other")
    with pytest.raises(CheckpointError, match=f"wrote, such as {other} or {graph}$"):
        flow.load(tmp_path / "models")


DAMAGE = {
    "": "is damaged: Expecting value",
    "[]": "has version None; expected 3",
    "{}": "has version None; expected 3",
    '{"version": 2}': "has version 2; expected 3: save it again",
    '{"version": true}': "has version True; expected 3",
    '{"version": 3}': "document: got .*; expected .* an object with one tag",
    '{"version": 3, "graph": {}}': r"document: got 'the keys \[\]'; expected an object with the keys numbers, skipper",
    '{"version": 3, "dict": {}}': "document: got .*; expected a graph",
    "[" * 100_000: "is damaged",
    "1" * 5000: "is damaged",
}


@pytest.mark.parametrize("text", DAMAGE, ids=lambda text: text[:30])
def test_damaged_json(text, saved, tmp_path):
    folder = copied(saved, tmp_path / "g")
    sign(text, folder)
    with pytest.raises(CheckpointError, match=DAMAGE[text]):
        flow.load(folder)


def test_a_file_without_a_graph(tmp_path):
    flow.save({"weight": flow.ones(2)}, tmp_path / GRAPH)
    with pytest.raises(CheckpointError, match="holds no graph; expected what flow.save"):
        flow.load(tmp_path)


def test_bools_that_are_none(tmp_path):
    class Masked(nn.Graph):
        def __init__(self):
            super().__init__()
            self.mask = nn.Module()
            self.mask.register_buffer("kept", flow.tensor([True, False]))

        def build(self, x):
            return flow.where(self.mask.kept, x, 0.0)

    graph = Masked()
    graph(flow.ones(2))
    flow.save(graph, tmp_path / "g")
    sign(document_of(tmp_path / "g"), tmp_path / "g", {"mask.kept": np.uint8([2, 0]).view(bool)})
    with pytest.raises(CheckpointError, match=r"tensors\[0\]\[1\]: got .bools that are neither 0 nor 1"):
        flow.load(tmp_path / "g")


def test_weights_of_another_graph(saved, tmp_path):
    folder = copied(saved, tmp_path / "g")
    trained(tmp_path / "h", flow.optim.Adam)
    sign(document_of(folder), folder, read_file(tmp_path / "h" / GRAPH)[0])
    with pytest.raises(CheckpointError, match="got .arrays .* that no state and no constant names"):
        flow.load(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_file(tmp_path):
    """Reading it would wait for a writer, forever."""
    os.mkfifo(tmp_path / GRAPH)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        flow.load(tmp_path)


def find(document, op):
    instructions = program_in(document)["instructions"]
    return next(i for i, entry in enumerate(instructions) if entry["instruction"]["op"] == {"op": op})


def change(*path, value):
    def apply(document):
        keys = [find(document, key[3:]) if isinstance(key, str) and key.startswith("op:") else key for key in path]
        holder, key = at(program_in(document), keys)
        holder[key] = value

    return apply


def attribute(op, name, value):
    return change("instructions", f"op:{op}", "attrs", name, value=value)


def pair(a, b):
    return {"tuple": [a, b]}


def written_twice(document):
    """The last update writes to the gradient that it reads."""
    program = program_in(document)
    program["instructions"][-1]["instruction"]["outputs"] = program["instructions"][-1]["instruction"]["inputs"][1:2]
    program["writes"] = {"pairs": []}


def written_from_elsewhere(document):
    """The first bias gets a value on another device."""
    program = program_in(document)
    slots = len(program["inputs"]) + len(program["states"])
    slots += sum(len(i["instruction"]["outputs"]) for i in program["instructions"])
    slots += len(program["constants"]["pairs"])
    attrs = {"dict": {"source": {"device": "cpu"}, "target": {"device": "cuda:0"}}}
    moved = {"op": {"op": "ToDevice"}, "inputs": ["%3"], "attrs": attrs, "outputs": [ELSEWHERE]}
    program["instructions"].append({"instruction": moved})
    program["writes"]["pairs"] = [["%3", f"%{slots}"]]


def exchanged(document):
    """The values of two biases."""
    pairs = program_in(document)["tensors"]["pairs"]
    pairs[1][1], pairs[-1][1] = pairs[-1][1], pairs[1][1]


BIAS = {"slot": {"shape": [10], "dtype": "float32", "device": "cpu"}}
ELSEWHERE = {"slot": {"shape": [4], "dtype": "float32", "device": "cuda:0"}}
HOSTILE = {
    "unknown op": (
        change("instructions", 0, "op", value={"op": "system"}), r"instructions\[0\].op: got 'system'; expected one of"
    ),
    "no op": (change("instructions", 0, "op", value="Conv2d"), r"instructions\[0\].op: got 'Conv2d'; expected another"),
    "another class as op": (change("instructions", 0, "op", value={"dtype": "int8"}), r"op: got dtype\('int8'\)"),
    "code in a scope": (change("instructions", 0, "scope", value="x\nimport os"), r"\[0\].scope: .*printable"),
    "code in a name": (change("name", value="x\u2028import os"), "name: .*printable characters"),
    "slot of the future": (change("instructions", 0, "inputs", 0, value="%99"), "got .%99.; expected one of %0"),
    "slot of itself": (change("instructions", 0, "inputs", 0, value="%18"), "got .%18.; expected one of %0"),
    "negative slot": (change("instructions", 0, "inputs", 0, value="%-1"), "expected one of %0, %1"),
    "slot in other digits": (change("instructions", 0, "inputs", 0, value="%\u0663"), "expected one of %0, %1"),
    "text as a number": (change("instructions", 0, "inputs", 0, value={"tuple": []}), r"inputs: got \[\(\)"),
    "slot in an operand": (change("instructions", -1, "inputs", 1, value=BIAS), "reads .* before it is written"),
    "slot written twice": (written_twice, "SgdUpdate writes .* a second time"),
    "wrong shape": (change("instructions", 0, "outputs", 0, "shape", value=[5, 4, 8, 9]), "which Conv2d makes of"),
    "wrong dtype": (change("instructions", 0, "outputs", 0, "dtype", value="float64"), "which Conv2d makes of"),
    "huge shape": (change("inputs", 0, "shape", value=[2**40, 2**40]), "at most 32 dims and"),
    "negative shape": (change("inputs", 0, "shape", value=[-1]), r"shape: got \[-1\]; expected another"),
    "true shape": (change("inputs", 0, "shape", value=[True]), r"shape: got \[True\]; expected an"),
    "another input shape": (change("inputs", 0, "shape", value=[5, 2, 8, 8]), "Conv2d does not accept its operands"),
    "unknown dtype": (change("inputs", 0, "dtype", value="object"), r"inputs\[0\]: got 'object'; expected one of"),
    "unknown device": (change("inputs", 0, "device", value="tpu"), r"inputs\[0\]: DeviceError: device 'tpu' does not"),
    "stride 0": (attribute("Conv2d", "stride", pair(0, 1)), r"Conv2d does not .*stride=\(0, 1\)"),
    "stride as text": (attribute("Conv2d", "stride", "1"), "Conv2d does not .*stride='1'"),
    "negative padding": (attribute("Conv2d", "padding", pair(pair(-1, 1), pair(1, 1))), "Conv2d does not .*padding"),
    "unknown attribute": (attribute("Conv2d", "out", 1), r"the attributes \['dilation', 'groups', 'out'"),
    "attribute of no kind": (attribute("Conv2d", "groups", {"eval": "1"}), r"attrs.groups: got 'eval'; expected"),
    "two tags": (attribute("Conv2d", "groups", {"tuple": [], "float": "nan"}), "expected .* one tag"),
    "gradient of another image": (attribute("Conv2dWeightGrad", "size", pair(5, 5)), "Conv2dWeightGrad does not"),
    "pooling elsewhere": (attribute("MaxPool2dGrad", "size", pair(2, 2)), "another size than the MaxPool2d before it"),
    "index from elsewhere": (
        change("instructions", "op:MaxPool2dGrad", "inputs", 1, value="%1"), "operands that are not results of MaxPool",
    ),
    "loss of other classes": (
        change("instructions", "op:CrossEntropyGrad", "inputs", 2, value="%0"), "another target than the CrossEntropy",
    ),
    "a draw that is none": (attribute("Dropout", "seed", {"scalar": "draw.7.seed"}), "got 'draw.7.seed'; expected one"),
    "a rate as offset": (attribute("Dropout", "offset", {"scalar": "optimizer.0.0.lr"}), "offset=0.1"),
    "an update of another shape": (change("instructions", "op:SgdUpdate", "inputs", 1, value="%0"), "for one param"),
    "write to no state": (change("writes", 0, 0, value="%0"), "<- Slot"),
    "write from another device": (written_from_elsewhere, "expected a value for .* on its device"),
    "write of another shape": (change("writes", 0, 1, value="%0"), "<- Slot"),
    "write of three": (change("writes", 0, value=["%2"] * 3), r"writes: ValueError: .*has length 3; 2 is required"),
    "late read of no input": (change("late_reads", value=[[2, "%2"]]), r"got \(2, Slot.*; expected an input, and a st"),
    "late read of itself": (change("late_reads", value=[[0, 0]]), r"got \(0, 0\); expected an input, .* another in"),
    "late read of no state": (change("late_reads", value=[[0, "%0"]]), r"got \(0, Slot.*; expected an input, and a st"),
    "values twice": (change("tensors", 1, 1, 0, value="model.0.weight"), "each used once"),
    "state twice": (lambda d: program_in(d)["states"].append("%2"), "it begins with a slot twice"),
    "state without values": (lambda d: program_in(d)["tensors"]["pairs"].pop(), "states without tensors"),
    "no values": (change("tensors", 1, 1, value=7), "program: AttributeError: 'int' object has no attribute 'values'"),
    "values of another shape": (exchanged, r"values of shape \(10,\).*expected those of"),
    "values in no order": (change("tensors", 1, 1, 1, value=[1]), r"tensors\[1\]\[1\]: got \[1\]; expected all dims"),
    "values that are not there": (change("tensors", 1, 1, 0, value="/etc/passwd"), "the name of an array in"),
    "more results": (change("outputs", value=["%0"] * 3), "got .2 tensors.; expected results with 3"),
    "a generator that is none": (change("draws", "draws", value=[3]), r"draws: ValueError: generators \[3\]"),
    "a state of no generator": (
        change("draws", "draws", value=[{"generator": [-1, 0]}]), r"draws\[0\]: ValueError: seed and offset \[-1, 0\]"
    ),
    "no list": (change("outputs", value={"dict": {}}), "outputs: got {}; expected another value"),
    "deep attribute": (
        attribute("Conv2d", "groups", json.loads('{"tuple": [' * 30 + "1" + "]}" * 30)), "Conv2d does not .*groups=",
    ),
    "left out by a number": (change("instructions", "op:SgdUpdate", "unless", value="%0"), "a 0-dim bool says when"),
    "left out forward": (change("instructions", 0, "unless", value="%0"), "only updates can be left out"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents(name, saved, tmp_path):
    apply, message = HOSTILE[name]
    folder, document = copied(saved, tmp_path / "g"), copy.deepcopy(saved[1])
    apply(document)
    sign(document, folder)
    with pytest.raises(CheckpointError, match=message):
        flow.load(folder)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_of_other_sizes(kind, tmp_path):
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = getattr(nn, kind)(3, 4)
            self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.layer(x)[0].sum()
            loss.backward()
            return loss

    graph, x = Train(), flow.ones(5, 2, 3)
    graph(x)
    flow.save(graph, tmp_path / "g")
    document = document_of(tmp_path / "g")
    assert flow.load(tmp_path / "g")(x).item() == graph(x).item()
    other = "gru" if kind == "LSTM" else "lstm"
    for op in ("Recurrent", "RecurrentGrad"):
        for name, value, reason in (
            ("sizes", {"tuple": [2, 2, 2, 2, 9]}, "sizes"),
            ("sizes", {"tuple": [3, 3, 2, 1, 1]}, "sizes"),
            ("sizes", {"tuple": [2, 2]}, "sizes"),
            ("cell", other, other if op == "Recurrent" else "another cell"),
            ("cell", "elman", "cell=.elman"),
        ):
            changed = copy.deepcopy(document)
            attribute(op, name, value)(changed)
            sign(changed, tmp_path / "g")
            with pytest.raises(CheckpointError, match=f"{op} does not accept its operands.*{reason}"):
                flow.load(tmp_path / "g")


LEAF = {"tree": {"kind": "tensor"}}


def tree(kind, name, keys=(), children=()):
    lists = {"keys": {"tuple": list(keys)}, "children": {"tuple": list(children)}}
    return {"tree": {"kind": kind, "type": name, **lists}}


def test_other_parts_of_the_document(saved, tmp_path):
    folder = copied(saved, tmp_path / "g")
    for key, value, message in (
        ("config", {"config": {}}, "config: got 'the keys"),
        ("config", None, "config: got None; expected another value"),
        ("numbers", {"numbers": {"dict": {"optimizer.0.0.lr": "1"}}}, "numbers: ValueError: only numbers vary"),
        ("numbers", {"numbers": {"dict": {"optimizer.0.0.lr2": 0.1}}}, "got 'optimizer.0.0.lr'; expected one of"),
        ("numbers", {"numbers": {"dict": {"a\nb": 1}}}, "numbers: got .*; expected"),
        ("numbers", [], "got 'optimizer.0.0.lr'; expected one of"),
        ("skipper", {"scaler": {"dict": {}}}, "skipper: CheckpointError: GradScaler.load_state_dict"),
        ("arguments", LEAF, "got 'tensor'; expected arguments that are a tuple"),
        ("results", tree("namedtuple", "__import__"), "results: got '__import__'; expected names of a class"),
        (
            "results",
            tree("dataclass", "A", ["x=print()"], [LEAF]),
            "results: got 'x=print.*; expected names of a class",
        ),
        ("results", tree("dict", None, [1, 1], [LEAF] * 2), "results: .*as many, all different"),
        ("results", tree("sequence", "set"), "results: KeyError: 'set'"),
    ):
        document = copy.deepcopy(saved[1])
        document["graph"][key] = value
        sign(document, folder)
        with pytest.raises(CheckpointError, match=message):
            flow.load(folder)


STEPS = [
    pair({"op": "Transpose"}, {"dict": {"dim0": 0, "dim1": 1}}),
    pair({"op": "Slice"}, {"dict": {"index": {"tuple": [{"slice": [1, None, None]}, {"ellipsis": None}]}}}),
]
OTHER_STEPS = {
    "a view of another shape": (STEPS[:1], "values of shape"),
    "no views": ([], "values of shape"),
    "other dims": ([pair({"op": "Transpose"}, {"dict": {"dim0": 0, "dim1": 2}})], "ViewScatter does not accept"),
    "an index outside": ([pair({"op": "Slice"}, {"dict": {"index": {"tuple": [7]}}})], "index 7 is out of range"),
    "a step backwards": (
        [pair({"op": "Slice"}, {"dict": {"index": {"tuple": [{"slice": [None, None, -1]}]}}})], "index=",
    ),
    "no attributes": ([pair({"op": "Transpose"}, {"dict": {}})], r"the attributes \[\]"),
    "what takes no view": ([pair({"op": "Neg"}, {"dict": {}})], "steps="),
    "a dim from the end": ([pair({"op": "Unfold"}, {"dict": {"dim": -1, "size": 2, "step": 1}})], "dim -1"),
    "no op": ([pair("Transpose", {"dict": {}})], "steps="),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_STEPS)
def test_views_that_are_written_in_place(name, tmp_path):
    class Write(nn.Graph):
        def build(self, x, y):
            z = x * 1
            z.t()[1:].mul_(y)
            return z

    graph, inputs = Write(), (flow.ones(3, 4), flow.full((3, 3), 2.0))
    expected = graph(*inputs)
    flow.save(graph, tmp_path / "g")
    assert_same(flow.load(tmp_path / "g")(*inputs), expected.numpy())
    document = document_of(tmp_path / "g")
    steps, message = OTHER_STEPS[name]
    view = program_in(document)["instructions"][find(document, "ViewScatter")]["instruction"]
    assert view["attrs"]["dict"]["steps"] == {"tuple": STEPS}
    view["attrs"]["dict"]["steps"] = {"tuple": steps}
    sign(document, tmp_path / "g")
    with pytest.raises(CheckpointError, match=message):
        flow.load(tmp_path / "g")


def instruction(op, inputs, attrs, shape):
    output = {"slot": {"shape": shape, "dtype": "float32", "device": "cpu"}}
    return {
        "instruction": {"op": {"op": op}, "inputs": inputs, "attrs": {"dict": attrs}, "outputs": [output]}
    }  # fmt: skip


DIMS = {  # op -> inputs, attributes, and the shape that the op would give
    "Index": (["%0", "%1"], {"dims": {"tuple": [-1]}}, [4, 3, 4]),
    "IndexIntoZeros": (["%0", "%2"], {"dims": pair(0, 0), "shape": pair(1500, 3)}, [1500, 3]),
    "SetItem": (["%0", "%3", "%2"], {"dims": pair(1, 0), "basic": {"tuple": [{"ellipsis": None}]}}, [4, 3]),
    "Gather": (["%0", "%7"], {"dim": -1}, [4, 3]),
    "Unfold": (["%0"], {"dim": -1, "size": 2, "step": 1}, [4, 2, 4, 3, 2]),
    "FoldAdd": (["%6"], {"dim": -1, "size": 2, "step": 1, "shape": pair(4, 3)}, [4, 3]),
    "Cat": (["%0", "%0"], {"dim": -1, "sizes": pair(3, 3)}, [4, 6, 4, 3]),
    "Stack": (["%0", "%0"], {"dim": -1}, [4, 2, 3]),
    "LayerNorm": (["%0", None, None], {"dims": 3, "eps": 0.0}, [4, 3]),
    "SoftmaxGrad": (["%0", "%0"], {"dim": 2}, [4, 3]),
    "LogSoftmaxGrad": (["%0", "%0"], {"dim": -3}, [4, 3]),
    "Slice": (["%0"], {"index": {"tuple": [{"slice": [None, None, -1]}, {"ellipsis": None}]}}, [4, 3]),
    # operands of shapes that only functions and the tape would see to
    "Scatter": (["%0", "%7", "%3"], {"dim": 0}, [4, 3]),
    "ScatterAdd": (["%3", "%7", "%0"], {"dim": 0, "shape": pair(4, 3)}, [4, 3]),
    "SliceIntoZeros": (["%0"], {"shape": pair(5, 3), "index": {"tuple": [{"slice": [1, 3, None]}]}}, [5, 3]),
    "DiagonalIntoZeros": (["%0"], {"shape": pair(9, 9), "offset": 0, "dim1": 0, "dim2": 1}, [9, 9]),
    "EmbeddingGrad": (["%0", "%7"], {"rows": 5, "padding_idx": -1}, [5, 3]),
    "AvgPool2dGrad": (
        ["%5"],
        {
            "size": pair(20, 20), "kernel": pair(2, 2), "stride": pair(2, 2), "padding": pair(pair(0, 0), pair(0, 0)),
            "ceil_mode": False, "count_include_pad": True, "divisor_override": None,
        },
        [4, 4, 20, 20],
    ),
    "AdaptiveAvgPool2dGrad": (["%5"], {"size": {"tuple": [20, 20, 20]}}, [4, 4, 20, 20, 20]),
}  # fmt: skip


@pytest.mark.parametrize("name", DIMS)
def test_dims_that_only_functions_would_bring_into_range(name, tmp_path):
    class First(nn.Graph):
        def build(self, *xs):
            return xs[0] + 0

    rows = flow.zeros(1, 4, dtype=flow.int64), flow.zeros(2, 4, dtype=flow.int64)
    more = flow.zeros(4), flow.zeros(4, dtype=flow.int64), flow.ones(4, 4, 4, 3), flow.ones(4, 2, 4, 3, 2)
    more += (flow.zeros(4, 3, dtype=flow.int64),)
    graph = First()
    graph(flow.ones(4, 3), *rows, *more)
    flow.save(graph, tmp_path / "g")
    document = document_of(tmp_path / "g")
    inputs, attrs, shape = DIMS[name]
    program_in(document)["instructions"] = [instruction(name, inputs, attrs, shape)]
    sign(document, tmp_path / "g")
    with pytest.raises(
        CheckpointError,
        match=rf"{name} does not accept its operands \((Value|Shape)Error: .*(dims?[ =]|ind(ex|ices)|shape|image)",
    ):
        flow.load(tmp_path / "g")


def test_every_op_has_rules_for_all_its_attributes():
    for op in attributes.known_ops().values():
        if issubclass(op, Pointwise):
            continue  # numbers, and what its formula accepts
        rules = attributes.UPDATES if op.groups else attributes.ATTRIBUTES
        assert attributes.attribute_names(op) <= set(rules), op.__name__
    assert set(operands.RULES) <= set(attributes.known_ops())


# random damage


def outcome(folder):
    """ "refused", or the results of a call."""
    try:
        loaded = flow.load(folder)
    except CheckpointError:
        return "refused"
    flow.manual_seed(5)
    x, y = batch()
    result = loaded(x, y)
    return result["loss"].numpy().tobytes(), result["rest"][0].numpy().tobytes()


@pytest.mark.parametrize("part", ["document", "tensors"])
def test_flipped_bytes(part, seed, saved, tmp_path):
    rng = random.Random(seed)
    folder, expected, refused = copied(saved, tmp_path / "g"), outcome(saved[0]), 0
    original = (folder / GRAPH).read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    places = range(header) if part == "document" else range(header, len(original))
    for _ in range(40):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 5))):
            position = min(rng.choice(places), len(data) - 1)
            kind = rng.randrange(3)
            if kind == 0:
                data[position] = rng.randrange(256)
            elif kind == 1:
                del data[position : position + rng.randrange(1, 50)]
            else:
                data[position:position] = rng.randbytes(rng.randrange(1, 5))
        (folder / GRAPH).write_bytes(bytes(data))
        found = outcome(folder)
        assert found in ("refused", expected)
        refused += found == "refused"
    count_comparison()
    assert refused > 25


def paths(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


JUNK = (
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**62,
    0.5,
    -1.0,
    1e308,
    "",
    "x",
    "%0",
    "%1",
    "%20",
    "cpu",
    "float64",
    [],
    {},
)


def damage(document, rng, places):
    """Replace, delete, double or exchange something."""
    holder, key = at(document, rng.choice(places))
    kind = rng.randrange(5)
    if kind == 0 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif kind == 1:
        del holder[key]
    elif kind == 2:
        other, place = at(document, rng.choice(places))
        holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
    else:
        holder[key] = copy.deepcopy(rng.choice(JUNK))


def test_signed_nonsense(seed, saved, tmp_path):
    """Documents whose checksum is right are refused, or describe some other computation, which then runs."""
    rng = random.Random(seed)
    folder = copied(saved, tmp_path / "g")
    places = [path for path in paths(saved[1]) if path and path[0] != "version"]
    refused = 0
    for number in range(120):
        document = copy.deepcopy(saved[1])
        damage(document, rng, places)
        sign(document, folder)
        try:
            loaded = flow.load(folder)
        except CheckpointError:
            refused += 1
            continue
        try:
            loaded(*batch())
        except (ArgumentTypeError, ShapeError, DTypeError):  # its inputs are others now
            continue
        except Exception as error:
            raise AssertionError(f"document {number} of seed {seed} was loaded, then: {error!r}") from error
    count_comparison()
    assert 60 < refused < 120


def test_numbers_alone_beside_a_mask_are_refused():
    with pytest.raises(DTypeError, match="dropout_grad: got numbers alone beside a mask; expected a tensor"):
        DropoutGrad.infer(1.0, np.ones(3, np.bool_), scale=2.0)


def test_indices_are_checked_where_nobody_reads_the_lookup():
    class Unread(nn.Graph):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4)
            self.add_optimizer(flow.optim.SGD(self.table.parameters(), 0.1))

        def build(self, words):
            self.table(words).sum().backward()
            return words + 1

    graph = Unread()
    graph(flow.tensor([1, 2]))
    with pytest.raises(IndexRangeError, match="embedding: index 10 is out of range .* from 0 to 9"):
        graph(flow.tensor([1, 10]))
