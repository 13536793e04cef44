"""Graphs over global tensors are saved and loaded: they go on as they would have."""

import numpy as np
import pytest
from compare import assert_close
from folders import document_of, program_in, sign
from test_layouts import MLP, Layout, LeNet, Train, Transformer

import miniflow as flow
from miniflow import nn

S, B = flow.sbp.split, flow.sbp.broadcast


@pytest.fixture(autouse=True)
def alone():
    yield
    flow.parallel.simulate(1)


@pytest.mark.few(3)
@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(1, 2, 2, 1), Layout(2, 1, 2, 3), Layout(1, 3)], ids=str)
@pytest.mark.parametrize("make", [MLP, LeNet, Transformer])
def test_training_goes_on(make, layout, tmp_path):
    flow.parallel.simulate(layout.pipeline * layout.data * layout.tensor)
    flow.manual_seed(0)
    layout.place(blocks := nn.ModuleList(make.blocks()))
    graph = Train(blocks, layout, 2, False)
    batches = [layout.batch(*map(flow.tensor, make.batch(12, np.random.default_rng(step)))) for step in range(4)]
    for batch in batches[:2]:
        graph(*batch)
    flow.save(graph, tmp_path / "graph")
    flow.manual_seed(2)
    want = [graph(*batch).numpy() for batch in batches[2:]]
    loaded = flow.load(tmp_path / "graph")
    flow.manual_seed(2)
    found = [loaded(*batch).numpy() for batch in batches[2:]]
    assert_close(np.array(found), np.array(want), rtol=0, atol=0)
    assert {name: x.shape for name, x in loaded.state_dict().items()} and loaded.config.zero == graph.config.zero
    flow.save(loaded, tmp_path / "again")
    last = []
    for one in (loaded, flow.load(tmp_path / "again")):
        flow.manual_seed(3)
        last.append(one(*batches[0]).numpy())
    assert_close(last[1], last[0], rtol=0, atol=0)


class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


def saved(path, ranks=2):
    flow.parallel.simulate(ranks)
    place = flow.placement("cpu", list(range(ranks)))
    graph = Predict(nn.Linear(4, 2).to_global(place, B))
    x = flow.ones(4, 4, placement=place, sbp=S(0))
    y = graph(x)
    flow.save(graph, path)
    return x, y


def test_predictions_and_layouts(tmp_path):
    x, y = saved(tmp_path / "graph")
    loaded = flow.load(tmp_path / "graph")
    found = loaded(x)
    assert found.sbp == y.sbp == (S(0),) and found.placement == y.placement
    assert_close(found.numpy(), y.numpy(), rtol=0, atol=0)
    with pytest.raises(flow.errors.DeviceError, match="expected .* with sbp S"):
        loaded(x.to_global(sbp=B))
    with pytest.raises(flow.errors.DeviceError, match="is on cpu; expected"):
        loaded(flow.ones(4, 4))


def test_a_world_of_fewer_ranks(tmp_path):
    saved(tmp_path / "graph", ranks=3)
    flow.parallel.simulate(2)
    with pytest.raises(flow.errors.CheckpointError, match=r"placement.*world of 2.*simulate"):
        flow.load(tmp_path / "graph")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda device: device[1].update(tuple=[{"sbp": "S(2)"}]), "Split axis out of range"),
        (lambda device: device[1].update(tuple=[{"sbp": "B"}] * 2), "2 sbp for a placement of 1"),
        (lambda device: device[1].update(tuple=[{"sbp": "X"}]), "'X'; expected one of B, P"),
        (lambda device: device[1].update(tuple=[1]), r"inputs\[0\]: ArgumentTypeError: load: got sbp=\(1,\)"),
        (lambda device: device[0].update(placement=["cpu", [0, 0]]), "each rank once"),
        (lambda device: device[0].update(placement=["cpu", ["0"]]), "expected a list of ints"),
        (lambda device: device[0].update(placement=["tpu", [0]]), "got type='tpu'"),
        (lambda device: device.__setitem__(0, {"device": "cpu"}), "cpu in place of a placement"),
        (lambda device: device.pop(), r"inputs\[0\]: TypeError: .*missing 1 required"),
    ],
)
def test_damaged_layouts(damage, message, tmp_path):
    saved(tmp_path / "graph")
    document = document_of(tmp_path / "graph")
    damage(program_in(document)["inputs"][0]["slot"]["device"])
    sign(document, tmp_path / "graph")
    with pytest.raises(flow.errors.CheckpointError, match=message):
        flow.load(tmp_path / "graph")
