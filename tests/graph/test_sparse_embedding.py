"""`add_optimizer(optim, is_sparse=True)` as users meet it: embeddings are updated where they were looked up."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import IndexRangeError

ROWS = 40


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(ROWS, 6), nn.Embedding(5, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, i):
        return self.fc((self.words(i) + self.places(flow.arange(5, device=i.device))).mean(1))


class Train(nn.Graph):
    """Embeddings in an optimizer of their own, which may be sparse; the rest in another."""

    def __init__(self, model, make_optimizer, is_sparse, scaler=None, amp=False):
        super().__init__()
        self.model = model
        tables, others = list(model.parameters())[:2], list(model.parameters())[2:]
        self.add_optimizer(make_optimizer(tables), is_sparse=is_sparse)
        self.add_optimizer(flow.optim.SGD(others, lr=0.1))
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.enable_amp(amp, dtype=flow.float16)

    def build(self, i, target):
        loss = nn.functional.cross_entropy(self.model(i), target)
        loss.backward()
        return loss


def make(make_optimizer, is_sparse, device="cpu", **options):
    flow.manual_seed(1)
    model = Words().to(device)
    return Train(model, make_optimizer, is_sparse, **options), model


def batch(step, device="cpu"):
    random = np.random.default_rng(step)
    return (
        flow.tensor(random.integers(0, ROWS // 2, (8, 5)), device=device),
        flow.tensor(random.integers(0, 3, 8), device=device),
    )


def sgd(params):
    return flow.optim.SGD(params, lr=0.5)


def clipped(params):
    return flow.optim.SGD([{"params": params, "clip_grad_max_norm": 0.01}], lr=0.5)


def ops(graph):
    return [i.op.function_name for i in graph._last.program.instructions]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mode", ["plain", "clipped", "scaled", "half"])
def test_sgd_equals_the_dense_update(mode, device):
    options = {"scaler": flow.amp.GradScaler(init_scale=8.0)} if mode in ("scaled", "half") else {}
    options["amp"] = mode == "half"
    optimizer = clipped if mode == "clipped" else sgd
    (sparse, model), (dense, twin) = (make(optimizer, flag, device, **options) for flag in (True, False))
    for step in range(4):
        assert_close(sparse(*batch(step, device)), dense(*batch(step, device)), rtol=1e-5)
    assert "group_rows" in ops(sparse) and "embedding_grad" not in ops(sparse)
    assert "embedding_grad" in ops(dense) and "group_rows" not in ops(dense)
    exact = mode == "plain" and device == "cpu"
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        (assert_same if exact else assert_close)(p.detach(), q.detach())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_adam_is_lazy(device):
    """After a first step on half of the rows, a second that looks up others leaves the first ones where they are."""
    graph, model = make(lambda ps: flow.optim.Adam(ps, lr=0.1), True, device)
    dense, twin = make(lambda ps: flow.optim.Adam(ps, lr=0.1), False, device)
    low, high = flow.tensor(np.full((2, 5), 3), device=device), flow.tensor(np.full((2, 5), 7), device=device)
    target = flow.tensor([0, 1], device=device)
    for g in (graph, dense):
        g(low, target)
    assert_close(model.words.weight.detach(), twin.words.weight.detach())
    before = model.words.weight.detach().clone()
    for g in (graph, dense):
        g(high, target)
    assert_same(model.words.weight.detach()[3], before[3])
    assert not np.array_equal(twin.words.weight.detach()[3].cpu().numpy(), before[3].cpu().numpy())
    assert_close(model.words.weight.detach()[7], twin.words.weight.detach()[7])


def test_a_table_that_is_also_a_weight_is_updated_densely_with_a_warning():
    class Tied(Words):
        def forward(self, i):
            return self.fc(self.words(i).mean(1)) + self.words.weight[:3].sum(1)

    flow.manual_seed(1)
    graph = Train(Tied(), sgd, True)
    message = r"Train_\d+: is_sparse=True: model.words.weight is updated as a whole: its gradient comes from add|slice"
    with pytest.warns(UserWarning, match=message):
        graph(*batch(0))
    assert "embedding_add" in ops(graph) and "group_rows" not in ops(graph)


def test_switched_off_the_update_is_dense():
    graph, _ = make(sgd, True)
    graph.config.disable_pass("sparse_update")
    graph(*batch(0))
    assert "embedding_grad" in ops(graph)


def test_an_index_outside_the_table_is_an_error_and_nothing_is_updated():
    graph, model = make(sgd, True)
    graph(*batch(0))
    before = model.words.weight.detach().clone()
    i, target = batch(1)
    i[0, 0] = ROWS
    with pytest.raises(IndexRangeError, match=f"index {ROWS}"):
        graph(i, target)
    assert_same(model.words.weight.detach(), before)
    graph(*batch(2))


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("wrong", [-2, 5])
def test_indices_are_checked_where_nobody_reads_the_lookup(is_sparse, wrong):
    table = nn.Embedding(5, 2)

    class Sums(nn.Graph):
        def __init__(self):
            super().__init__()
            self.table = table
            self.add_optimizer(flow.optim.SGD(table.parameters(), lr=0.1), is_sparse=is_sparse)

        def build(self, i):
            (self.table(i).sum() + self.table(i + 0).sum()).backward()
            return i

    graph = Sums()
    graph(flow.tensor([0, 1]))
    before = table.weight.detach().clone()
    with pytest.raises(IndexRangeError, match=f"{wrong}"):
        graph(flow.tensor([wrong, 1]))
    assert_same(table.weight.detach(), before)
