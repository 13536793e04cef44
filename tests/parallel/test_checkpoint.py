"""States saved by all ranks together: written part by part, loaded in any layout."""

import json

import numpy as np
import pytest
from checks import assert_same
from global_training import Layout, Transformer, train

import miniflow as flow
from miniflow.errors import ArgumentError, CheckpointError, ShapeError

checkpoint = flow.distributed.checkpoint
S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


@pytest.mark.parametrize("after", [B, S(0), S(1)], ids=str)
@pytest.mark.parametrize("before", [B, S(0), S(1), P], ids=str)
def test_other_layout_and_other_ranks(before, after, four_ranks, tmp_path):
    x = flow.tensor(X, placement=flow.placement("cpu", [[0, 1], [2, 3]]), sbp=(before, S(1)))
    checkpoint.save({"a": {"x": x, "n": [3, "text", None]}, "half": flow.tensor(X).bfloat16()}, tmp_path / "state")
    parts = [part for f in (tmp_path / "state").glob("rank_*") for part in [f.stat().st_size]]
    assert len(parts) == 4
    y = flow.zeros(5, 6, placement=flow.placement("cpu", [1, 0]), sbp=after)
    state = {"a": {"x": y, "n": [0, "", 1]}, "half": flow.zeros(5, 6, dtype=flow.bfloat16)}
    checkpoint.load(state, tmp_path / "state")
    np.testing.assert_allclose(y.numpy(), X, rtol=1e-6, atol=1e-6)
    assert state["a"]["n"] == [3, "text", None] and y.sbp == (after,)
    assert_same(state["half"], flow.tensor(X).bfloat16())


def test_a_replicated_tensor_is_written_once(four_ranks, tmp_path):
    x = flow.ones(1000, 100, placement=four_ranks, sbp=B)
    checkpoint.save({"x": x}, tmp_path / "state")
    assert sum(f.stat().st_size for f in (tmp_path / "state").iterdir()) < 410_000
    checkpoint.save({"x": x.to_global(sbp=S(0))}, tmp_path / "state")
    assert max(f.stat().st_size for f in (tmp_path / "state").iterdir()) < 101_000
    assert [f.name for f in tmp_path.iterdir()] == ["state"]


def test_a_training_goes_on_in_another_layout(four_ranks, tmp_path):
    _, want, _, model = train(Transformer, Layout(1, 4), steps=2)
    checkpoint.save(model.state_dict(), tmp_path / "state")
    flow.manual_seed(5)
    other = Transformer()
    Layout(2, 1).place(other)
    checkpoint.load(other.state_dict(), tmp_path / "state")
    for name, value in other.state_dict().items():
        assert_same(value.numpy(), want[name])


def test_views_see_what_was_loaded(four_ranks, tmp_path):
    checkpoint.save({"x": flow.tensor(X, placement=four_ranks, sbp=S(0))}, tmp_path / "state")
    x = flow.zeros(5, 6, placement=four_ranks, sbp=S(0))
    view = x[1:4]
    checkpoint.load({"x": x}, tmp_path / "state")
    assert_same(view.numpy(), X[1:4])


def test_errors(four_ranks, tmp_path):
    state = {"x": flow.zeros(4, 4, placement=four_ranks, sbp=S(0))}
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoint.load(state, tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="x/y is a set"):
        checkpoint.save({"x": {"y": {1}}}, tmp_path / "state")
    checkpoint.save(state, tmp_path / "state")
    with pytest.raises(CheckpointError, match="no tensor z"):
        checkpoint.load({"z": state["x"]}, tmp_path / "state")
    with pytest.raises(CheckpointError, match="has no n"):
        checkpoint.load({"n": 1}, tmp_path / "state")
    checkpoint.save({"o": {"state": {0: {"step": 3}}}}, tmp_path / "optimizer")
    with pytest.raises(CheckpointError, match="o/state/0/step, where the state has an empty dict"):
        checkpoint.load({"o": {"state": {}}}, tmp_path / "optimizer")
    with pytest.raises(ShapeError, match="x has shape"):
        checkpoint.load({"x": flow.zeros(4, 5)}, tmp_path / "state")
    with pytest.raises(ArgumentError, match="partial sum"):
        checkpoint.load({"x": state["x"].to_global(sbp=P)}, tmp_path / "state")
    damaged = tmp_path / "state" / "rank_3.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\1")
    with pytest.raises(CheckpointError, match="of rank 3 is damaged: its checksum is wrong"):
        checkpoint.load(state, tmp_path / "state")
    (tmp_path / "state" / "rank_2.safetensors").unlink()
    with pytest.raises(CheckpointError, match="of rank 2 cannot be read"):
        checkpoint.load(state, tmp_path / "state")
    index = json.loads((tmp_path / "state" / "index.json").read_text())
    del index["tensors"]["x"]["parts"][2]
    (tmp_path / "state" / "index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="does not hold all of x"):
        checkpoint.load(state, tmp_path / "state")


def test_what_does_not_fit_changes_nothing(four_ranks, tmp_path):
    checkpoint.save({"x": flow.ones(3), "n": 7, "y": flow.ones(4)}, tmp_path / "state")
    x, partial = flow.zeros(3), flow.zeros(4, placement=four_ranks, sbp=P)
    for y, error in (
        ({"y": flow.zeros(5)}, ShapeError),
        ({"z": flow.zeros(4)}, CheckpointError),
        ({"z": 3}, CheckpointError),
        ({"y": partial}, ArgumentError),
    ):
        state = {"n": 0, "x": x, **y}
        with pytest.raises(error, match="load: "):
            checkpoint.load(state, tmp_path / "state")
        assert state["n"] == 0 and x.tolist() == [0, 0, 0]


def test_one_file_of_global_tensors(four_ranks, tmp_path):
    x = flow.tensor(X, placement=four_ranks, sbp=S(1))
    with pytest.raises(CheckpointError, match="Please set global_dst_rank"):
        flow.save({"x": [x]}, tmp_path / "x.safetensors")
    flow.save({"x": [x], "n": 3}, tmp_path / "x.safetensors", global_dst_rank=2)
    assert_same(flow.load(tmp_path / "x.safetensors")["x"][0], X)
    state = flow.load(tmp_path / "x.safetensors", global_src_rank=1)
    assert state["n"] == 3 and state["x"][0].placement == flow.placement("cpu", [1])
    assert_same(state["x"][0].to_global(four_ranks, S(0)).numpy(), X)
    with pytest.raises(ArgumentError, match="below 4"):
        flow.load(tmp_path / "x.safetensors", global_src_rank=4)


def test_entries_of_tuples_are_replaced(four_ranks, tmp_path):
    checkpoint.save({"groups": [{"betas": (0.5, 0.6), "lr": 0.1}]}, tmp_path / "state")
    state = {"groups": [{"betas": (0.9, 0.99), "lr": 0.3}]}
    checkpoint.load(state, tmp_path / "state")
    assert state == {"groups": [{"betas": (0.5, 0.6), "lr": 0.1}]}


def test_keys_with_a_slash(four_ranks, tmp_path):
    checkpoint.save({"a/b": flow.tensor(X), "c": {1: {"d/e": 3}}}, tmp_path / "state")
    state = {"a/b": flow.zeros(5, 6), "c": {1: {"d/e": 0}}}
    checkpoint.load(state, tmp_path / "state")
    assert_same(state["a/b"], flow.tensor(X))
    assert state["c"] == {1: {"d/e": 3}}
    with pytest.raises(CheckpointError, match="two entries of the state are called a/b"):
        checkpoint.save({"a/b": 1, "a": {"b": 2}}, tmp_path / "other")


def test_a_training_graph_in_one_file(four_ranks, tmp_path):
    def make():
        flow.manual_seed(0)
        model = flow.nn.Linear(6, 2).to_global(four_ranks, B)

        class Train(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.1))

            def build(self, x):
                loss = self.model(x).sum()
                loss.backward()
                return loss

        return Train()

    x, first, second = flow.tensor(X, placement=four_ranks, sbp=B), make(), make()
    for _ in range(3):
        first(x)
    flow.save(first.state_dict(), tmp_path / "state", global_dst_rank=0)
    second.load_state_dict(flow.load(tmp_path / "state", global_src_rank=0))
    for _ in range(2):
        assert_same(second(x), first(x))


def test_global_and_local_states_are_told_apart(four_ranks):
    local, spread = flow.nn.Linear(6, 2), flow.nn.Linear(6, 2).to_global(four_ranks, B)
    pairs = [(spread, local, "local; expected a global"), (local, spread, "a global tensor; expected a local")]
    for model, other, problem in pairs:
        with pytest.raises(CheckpointError, match=f"nothing was loaded.*\n *weight is {problem}"):
            model.load_state_dict(other.state_dict())
    optimizers = {}
    for model in (local, spread):
        optimizers[model] = flow.optim.Adam(model.parameters())
        optimizers[model].create_state()
        for p in model.parameters():
            p.grad = flow.ones_like(p)
        optimizers[model].step()
    for model, other, problem in pairs:
        with pytest.raises(CheckpointError, match=f"exp_avg of parameter 0 is {problem}"):
            optimizers[model].load_state_dict(optimizers[other].state_dict())
