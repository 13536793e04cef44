"""What layouts operators choose, and what that sends: no more for a batch that the ranks do not divide, nothing for
what each of them can read, look up or reduce by itself."""

import numpy as np
import pytest
from checks import assert_same
from compare import assert_close
from global_training import Layout, Transformer

import miniflow as flow
from miniflow.errors import IndexRangeError, ShapeError
from miniflow.nn import functional as F
from miniflow.parallel import boxing, dispatch
from miniflow.parallel.dispatch import make_plan
from miniflow.sbp import show
from tools import tensor_parallel_bytes

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(100, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def eight_ranks():
    flow.parallel.simulate(8)
    yield
    flow.parallel.simulate(1)


def sent(function):
    """What a function returns, and the bytes that were sent meanwhile."""
    before = sum(flow.parallel.stats().values())
    result = function()
    return result, sum(flow.parallel.stats().values()) - before


def step_bytes(data, tensor, batch):
    """Of one training step."""
    flow.manual_seed(0)
    model, layout = Transformer(width=24), Layout(data, tensor)
    layout.place(model)
    random = np.random.default_rng(0)
    tokens, labels = random.integers(0, 20, (batch, 6)), random.integers(0, 20, batch * 6)
    x, y = layout.batch([flow.tensor(tokens), flow.tensor(labels)])
    optimizer = flow.optim.SGD(model.parameters(), lr=0.05)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    return sent(step)[1]


@pytest.mark.parametrize(("data", "tensor"), [(2, 1), (3, 1), (4, 1), (2, 2), (2, 4)])
def test_a_batch_that_the_ranks_do_not_divide_costs_little_more(data, tensor):
    """A step sends the gradients, whatever the batch, and something for each sample, on two dimensions."""
    small, large = step_bytes(data, tensor, data), step_bytes(data, tensor, 2 * data)
    for batch in range(1, 10):
        expected = small + (large - small) * max(0, batch - data) / data
        assert step_bytes(data, tensor, batch) <= 1.3 * expected, batch


def test_a_linear_layer_of_rows_of_several_dims_sends_nothing():
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    layer = flow.nn.Linear(64, 64).to_global(mesh, (B, B))
    x = flow.zeros(6, 8, 64, placement=mesh, sbp=(S(0), B), requires_grad=True)
    y, count = sent(lambda: layer(x))
    assert y.sbp == (S(0), B) and count == 0
    dy = flow.ones(6, 8, 64, placement=mesh, sbp=(S(0), B))
    gradients, count = sent(lambda: flow.autograd.grad(y, [x, layer.weight, layer.bias], dy))
    assert [g.sbp for g in gradients] == [(S(0), B), (P, B), (P, B)] and count == 0


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [((S(0), B), (B, B), (S(0), B)), ((S(0), S(1)), (B, B), (S(0), S(1)))],
    ids=lambda sbp: show(sbp),
)
def test_a_product_with_what_all_have_stays_as_it_is(a, b, result):
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    x, y = (flow.ones(8, 8, placement=mesh, sbp=sbp) for sbp in (a, b))
    z, count = sent(lambda: x * y)
    assert z.sbp == result and count == 0


def test_dimensions_of_a_mesh_count_their_own_ranks():
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    x = flow.tensor(np.arange(48.0).reshape(6, 8), placement=mesh, sbp=(S(0), B))
    y, count = sent(lambda: x.reshape(48))
    assert y.sbp == (S(0), B) and count == 0  # 2 divides 6, 4 does not
    x = flow.tensor(np.arange(48.0).reshape(6, 8), placement=mesh, sbp=(S(0), S(0)))
    assert_same(x.reshape(48).numpy(), np.arange(48.0))


def test_no_other_signature_is_looked_at_where_the_operands_fit(monkeypatch):
    cube = flow.placement("cpu", np.arange(8).reshape(2, 2, 2))
    x, y = (flow.ones(8, 8, 8, placement=cube, sbp=(S(0), B, S(1))) for _ in range(2))
    monkeypatch.setattr(boxing, "cost", None)
    assert (x + y).sbp == (S(0), B, S(1))


def like(x, values):
    """Integers where x is; broadcast."""
    return flow.tensor(np.array(values), **({"placement": x.placement, "sbp": B} if x.is_global else {}))


READS = {
    "rows": lambda x: x[10:20],
    "chunk": lambda x: x.chunk(4)[1],
    "every third": lambda x: x[-20::3],
    "every seventh, from all ranks": lambda x: x[3:95:7, 1::2],
    "row": lambda x: x[5],
    "negative": lambda x: x[-1, 2:],
    "new dims": lambda x: x[None, 3:60, None],
    "indices": lambda x: x[[1, 50, 99, -1]],
    "indices of two dims": lambda x: x[like(x, [[1, 50], [99, 3]])],
    "coordinates": lambda x: x[[1, 50, 99], [0, 7, 1]],
    "gather": lambda x: x.gather(0, like(x, np.full((3, 8), 77))),
    "index_select": lambda x: x.index_select(0, like(x, [3, 98])),
    "embedding": lambda x: F.embedding(like(x, [[3, 98]]), x),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_read_along_a_split_dim_is_a_partial_sum(name, four_ranks_of_eight):
    x = flow.tensor(TABLE, placement=four_ranks_of_eight, sbp=S(0), requires_grad=True)
    local = flow.tensor(TABLE, requires_grad=True)
    y, count = sent(lambda: READS[name](x))
    assert y.sbp == (P,) and count == 0
    want = READS[name](local)
    assert_same(y.numpy(), want.numpy())
    weights = np.random.default_rng(1).normal(size=want.shape).astype(np.float32)
    (y * flow.tensor(weights, placement=four_ranks_of_eight, sbp=B)).sum().backward()
    (want * flow.tensor(weights)).sum().backward()
    assert x.grad.sbp == (S(0),)
    assert_close(x.grad.numpy(), local.grad.numpy(), rtol=1e-6, atol=1e-6)


@pytest.fixture
def four_ranks_of_eight():
    return flow.placement("cpu", range(4))


def test_the_gradient_of_a_table_that_is_split_is_no_larger_than_a_part(four_ranks_of_eight, monkeypatch):
    table = flow.tensor(TABLE, placement=four_ranks_of_eight, sbp=S(0), requires_grad=True)
    local, words = flow.tensor(TABLE, requires_grad=True), np.array([[60, 10, 61], [0, 60, 99]])
    tokens = flow.tensor(words, placement=four_ranks_of_eight, sbp=B)
    loss = F.embedding(tokens, table, padding_idx=60).to_global(sbp=B).square().sum()
    made = []
    monkeypatch.setattr(
        dispatch, "make_plan", lambda op, *rest: made.append((op, plan := make_plan(op, *rest))) or plan
    )
    _, count = sent(loss.backward)
    (gradient,) = [plan.results[0] for op, plan in made if op.__name__ == "EmbeddingGrad"]
    assert count == 0 and gradient.sbp == table.grad.sbp == (S(0),)
    F.embedding(flow.tensor(words), local, padding_idx=60).square().sum().backward()
    assert_close(table.grad.numpy(), local.grad.numpy(), rtol=1e-6)


WRITES = {
    "rows": (slice(10, 40), 1.0),
    "rows of values": (slice(10, 40), np.arange(8.0)),
    "one for each row": (slice(10, 40, 3), np.arange(10.0)[:, None]),
    "row": (5, np.arange(8.0)),
    "part": ((slice(70, None), slice(2, 5)), np.arange(90.0).reshape(30, 3)),
    "indices": ([1, 50, 99], np.arange(24.0).reshape(3, 8)),
    "number at indices": ([-1, 3], 7.0),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_along_a_split_dim_goes_to_its_ranks(name, four_ranks_of_eight):
    index, value = WRITES[name]
    x, want = flow.tensor(TABLE, placement=four_ranks_of_eight, sbp=S(0)), TABLE.copy()
    want[index] = value
    if isinstance(value, np.ndarray):
        value = flow.tensor(value.astype(np.float32), placement=four_ranks_of_eight, sbp=B)

    def write():
        x[index] = value

    _, count = sent(write)
    assert count == 0 and x.sbp == (S(0),)
    assert_same(x.numpy(), want)


def test_an_index_that_no_rank_has_is_refused(four_ranks_of_eight):
    x = flow.tensor(TABLE, placement=four_ranks_of_eight, sbp=S(0))
    for wrong in (lambda: F.embedding(flow.tensor([100], placement=x.placement, sbp=B), x), lambda: x[[3, 100]]):
        with pytest.raises(IndexRangeError, match="100 is out of range for dim 0 of size 100"):
            wrong()


REDUCTIONS = {
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(0)[0],
    "index of max": lambda x: x.max(0, keepdim=True)[1],
    "argmin": lambda x: x.argmin(0),
    "norm": lambda x: x.norm(dim=0),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(0, correction=0),
    "any": lambda x: (x > 2).any(0),
    "all": lambda x: (x > -2).all(0),
    "prod": lambda x: x.prod(0),
    "maximum norm": lambda x: x.norm(float("inf")),
}


@pytest.mark.parametrize("nan", [False, True], ids=["numbers", "with NaN"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_a_split_dim_sends_its_result(name, nan, four_ranks_of_eight):
    values = TABLE.copy()
    values[70, 3] = np.nan if nan else 9.0
    values[[20, 80], 5] = 9.0  # equal ones: the first counts
    x = flow.tensor(values, placement=four_ranks_of_eight, sbp=S(0), requires_grad=True)
    local = flow.tensor(values, requires_grad=True)
    y, count = sent(lambda: REDUCTIONS[name](x))
    want = REDUCTIONS[name](local)
    assert_close(y.numpy(), want.numpy(), rtol=2e-6, atol=1e-30)
    # two all-reduces of the result, or one, in int64 for indices, and what a partial sum of it still owes
    assert count <= 2 * 2 * 3 * want.numel() * 8 < 3 * values.nbytes
    if want.requires_grad and not nan:
        y.sum().backward()
        want.sum().backward()
        assert_close(x.grad.numpy(), local.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("function", ["max", "argmin"])
def test_the_error_for_no_elements_names_the_dim_as_one_of_local_tensors_does(function, four_ranks_of_eight):
    x = flow.zeros(0, 3, placement=four_ranks_of_eight, sbp=S(0))
    for y in (x, x.to_local()):
        with pytest.raises(ShapeError, match=rf"^{function}: got shape \(0, 3\) and dim=0: no elements to reduce"):
            getattr(y, function)(-2)


def test_the_deviation_of_equal_numbers_has_no_slope(four_ranks_of_eight):
    x = flow.ones(8, 2, placement=four_ranks_of_eight, sbp=S(0), requires_grad=True)
    x.std(0).sum().backward()
    assert_same(x.grad.numpy(), np.zeros((8, 2), np.float32))


OPTIONS = [
    {},
    {"label_smoothing": 0.1},
    {"ignore_index": 3},
    {"weight": True},
    {"weight": True, "label_smoothing": 0.2},
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
def test_cross_entropy_of_classes_that_are_split(options, reduction, four_ranks_of_eight):
    logits, classes = RANDOM.normal(size=(6, 200)).astype(np.float32), np.array([0, 3, 199, 50, 150, 100])
    options = dict(options, reduction=reduction)
    local_options = dict(options)
    if "weight" in options:
        weight = RANDOM.uniform(0.5, 2, 200).astype(np.float32)
        options["weight"] = flow.tensor(weight, placement=four_ranks_of_eight, sbp=B)
        local_options["weight"] = flow.tensor(weight)
    x = flow.tensor(logits, placement=four_ranks_of_eight, sbp=S(1), requires_grad=True)
    local = flow.tensor(logits, requires_grad=True)
    target = flow.tensor(classes, placement=four_ranks_of_eight, sbp=B)
    loss, count = sent(lambda: F.cross_entropy(x, target, **options))
    want = F.cross_entropy(local, flow.tensor(classes), **local_options)
    assert_close(loss.numpy(), want.numpy(), rtol=2e-6, atol=1e-6)
    assert count < 0.3 * logits.nbytes
    _, count = sent(lambda: loss.sum().backward())
    want.sum().backward()
    assert x.grad.sbp == (S(1),) and count < 0.3 * logits.nbytes
    assert_close(x.grad.numpy(), local.grad.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("sbp", [S(0), S(1), S(2), B, P], ids=str)
def test_cross_entropy_of_pixels(sbp, four_ranks_of_eight):
    logits, classes = RANDOM.normal(size=(7, 13, 5)).astype(np.float32), RANDOM.integers(0, 13, (7, 5))
    x = flow.tensor(logits, placement=four_ranks_of_eight, sbp=sbp, requires_grad=True)
    local = flow.tensor(logits, requires_grad=True)
    loss = F.cross_entropy(x, flow.tensor(classes, placement=four_ranks_of_eight, sbp=S(0)))
    want = F.cross_entropy(local, flow.tensor(classes))
    loss.backward()
    want.backward()
    assert_close(loss.item(), want.item(), rtol=1e-6)
    assert_close(x.grad.numpy(), local.grad.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("sbp", [S(0), S(1), B, P], ids=str)
def test_cross_entropy_of_rows_that_are_all_ignored_has_gradients_of_zero(sbp, four_ranks_of_eight):
    x = flow.tensor(RANDOM.normal(size=(6, 5)), placement=four_ranks_of_eight, sbp=sbp, requires_grad=True)
    loss = F.cross_entropy(x, flow.full((6,), -100, placement=four_ranks_of_eight, sbp=S(0)))
    (gradient,) = flow.autograd.grad(loss, x, create_graph=True)
    (second,) = flow.autograd.grad(gradient.square().sum(), x)
    assert np.isnan(loss.item()) and not gradient.numpy().any() and not second.numpy().any()


def test_the_figure_of_a_block_shows_what_is_sent():
    """docs/images/tensor_parallel_bytes.svg; forward sends two partial sums of (7, 16, 64), each twice."""
    meter = tensor_parallel_bytes.measured()
    now = tensor_parallel_bytes.totals(meter)
    text = tensor_parallel_bytes.PICTURE.read_text(encoding="utf-8")
    for way, before in tensor_parallel_bytes.BEFORE.items():
        assert f">{way}: {sum(before):,} bytes before, {sum(now[way]):,} now<" in text
        for stage, n in zip(tensor_parallel_bytes.STAGES, now[way], strict=True):
            names = ", ".join(sorted(meter.get((way, stage), ()))).replace("_", "-")
            assert not n or f">{n:,} {names}<" in text, "run: python tools/tensor_parallel_bytes.py"
    assert sum(now["forward"]) == 4 * 7 * 16 * 64 * 4
    assert 3 * sum(now["backward"]) < sum(tensor_parallel_bytes.BEFORE["backward"])


def test_a_signature_that_owes_a_sum_says_so(capsys):
    where = flow.placement("cpu", [0, 1])
    x, w = (flow.ones(4, 4, placement=where, sbp=sbp) for sbp in (S(1), S(1)))
    text = flow.sbp.explain(flow.matmul, x, w)
    assert capsys.readouterr().out == text + "\n"
    lines = text.splitlines()
    assert lines[1].startswith("->") and "S(1), S(0) => P: 32 bytes, 64 owed" in text
    costs = [
        sum(int(word.strip(",")) for word in line.split(": ")[1].split() if word.strip(",").isdigit())
        for line in lines[1:]
    ]
    assert costs == sorted(costs)
