"""A saved graph for batches of another size computes what the module computes for them."""

import pytest
from compare import assert_close

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError, ShapeError


class Step(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x):
        return self.module(x)


class Attention(nn.Module):
    def forward(self, x):
        heads = x.reshape(x.shape[0], 5, 2, 4).transpose(1, 2)
        mixed = flow.softmax(heads @ heads.transpose(-1, -2), -1) @ heads
        return mixed.transpose(1, 2).reshape(x.shape[0], 5, 8)[:, 0].unsqueeze(1)


class MergedHeads(nn.Module):
    """The batch is a factor of a dim, behind another one."""

    def forward(self, x):
        y = x.transpose(0, 1).reshape(5 * x.shape[0], 8).reshape(5, x.shape[0], 8)
        return y.transpose(0, 1).reshape(x.shape[0] * 5, 2, 4).flip(0).reshape(-1, 40).flip(0)


class ClassToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(flow.randn(1, 1, 8))

    def forward(self, x):
        return flow.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.token.expand(x.shape[0], 1, 8)


MODULES = {
    "attention": Attention,
    "merged": MergedHeads,
    "token": ClassToken,
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 3), nn.ReLU()),
    "convolution": lambda: nn.Sequential(nn.Conv1d(5, 6, 3), nn.BatchNorm1d(6), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
    "indices": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4)),
}


def loaded(module, folder, rows):
    graph = Step(module.eval())
    graph(flow.randn(rows, 5, 8))
    flow.save(graph, folder / "graph")
    return flow.load(folder / "graph")


@pytest.mark.parametrize("saved_with", [1, 2, 4, 5])
@pytest.mark.parametrize("name", MODULES)
def test_the_results_are_those_of_the_module(name, saved_with, tmp_path):
    module = MODULES[name]()
    graph = loaded(module, tmp_path, saved_with)
    for rows in (1, 2, 3, 10):
        x = flow.randn(rows, 5, 8)
        assert_close(graph.for_rows(rows)(x), module(x))
    assert graph.for_rows(3).for_rows(saved_with)(x := flow.randn(saved_with, 5, 8)).shape == graph(x).shape


def test_weights_are_shared(tmp_path):
    graph = loaded(nn.Linear(8, 2), tmp_path, 2)
    other = graph.for_rows(3)
    graph.state_dict()["module.bias"].copy_(flow.tensor([10.0, 20.0]))
    assert_close(other.state_dict()["module.bias"], flow.tensor([10.0, 20.0]))
    x = flow.randn(3, 5, 8)
    assert_close(other(x)[:2], graph(x[:2]))


def test_results_live_on_when_another_size_runs(tmp_path):
    graph = loaded(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)), tmp_path, 2)
    sizes = {rows: graph.for_rows(rows) for rows in (1, 3, 7)}
    batches = {rows: flow.randn(rows, 5, 8) for rows in sizes}
    found = {rows: sizes[rows](x) for rows, x in batches.items()}
    kept = {rows: y.clone() for rows, y in found.items()}
    for rows, x in batches.items():
        sizes[rows](-x)
        assert_close(found[rows], kept[rows])


def test_a_constant_of_the_batch_is_refused(tmp_path):
    class Noise(nn.Module):
        def forward(self, x):
            return x + flow.arange(x.shape[0]).reshape(-1, 1, 1)

    graph = loaded(Noise(), tmp_path, 4)
    with pytest.raises(ShapeError, match=r"add: got operands|broadcast|shapes"):
        graph.for_rows(3)


def test_results_without_the_batch_are_refused(tmp_path):
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(0)

    graph = loaded(Mean(), tmp_path, 4)
    with pytest.raises(GraphError, match=r"for a batch of 3 rows the results are"):
        graph.for_rows(3)


def test_a_batch_that_is_cut_is_refused(tmp_path):
    class Halves(nn.Module):
        def forward(self, x):
            return x.reshape(2, -1).reshape(x.shape)

    graph = loaded(Halves(), tmp_path, 4)
    with pytest.raises((GraphError, ShapeError), match="view: "):
        graph.for_rows(3)
