"""Global tensors as users make, print, convert and refuse them."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, AutogradError, PlacementError, ShapeError

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
X = np.arange(12, dtype=np.float32).reshape(4, 3)

FACTORIES = {
    "tensor": lambda **o: flow.tensor(X, **o),
    "zeros": lambda **o: flow.zeros(4, 3, **o),
    "ones": lambda **o: flow.ones(4, 3, **o),
    "full": lambda **o: flow.full((4, 3), 2.5, **o),
    "eye": lambda **o: flow.eye(4, **o),
    "arange": lambda **o: flow.arange(12, **o),
    "linspace": lambda **o: flow.linspace(0, 1, 12, **o),
    "rand": lambda **o: flow.rand(4, 3, **o),
    "randn": lambda **o: flow.randn(4, 3, **o),
    "randint": lambda **o: flow.randint(0, 9, (4, 3), **o),
    "randperm": lambda **o: flow.randperm(12, **o),
    "normal": lambda **o: flow.normal(1.0, 2.0, (4, 3), **o),
    "normal of tensors": lambda **o: flow.normal(flow.tensor(X), flow.tensor([1.0, 2.0, 3.0]), **o),
    "bernoulli": lambda **o: flow.bernoulli(flow.tensor(X) / 12, **o),
    "empty_like": lambda **o: flow.empty_like(flow.tensor(X), **o).fill_(2.5),
    "zeros_like": lambda **o: flow.zeros_like(flow.tensor(X), **o),
    "ones_like": lambda **o: flow.ones_like(flow.tensor(X), **o),
    "full_like": lambda **o: flow.full_like(flow.tensor(X), 2.5, **o),
    "rand_like": lambda **o: flow.rand_like(flow.tensor(X), **o),
    "randn_like": lambda **o: flow.randn_like(flow.tensor(X), **o),
    "randint_like": lambda **o: flow.randint_like(flow.tensor(X), 9, **o),
}


@pytest.mark.parametrize("sbp", [B, S(0), P], ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_make_what_one_device_makes(name, sbp, four_ranks):
    if sbp is P and name.startswith(("rand", "normal", "bernoulli")):
        with pytest.raises(ArgumentError, match="random source op only support"):
            FACTORIES[name](placement=four_ranks, sbp=sbp)
        return
    flow.manual_seed(3)
    want = FACTORIES[name]()
    flow.manual_seed(3)
    x = FACTORIES[name](placement=four_ranks, sbp=sbp)
    assert x.is_global and x.sbp == (sbp,) and x.dtype is want.dtype and not x.requires_grad
    assert_same(x.numpy(), want.numpy())
    assert flow.zeros_like(x).sbp == (B if sbp is P else sbp,)


def test_split_tensors_are_made_in_parts(four_ranks):
    x = flow.zeros(4000, 100, placement=four_ranks, sbp=S(0))
    assert all(shard._array.base is None and shard.shape == (1000, 100) for shard in x.shards.values())


def test_local_to_global_and_back(four_ranks):
    x = flow.tensor(X)
    for sbp, want in ((S(0), np.tile(X, (4, 1))), (S(1), np.tile(X, 4)), (B, X), (P, 4 * X)):
        y = x.to_global(four_ranks, sbp)
        assert_same(y.numpy(), want)
        assert_same(y.to_local(), X)
    assert x.is_local and y.is_global and y.to_global(sbp=P) is y and y.to_global(sbp=P, copy=True) is not y
    with pytest.warns(DeprecationWarning, match="use to_global"):
        assert x.to_consistent(four_ranks, S(0)).sbp == (S(0),)
        assert nn.Linear(2, 2).to_consistent(four_ranks, B).weight.sbp == (B,)
    with pytest.warns(DeprecationWarning, match="use is_global"):
        assert y.is_consistent


def test_like_a_global_tensor(four_ranks):
    """In its layout, or in another one that is asked for; a global mode is for what is made of nothing."""
    x, pair = flow.tensor(X, placement=four_ranks, sbp=S(0)), flow.placement("cpu", [2, 1])
    for like in (flow.zeros_like, flow.rand_like, flow.bernoulli):
        p = (0.5,) if like is flow.bernoulli else ()
        assert like(x, *p).placement == four_ranks and like(x, *p).sbp == (S(0),)
        y = like(x, *p, placement=pair, sbp=S(1))
        assert (y.placement, y.sbp, y.shape) == (pair, (S(1),), x.shape)
        with pytest.raises(ArgumentError, match="expected placement and sbp together"):
            like(x, *p, placement=pair)
        with flow.utils.global_view.global_mode(True, placement=pair, sbp=B):
            assert like(flow.tensor(X).to_local(), *p).is_local and like(x, *p).sbp == (S(0),)


def test_the_current_global_mode(four_ranks):
    view = flow.utils.global_view
    mode = view.current_global_mode()
    assert (mode.is_enabled, mode.placement, mode.sbp) == (False, None, None)
    with view.global_mode(True, placement=four_ranks, sbp=B):
        mode = view.current_global_mode()
        assert (mode.is_enabled, mode.placement, mode.sbp) == (True, four_ranks, (B,))
        with view.global_mode(False):
            assert not view.current_global_mode().is_enabled


@pytest.mark.parametrize("sbp", [B, S(0), S(1), P], ids=str)
def test_where_a_global_tensor_is_not_zero(sbp, four_ranks):
    values = np.where(X % 3 == 1, X, 0)
    x = flow.tensor(values, placement=four_ranks, sbp=sbp)
    coordinates = x.nonzero()
    assert coordinates.sbp == (B,) and coordinates.placement == four_ranks
    assert_same(coordinates.numpy(), np.argwhere(values))
    assert_same(x.argwhere().numpy(), np.argwhere(values))
    assert_same(x[x.nonzero(as_tuple=True)].numpy(), values[values.nonzero()])
    assert_same((x > 0).nonzero().numpy(), np.argwhere(values > 0))
    assert_same(flow.where(x)[1].numpy(), values.nonzero()[1])


def test_a_world_is_as_large_as_an_integer_says():
    for size in (np.int64(3), np.uint8(2), flow.tensor(2).item()):
        flow.parallel.simulate(size)
        assert type(flow.env.get_world_size()) is int and flow.env.get_world_size() == size
    for wrong in (0, -1, 2.0, "2", None):
        with pytest.raises(ArgumentError, match="expected a positive int"):
            flow.parallel.simulate(wrong)
    flow.parallel.simulate(1)


def test_printing(four_ranks):
    x = flow.tensor(X[:2], placement=four_ranks, sbp=S(0))
    assert repr(x) == (
        "tensor([[0., 1., 2.],\n        [3., 4., 5.]],\n"
        '       placement=miniflow.placement(type="cpu", ranks=[0, 1, 2, 3]),\n'
        "       sbp=(miniflow.sbp.split(dim=0),), dtype=miniflow.float32)"
    )
    assert x.sum().item() == 15 and x.tolist() == X[:2].tolist() and len(x) == 2


def test_modules_views_and_devices(four_ranks):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to_global(four_ranks, B)
    assert all(p.sbp == (B,) and p.is_leaf for p in [*model.parameters(), *model.buffers()])
    state = flow.utils.global_view.to_local(model.state_dict())
    assert all(value.is_local for value in state.values())
    spread = flow.utils.global_view.to_global(
        {"a": [flow.tensor(X)], "n": 1}, four_ranks, lambda nest, x: S(x.ndim - 1)
    )
    assert spread["n"] == 1 and spread["a"][0].sbp == (S(1),)
    x = flow.Tensor([1, 2], placement=four_ranks, sbp=B)
    with flow.utils.global_view.global_mode(True, placement=four_ranks, sbp=B):
        assert flow.ones(2).is_global and flow.randn(2, device="cpu").is_global
        assert x.device == flow.device("cpu") and x.to(x.device).is_global
        with flow.utils.global_view.global_mode(False):
            assert flow.ones(2).is_local
    assert flow.ones(2).is_local
    with pytest.raises(PlacementError, match="Only local tensors have 'device'"):
        x.device  # noqa: B018
    assert x.to_local().local_to_global(four_ranks, S(0)).global_to_global(sbp=B).sbp == (B,)
    with pytest.raises(PlacementError, match="expected a local tensor"):
        x.local_to_global(four_ranks, S(0))
    with pytest.raises(PlacementError, match="expected a global tensor"):
        flow.ones(2).global_to_global(four_ranks, S(0))
    x = flow.tensor(X, placement=four_ranks, sbp=S(0)).cuda()
    assert x.placement.type == "cuda" and x.cpu().placement == four_ranks
    assert_same((x @ x.mT).numpy(), X @ X.T)
    assert_same(x.cpu()[x.cpu() > 3].numpy(), X[X > 3])


def test_in_place_operations_keep_the_layout(four_ranks):
    for sbp in (S(0), S(1), B):
        x, want = flow.tensor(X, placement=four_ranks, sbp=sbp), X.copy()
        x.add_(flow.tensor(X, placement=four_ranks, sbp=P))
        x[1:3, 0] = 5.0
        x[:, 1] = flow.tensor(X[:, 2], placement=four_ranks, sbp=S(0))
        x.t().mul_(2)
        want += X
        want[1:3, 0], want[:, 1] = 5, X[:, 2]
        assert x.sbp == (sbp,)
        assert_same(x.numpy(), want * 2)


def g(**options):
    return flow.tensor(X, placement=flow.placement.all("cpu"), sbp=S(0), **options)


WRONG = {
    "only placement": (lambda: flow.zeros(2, placement=flow.placement.all("cpu")), ArgumentError, "together"),
    "and device": (lambda: g(device="cpu"), ArgumentError, "got device= together with placement="),
    "axis": (lambda: flow.zeros(2, placement=flow.placement.all("cpu"), sbp=S(1)), ArgumentError, "out of range"),
    "one for each": (lambda: g().to_global(sbp=(B, B)), ArgumentError, "one for each dimension"),
    "rank": (lambda: flow.placement("cpu", [4]), ArgumentError, "rank must be less than world size"),
    "twice": (lambda: flow.placement("cpu", [0, 0]), ArgumentError, "each rank once"),
    "type": (lambda: flow.placement("tpu", [0]), ArgumentError, "'cpu' or 'cuda'"),
    "empty": (lambda: flow.placement("cpu", []), ArgumentError, "no ranks"),
    "negative": (lambda: flow.sbp.split(-1), ArgumentError, "must not be negative, but got -1!"),
    "large": (lambda: flow.sbp.split(7), ArgumentError, "supported maximum axis"),
    "needs both": (lambda: flow.ones(2).to_global(sbp=B), ArgumentError, "must have placement and sbp"),
    "local": (lambda: flow.ones(2).to_local(), PlacementError, "Expected global tensor for to_local"),
    "device": (lambda: g().device, PlacementError, "Please use '.placement' for global tensors"),
    "placement": (lambda: flow.ones(2).placement, PlacementError, "Please use '.device' for local tensors"),
    "mixed": (lambda: g() + flow.ones(3), PlacementError, "add: .*inconsistent attributes! .*global, local"),
    "places": (lambda: g() + g().to_global(flow.placement("cpu", [0, 1])), PlacementError, "l 0.*l 1"),
    "number": (lambda: g().to("cuda:0"), ArgumentError, "Only string device without device id"),
    "setitem": (lambda: g().__setitem__(0, flow.ones(3)), PlacementError, "global"),
    "shapes": (lambda: g() @ g(), ShapeError, "matmul"),
    "simulate": (lambda: flow.parallel.simulate(0), ArgumentError, "expected a positive int"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, four_ranks):
    function, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        function()


def test_explanations(four_ranks, capsys):
    x, w = g(), flow.ones(3, 4, placement=four_ranks, sbp=B)
    text = flow.sbp.explain(lambda a, b: (a @ b).relu(), x, w)
    assert capsys.readouterr().out == text + "\n"
    assert text.splitlines()[:2] == ["matmul: S(0), B", "-> S(0), B => S(0): 0 bytes"] and "\n\nrelu: S(0)\n" in text
    assert flow.boxing.explain(x, B).splitlines() == ["S(0) to B: 144 bytes", "1. all-gather: S(0) to B, 144 bytes"]
    assert "get its regions" in flow.boxing.explain(x, B, flow.placement("cpu", [1])).replace("gets", "get")
    with pytest.raises(PlacementError, match="no global tensor"):
        flow.sbp.explain(flow.relu, flow.ones(2))


@pytest.mark.parametrize("sbp", [S(0), S(1), B], ids=str)
def test_views_and_writes_see_each_other(sbp, four_ranks):
    """Also views that had to be copied, since the parts that the ranks hold of them are others."""
    values = np.arange(30, dtype=np.float32).reshape(6, 5)
    found = []
    for x in (flow.tensor(values), flow.tensor(values, placement=four_ranks, sbp=sbp)):
        rows = x[1:4]
        columns = rows[:, 1:3]
        x[2, 2] = 50.0
        columns.add_(1)
        rows.mul_(2)
        x[0] = rows[1]
        flat = x.reshape(-1)
        flat[3:9] = 7.0
        x.add_(1)
        x[2:4, 1:3] += 1
        rows[0, 0] = -5.0
        found.append([y.numpy().copy() for y in (x, rows, columns, flat)])
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


def test_no_partial_sum_out_of_what_is_split(four_ranks):
    """It would send nothing, and the sum would have to be made of the result."""
    x, y = (flow.tensor(X, placement=four_ranks, sbp=sbp) for sbp in (S(0), S(1)))
    before = sum(flow.parallel.stats().values())
    assert (x + y).sbp == (S(0),)
    assert sum(flow.parallel.stats().values()) - before == sum(
        part.nbytes
        for r, shard in y.shards.items()
        for s, part in enumerate(np.array_split(shard.numpy(), 4))
        if s != r
    )


def test_narrow_integers_wrap_around_before_they_are_widened(four_ranks):
    x = flow.zeros(2, dtype=flow.int8, placement=four_ranks, sbp=P)
    for shard in x.shards.values():
        shard.copy_(flow.tensor([100, 1], dtype=flow.int8))
    whole = np.array([-112, 4], np.int8)
    assert_same(x.numpy(), whole)
    assert x.sum().item() == -108 and x.mean(dtype=flow.float32).item() == -54
    assert_same(x.float().numpy(), whole.astype(np.float32))


@pytest.mark.parametrize("sbp", [B, S(0), P], ids=str)
def test_half_precision_does_not_overflow_on_the_way_to_a_mean(sbp, four_ranks):
    assert flow.ones(200_000, dtype=flow.float16, placement=four_ranks, sbp=sbp).mean().item() == 1
    logits = flow.zeros(20_000, 100, dtype=flow.float16, placement=four_ranks, sbp=sbp)
    classes = flow.zeros(20_000, dtype=flow.int64, placement=four_ranks, sbp=B if sbp is P else sbp)
    loss = nn.functional.cross_entropy(logits, classes)
    assert loss.dtype is flow.float16 and abs(loss.item() - np.log(100)) < 4e-3


def test_what_numpy_returns_is_a_copy(four_ranks):
    x = flow.zeros(3, placement=four_ranks, sbp=B)
    x.numpy()[:] = 1
    assert all(shard.sum().item() == 0 for shard in x.shards.values())


def test_a_write_to_the_local_part_is_seen_by_backward(four_ranks):
    x = flow.ones(4, placement=four_ranks, sbp=S(0))
    weight = flow.ones(4, placement=four_ranks, sbp=S(0), requires_grad=True)
    loss = (x * weight).sum()
    x.to_local().mul_(5)
    with pytest.raises(AutogradError, match="changed by an in-place operation"):
        loss.backward()


def test_a_gradient_has_the_layout_of_its_leaf(four_ranks):
    """Also where a dim is split among more ranks than it has elements, which operators do not do."""
    x = flow.tensor(X[:2], placement=four_ranks, sbp=S(0), requires_grad=True)
    y = x.to_global(sbp=S(1))
    (y * y).sum().backward()
    assert x.grad.sbp == (S(0),)
    assert_same(x.grad.numpy(), 2 * X[:2])


@pytest.mark.parametrize("sbp", [flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)], ids=str)
@pytest.mark.parametrize(
    "fill", [flow.nn.init.eye_, flow.nn.init.orthogonal_, lambda x: flow.nn.init.sparse_(x, 0.3), flow.nn.init.normal_]
)
def test_initialization_of_global_tensors(fill, sbp, four_ranks):
    found = []
    for options in ({"placement": four_ranks, "sbp": sbp}, {}):
        flow.manual_seed(0)
        found.append(fill(flow.zeros(5, 5, **options)).numpy())
    np.testing.assert_array_equal(*found)
