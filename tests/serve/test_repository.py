"""A folder of saved graphs becomes a model repository in OneFlow's layout; what the user wrote stays."""

import ast
import re

import pytest
from google.protobuf import text_format

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, CheckpointError, GraphError
from miniflow.serialization.states import read_file
from miniflow.serve import ServedModel, prepare, read_config
from miniflow.serve.config import message_class


class Pair(nn.Graph):
    """Takes tensors by position and by name, and returns a dict."""

    def build(self, x, *, mask):
        return {"sum": x + mask, "count": (mask > 0).to(flow.int64)}


class Step(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x):
        return self.module(x)


def pair(rows=4):
    graph = Pair()
    graph(flow.ones(rows, 3), mask=flow.zeros(rows, 3))
    return graph


def called(module, *shape):
    graph = Step(module)
    graph(flow.ones(*shape))
    return graph


def parsed(text):
    return text_format.Parse(text, message_class()())


PAIR = """
backend: "python" max_batch_size: 16
input [ { name: "INPUT_0" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "INPUT_1" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [ 3 ] }, { name: "OUTPUT_1" data_type: TYPE_INT64 dims: [ 3 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 2000 }
"""


def test_a_saved_graph_becomes_a_model(tmp_path):
    flow.save(pair(16), tmp_path / "pair")
    assert prepare(tmp_path) == [tmp_path / "pair"]
    files = sorted(path.relative_to(tmp_path / "pair").as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["1/model.py", "1/model/graph.safetensors", "config.pbtxt"]
    assert read_config(tmp_path / "pair") == parsed(PAIR)
    source = (tmp_path / "pair" / "1" / "model.py").read_text()
    assert len(source.splitlines()) <= 6
    assert "from miniflow.serve.triton import TritonPythonModel" in ast.unparse(ast.parse(source))


def test_prepare_can_be_repeated(tmp_path):
    flow.save(pair(), tmp_path / "pair")
    prepare(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert prepare(tmp_path) == prepare(tmp_path / "pair") == [tmp_path / "pair"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_graph_save_writes_the_same_as_prepare(tmp_path):
    graph = pair()
    graph.save(tmp_path / "a" / "pair", serve=True)
    graph.save(tmp_path / "b_pair")
    (tmp_path / "b").mkdir()
    (tmp_path / "b_pair").rename(tmp_path / "b" / "pair")
    prepare(tmp_path / "b")
    a, b = ({p.relative_to(r): content(p) for p in r.rglob("*.*")} for r in (tmp_path / "a", tmp_path / "b"))
    assert a == b and len(a) == 3


def content(path):
    """The bytes of a file, but of a safetensors file, whose entries stand in any order, what it says."""
    if path.suffix != ".safetensors":
        return path.read_bytes()
    arrays, metadata = read_file(path)
    return metadata, {name: (x.dtype, x.shape, x.tobytes()) for name, x in arrays.items()}


def test_a_graph_is_saved_again_under_the_config_of_the_user(tmp_path):
    graph = pair()
    graph.save(tmp_path / "pair", serve=True)
    mine = (tmp_path / "pair" / "config.pbtxt").read_text().replace("max_batch_size: 8", "max_batch_size: 2 # mine")
    (tmp_path / "pair" / "config.pbtxt").write_text(mine)
    graph.save(tmp_path / "pair", serve=True)
    assert (tmp_path / "pair" / "config.pbtxt").read_text() == mine


def test_names_of_the_graph_if_asked(tmp_path):
    pair().save(tmp_path / "pair", serve=True, names=True)
    config = read_config(tmp_path / "pair")
    assert [x.name for x in config.input] == ["INPUT_0", "mask"]
    assert [x.name for x in config.output] == ["sum", "count"]
    x, mask = flow.randn(2, 3), flow.tensor([[1.0, 0, 0], [0, 2, 0]])
    (found,) = ServedModel(tmp_path / "pair").answer([{"mask": mask, "INPUT_0": x}])
    assert (found["sum"] == x + mask).all() and found["count"].tolist() == [[1, 0, 0], [0, 1, 0]]


def test_engine_and_batch_of_the_options(tmp_path):
    flow.save(pair(), tmp_path / "pair")
    prepare(tmp_path, max_batch_size=0, engines={"pair": "openvino"})
    config = read_config(tmp_path / "pair")
    assert [list(x.dims) for x in config.input] == [[4, 3], [4, 3]] and not config.HasField("dynamic_batching")
    assert [(p.key, p.value.string_value) for p in config.parameters] == [("xrt", "openvino")]


def test_graphs_without_a_batch(tmp_path):
    class Scale(nn.Graph):
        def build(self, x, factor):
            return x * factor

    graph = Scale()
    graph(flow.ones(4, 3), flow.tensor(2.0))
    graph.save(tmp_path / "scale", serve=True)
    config = read_config(tmp_path / "scale")
    assert config.max_batch_size == 0 and [list(x.dims) for x in config.input] == [[4, 3], [1]]
    for factor in (flow.tensor([3.0]), flow.tensor(3.0)):
        (found,) = ServedModel(tmp_path / "scale").answer([{"INPUT_0": flow.ones(4, 3), "INPUT_1": factor}])
        assert found["OUTPUT_0"].tolist() == [[3.0] * 3] * 4


def test_configs_that_reshape(tmp_path):
    """A request may have other dims of as many elements, as with Triton's `reshape`, which does not have to be said."""
    pair().save(tmp_path / "pair", serve=True)
    path = tmp_path / "pair" / "config.pbtxt"
    path.write_text(path.read_text().replace("dims: 3", "dims: [1, 3] reshape { shape: 3 }", 1))
    model, x = ServedModel(tmp_path / "pair"), flow.randn(2, 1, 3)
    for given in (x, x.reshape(2, 3)):
        (found,) = model.answer([{"INPUT_0": given, "INPUT_1": flow.zeros(2, 3)}])
        assert (found["OUTPUT_0"] == x.reshape(2, 3)).all()


def test_names_are_those_of_the_graph_where_they_are_alone(tmp_path):
    class Nested(nn.Graph):
        def build(self, first, second, *, my_mask):
            return {"x": first["x"] + second["x"], "total_sum": my_mask * 2}

    graph, x = Nested(), flow.randn(2, 3)
    graph({"x": x}, {"x": x}, my_mask=x)
    graph.save(tmp_path / "nested", serve=True, names=True)
    config = read_config(tmp_path / "nested")
    assert [x.name for x in config.input] == ["INPUT_0", "INPUT_1", "my_mask"]
    assert [x.name for x in config.output] == ["x", "total_sum"]
    (found,) = ServedModel(tmp_path / "nested").answer([{"INPUT_0": x, "INPUT_1": x, "my_mask": x}])
    assert (found["x"] == 2 * x).all() and (found["total_sum"] == 2 * x).all()


def saved(folder, module, *shape):
    folder.parent.mkdir(parents=True, exist_ok=True)
    flow.save(called(module, *shape), folder)


def test_every_version_gets_its_file_and_the_largest_is_served(tmp_path):
    for version in (9, 10):
        saved(tmp_path / "linear" / str(version) / "model", nn.Linear(3, version), 4, 3)
    prepare(tmp_path)
    assert sorted(p.parent.name for p in tmp_path.glob("linear/*/model.py")) == ["10", "9"]
    model = ServedModel(tmp_path / "linear")
    assert model.version == 10 and model.answer([{"INPUT_0": flow.ones(1, 3)}])[0]["OUTPUT_0"].shape == (1, 10)


def test_a_graph_that_is_saved_again_is_the_next_version(tmp_path):
    for columns in (4, 5):
        saved(tmp_path / "linear", nn.Linear(3, columns), 4, 3)
        (model,) = prepare(tmp_path)
        (model / "config.pbtxt").unlink()
    prepare(tmp_path)
    model = ServedModel(tmp_path / "linear")
    assert model.version == 2 and model.answer([{"INPUT_0": flow.ones(1, 3)}])[0]["OUTPUT_0"].shape == (1, 5)
    (tmp_path / "linear" / "config.pbtxt").unlink()
    called(nn.Linear(3, 6), 4, 3).save(tmp_path / "linear", serve=True)
    model = ServedModel(tmp_path / "linear")
    assert model.version == 2 and model.answer([{"INPUT_0": flow.ones(1, 3)}])[0]["OUTPUT_0"].shape == (1, 6)


# what is refused


def test_folders_without_models(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    for name, got in {
        "": f"{tmp_path} holds no models",
        "missing": f"there is no folder {tmp_path}/missing",
        "file": f"there is no folder {tmp_path}/file",
    }.items():
        expected = (
            f'a folder of folders, one for each model: graph.save("{tmp_path / name}/NAME", serve=True) writes one'
        )
        with pytest.raises(ArgumentError) as caught:
            prepare(tmp_path / name)
        assert str(caught.value) == f"serve: {got}; expected {expected}"
    (tmp_path / "empty" / "1").mkdir(parents=True)
    (tmp_path / "empty" / "config.pbtxt").touch()
    with pytest.raises(
        ArgumentError, match=f"empty has no version; expected a saved graph in {tmp_path}/empty/1/model: "
    ):
        prepare(tmp_path)


def test_engines_for_models_that_there_are_not(tmp_path):
    flow.save(pair(), tmp_path / "pair")
    with pytest.raises(ArgumentError, match=r"got engines for \['other'\]; expected names of the models \['pair'\]"):
        prepare(tmp_path, engines={"other": "openvino"})


def test_damaged_graphs(tmp_path):
    flow.save(pair(), tmp_path / "pair")
    (tmp_path / "pair" / "graph.safetensors").write_text("{}")
    with pytest.raises(CheckpointError, match="is not an intact safetensors file"):
        prepare(tmp_path)


@pytest.mark.parametrize(
    ("module", "why"),
    [(nn.BatchNorm1d(3), "changes buffers: call eval()"), (nn.Dropout(0.5), "draws random numbers: call eval()")],
)
def test_graphs_that_do_not_answer_from_their_inputs_alone(tmp_path, module, why):
    with pytest.raises(GraphError, match=re.escape(why)):
        called(module, 4, 3).save(tmp_path / "model", serve=True)


def test_training_graphs(tmp_path):
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(3, 2)
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    graph = Train()
    graph(flow.ones(4, 3))
    with pytest.raises(GraphError, match=r"serve: Train_\d+ trains: save one without an optimizer"):
        graph.save(tmp_path / "train", serve=True)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("dims: 3", "dims: 4", r"config.pbtxt has INPUT_0 of FP32 \[-1, 4\]; the graph has FP32 \[-1, 3\], FP32"),
        ("TYPE_FP32", "TYPE_FP64", r"config.pbtxt has INPUT_0 of FP64 \[-1, 3\]; the graph has FP32 \[-1, 3\], FP32"),
        ("INPUT_1", "INPUT_2", r"config.pbtxt has INPUT_2 of FP32 \[-1, 3\]; the graph has FP32 \[-1, 3\], FP32"),
        ("INPUT_1", "INPUT_0", r"config.pbtxt has the inputs \['INPUT_0'\]; expected 2 inputs, as the graph"),
        ("max_batch_size: 8", "max_batch_size: -1", "config.pbtxt has max_batch_size -1; expected 0 to 2147483647"),
        ("max_batch_size: 8", "max_batch_size 4", "cannot read .*config.pbtxt: 2:16"),
    ],
)
def test_configs_that_do_not_fit(tmp_path, old, new, why):
    pair().save(tmp_path / "pair", serve=True)
    path = tmp_path / "pair" / "config.pbtxt"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ArgumentError, match=why):
        ServedModel(tmp_path / "pair")


def test_configs_that_say_less(tmp_path):
    """Some outputs only, dims of any size, fields that are not known here."""
    pair().save(tmp_path / "pair", serve=True)
    (tmp_path / "pair" / "config.pbtxt").write_text(
        'backend: "oneflow" max_batch_size: 2 version_policy { latest { num_versions: 1 } } '
        'input { name: "INPUT_1" data_type: TYPE_FP32 dims: -1 } input { name: "INPUT_0" data_type: TYPE_FP32 dims: 3 }'
        'output { name: "OUTPUT_1" data_type: TYPE_INT64 dims: 3 label_filename: "labels.txt" }'
    )
    model = ServedModel(tmp_path / "pair")
    (found,) = model.answer([{"INPUT_0": flow.zeros(1, 3), "INPUT_1": flow.tensor([[5.0, -1.0, 0.0]])}])
    assert {name: y.tolist() for name, y in found.items()} == {"OUTPUT_1": [[1, 0, 0]]}


@pytest.mark.parametrize("most", [-3, 2**31])
def test_a_batch_size_that_cannot_be_is_refused_before_it_is_written(tmp_path, most):
    flow.save(pair(), tmp_path / "pair")
    with pytest.raises(ArgumentError, match=rf"pair: got max_batch_size {most}; expected 0 to 2147483647"):
        prepare(tmp_path, max_batch_size=most)
    assert not (tmp_path / "pair" / "config.pbtxt").exists()


def test_a_folder_in_a_model_is_left_as_it_is(tmp_path):
    pair().save(tmp_path / "pair", serve=True)
    before = sorted(tmp_path.rglob("*"))
    for folder in ("pair/1", "pair/1/model"):
        with pytest.raises(ArgumentError, match=f"a version of a model; expected the folder {tmp_path}/pair$"):
            prepare(tmp_path / folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_options_that_a_config_decides(tmp_path, capsys):
    pair().save(tmp_path / "pair", serve=True)
    for options in ({"max_batch_size": 8}, {}, {"max_batch_size": 4}, {"engines": {"pair": "openvino"}}):
        prepare(tmp_path, **options)
        said = "serve: pair keeps its config.pbtxt, which decides, not the options\n" if options else ""
        assert capsys.readouterr().err == ("" if options == {"max_batch_size": 8} else said)


def test_names_that_triton_does_not_take_are_refused(tmp_path, capsys):
    flow.save(pair(), tmp_path / "a pair")
    with pytest.raises(ArgumentError, match="got a model 'a pair'; expected a name of ASCII letters"):
        prepare(tmp_path)
    flow.save(pair(), tmp_path / "pair")
    assert prepare(tmp_path) == [tmp_path / "pair"]
    assert "serve: a pair cannot be loaded: serve: got a model 'a pair'; expected" in capsys.readouterr().err


def test_a_graph_that_cannot_be_served_replaces_nothing(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout()).eval()
    good = nn.Graph.trace(model)
    x = flow.ones(4, 3)
    expected = good(x)
    good.save(tmp_path / "models" / "digits", serve=True)
    bad = nn.Graph.trace(model.train())
    bad(x)
    with pytest.raises(GraphError, match="draws random numbers"):
        bad.save(tmp_path / "models" / "digits", serve=True)
    with pytest.raises(GraphError, match="draws random numbers"):
        bad.save(tmp_path / "models" / "other", serve=True)
    with pytest.raises(ArgumentError, match="got a model 'we ird'"):
        good.save(tmp_path / "models" / "we ird", serve=True)
    with pytest.raises(ArgumentError, match="is a folder of models; expected one of a model, such as .*/NAME"):
        good.save(tmp_path / "models", serve=True)
    files = sorted(str(path.relative_to(tmp_path / "models")) for path in (tmp_path / "models").rglob("*"))
    assert files == [
        "digits", "digits/1", "digits/1/model", "digits/1/model.py", "digits/1/model/graph.safetensors",
        "digits/config.pbtxt",
    ]  # fmt: skip
    assert bool((flow.load(tmp_path / "models/digits/1/model")(x) == expected).all())
