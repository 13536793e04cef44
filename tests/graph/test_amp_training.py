"""Mixed precision in a graph: loss scaling, steps that are left out, `enable_amp`, and autocast regions in `build`."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.amp import GradScaler, StaticGradScaler
from miniflow.errors import ArgumentError

ON_EVERY_DEVICE = True
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
T = np.arange(8) % 3
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "RMSprop": {"lr": 0.01, "momentum": 0.9},
    "Adagrad": {"lr": 0.1},
}


def make_model(seed=0):
    draw = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    with flow.no_grad():
        for p in model.parameters():
            p.copy_(flow.tensor(draw.normal(size=tuple(p.shape)).astype(np.float32) * 0.5))
    return model


class TrainGraph(nn.Graph):
    def __init__(self, model, optimizer, scaler=None, *, amp=None, schedule=None, region=None):
        super().__init__()
        self.model = model
        self.region = region
        self.add_optimizer(optimizer, **({} if schedule is None else {"lr_sch": schedule}))
        if scaler is not None:
            self.set_grad_scaler(scaler)
        if amp is not None:
            self.config.enable_amp(True, dtype=amp)

    def build(self, x, t):
        if self.region is None:
            loss = nn.functional.cross_entropy(self.model(x), t)
        else:
            with flow.autocast(x.device.type, dtype=self.region):
                loss = nn.functional.cross_entropy(self.model(x), t)
        loss.backward()
        return loss


def eager_step(model, optimizer, scaler, region=None):
    optimizer.zero_grad()
    with flow.autocast(flow.get_default_device().type, dtype=region, enabled=region is not None):
        loss = nn.functional.cross_entropy(model(flow.tensor(X)), flow.tensor(T))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def plain(value):
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.tolist() if isinstance(value, flow.Tensor) else value


def picture(model, optimizer):
    """Parameters, the optimizer's states and options."""
    return plain([dict(model.named_parameters()), optimizer.state_dict()])


def with_inf():
    x = X.copy()
    x[3, 2] = np.inf
    return flow.tensor(x)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_infinities_changes_nothing_but_the_scale(name):
    model = make_model()
    optimizer = getattr(flow.optim, name)(model.parameters(), **OPTIMIZERS[name])
    scaler = GradScaler(init_scale=1024.0, growth_interval=2)
    graph = TrainGraph(model, optimizer, scaler)
    good, bad, target = flow.tensor(X), with_inf(), flow.tensor(T)
    scales = []
    for x in (bad, good, good, bad, bad, good):
        before = picture(model, optimizer)
        steps = graph.state_dict()["System-Train-TrainStep"].item()
        loss = graph(x, target)
        changed = picture(model, optimizer) != before
        assert changed == (x is good) == bool(np.isfinite(loss.item()))
        assert graph.state_dict()["System-Train-TrainStep"].item() == steps + changed
        scales.append(scaler.get_scale())
    assert scales == [512, 512, 1024, 512, 256, 256]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_scaled_graph_computes_what_the_scaled_eager_step_computes(name):
    """Bit for bit, with one overflow on the way; the scale is a power of two, so without a scaler too."""
    one, two, three = make_model(), make_model(), make_model()
    scaler, eager_scaler = (GradScaler(init_scale=2.0**10, growth_interval=2) for _ in range(2))
    make = getattr(flow.optim, name)
    a, b, c = (make(m.parameters(), **OPTIMIZERS[name]) for m in (one, two, three))
    graph = TrainGraph(one, a, scaler)
    for _ in range(5):
        loss = graph(flow.tensor(X), flow.tensor(T))
        assert_same(loss, eager_step(two, b, eager_scaler).detach())
        eager_step(three, c, GradScaler(enabled=False))
    assert scaler.state_dict() == eager_scaler.state_dict()
    for p, q, r in zip(one.parameters(), two.parameters(), three.parameters(), strict=True):
        assert_close(p.detach(), q.detach(), rtol=2e-6, atol=1e-7)
        assert_same(q.detach(), r.detach())


def test_schedules_wait_for_executed_steps():
    model = make_model()
    optimizer = flow.optim.SGD(model.parameters(), lr=1.0)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    graph = TrainGraph(model, optimizer, GradScaler(init_scale=4.0), schedule=schedule)
    rates = []
    for x in (flow.tensor(X), with_inf(), flow.tensor(X)):
        graph(x, flow.tensor(T))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.5, 0.5, 0.25]


def test_gradients_are_clipped_after_unscaling():
    clip = {"lr": 1.0, "clip_grad_max_norm": 0.01, "clip_grad_norm_type": 2.0}
    models = [make_model(), make_model()]
    before = [p.detach().clone() for p in models[0].parameters()]
    for model, scaler in zip(models, (GradScaler(init_scale=2.0**12), None), strict=True):
        group = {"params": list(model.parameters()), **clip}
        TrainGraph(model, flow.optim.SGD([group], lr=1.0), scaler)(flow.tensor(X), flow.tensor(T))
    change = 0.0
    for old, p, q in zip(before, *[m.parameters() for m in models], strict=True):
        assert_close(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)
        change += ((p.detach() - old) ** 2).sum().item()
    assert abs(change**0.5 - 0.01) < 1e-4


def test_static_scaler():
    models = [make_model(), make_model()]
    scaler = StaticGradScaler(2.0**8)
    for model, s in zip(models, (scaler, None), strict=True):
        graph = TrainGraph(model, flow.optim.SGD(model.parameters(), lr=0.5), s)
        for _ in range(2):
            graph(flow.tensor(X), flow.tensor(T))
    assert scaler.get_scale() == 256.0
    for p, q in zip(*[m.parameters() for m in models], strict=True):
        assert_same(p.detach(), q.detach())


def test_a_scaler_that_graphs_cannot_use_is_refused():
    model = make_model()
    with pytest.raises(ArgumentError, match="Only support 1.0/growth_factor as backoff_factor at the moment, got 0.9"):
        TrainGraph(model, flow.optim.SGD(model.parameters(), lr=0.5), GradScaler(backoff_factor=0.9))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_enable_amp_is_close_to_float32(half):
    """Forward and backward are off by some roundings of 2^-11 or 2^-8; five steps of size 0.1 hardly add to that."""
    dtype = getattr(flow, half)
    low, wide = make_model(), make_model()
    scaler = GradScaler(init_scale=2.0**8)
    graphs = [
        TrainGraph(low, flow.optim.SGD(low.parameters(), lr=0.1), scaler, amp=dtype),
        TrainGraph(wide, flow.optim.SGD(wide.parameters(), lr=0.1)),
    ]
    unit = 2.0**-11 if half == "float16" else 2.0**-8
    for _ in range(5):
        got, want = (graph(flow.tensor(X), flow.tensor(T)) for graph in graphs)
        assert got.dtype is flow.float32
        assert_close(got, want, rtol=12 * unit, atol=12 * unit)
    different = 0
    for p, q in zip(low.parameters(), wide.parameters(), strict=True):
        assert p.dtype is flow.float32
        assert_close(p.detach(), q.detach(), rtol=12 * unit, atol=12 * unit)
        different += (p.detach() != q.detach()).sum().item()
    assert different and scaler.get_scale() == 2.0**8


def test_too_large_a_scale_comes_down_in_float16():
    model = make_model()
    scaler = GradScaler(init_scale=2.0**24)
    graph = TrainGraph(model, flow.optim.SGD(model.parameters(), lr=0.1), scaler, amp=flow.float16)
    before = plain(dict(model.named_parameters()))
    losses = [graph(flow.tensor(X), flow.tensor(T)).item()]
    assert plain(dict(model.named_parameters())) == before and scaler.get_scale() == 2.0**23
    losses += [graph(flow.tensor(X), flow.tensor(T)).item() for _ in range(14)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0] and 1 < scaler.get_scale() < 2.0**23


def test_regions_in_build_are_those_of_eager_code():
    """Bit for bit."""
    one, two = make_model(), make_model()
    a, b = (flow.optim.Adam(m.parameters(), lr=0.01) for m in (one, two))
    scalers = [GradScaler(init_scale=2.0**10) for _ in range(2)]
    graph = TrainGraph(one, a, scalers[0], region=flow.bfloat16)
    for _ in range(3):
        loss = graph(flow.tensor(X), flow.tensor(T))
        assert_same(loss, eager_step(two, b, scalers[1], flow.bfloat16).detach())
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert_close(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)


def test_a_region_around_the_call_does_not_reach_into_the_graph():
    class Product(nn.Graph):
        def build(self, x):
            return x @ x.T

    graph, x = Product(), flow.tensor(X)
    with flow.autocast(x.device.type), pytest.warns(UserWarning, match="does not see the autocast around its call"):
        first = graph(x)
        assert flow.is_autocast_enabled(x.device.type)
    assert first.dtype is flow.float32
    assert_same(first, x @ x.T)


def test_amp_with_gradient_accumulation():
    """The scale, the check and the step are those of the whole batch: one overflow in one micro-batch is enough."""
    model = make_model()
    optimizer = flow.optim.Adam(model.parameters(), lr=0.01)
    scaler = GradScaler(init_scale=2.0**6, growth_interval=1)
    graph = TrainGraph(model, optimizer, scaler, amp=flow.bfloat16)
    graph.config.set_gradient_accumulation_steps(4)
    good, bad, target = flow.tensor(X), with_inf(), flow.tensor(T)
    scales = []
    for x in (good, bad, good):
        before = picture(model, optimizer)
        losses = graph(x, target)
        assert tuple(losses.shape) == (4,)
        assert (picture(model, optimizer) != before) == (x is good)
        scales.append(scaler.get_scale())
    assert scales == [128, 64, 128]


def test_amp_of_a_graph_that_predicts():
    class Predict(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.config.enable_amp(True, dtype=flow.bfloat16)

        def build(self, x):
            return flow.softmax(self.model(x), 1)

    model = make_model().eval()
    got, want = Predict(model)(flow.tensor(X)), flow.softmax(model(flow.tensor(X)), 1)
    assert got.dtype is flow.float32
    assert_close(got, want, rtol=0.1, atol=12 * 2.0**-8)
    assert (got != want).any().item()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).mT / 6**0.5
        return self.out(flow.softmax(scores + mask, -1) @ self.v(x))


@pytest.mark.parametrize("where", ["input", "buffer", "computed"])
def test_a_mask_that_float16_cannot_hold_is_added_in_float32(where):
    """A row that is masked entirely would be nan: -inf everywhere."""
    flow.manual_seed(0)
    model = Attention()
    model.register_buffer("mask", flow.tensor(np.where(np.tril(np.ones((8, 8)), -1), 0, -1e9).astype(np.float32)))

    class Loss(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.enable_amp(True, dtype=flow.float16)

        def build(self, x, mask):
            return loss_of(x, mask)

    def loss_of(x, mask):
        added = {"input": mask, "buffer": model.mask, "computed": (mask < 0).float() * -1e9}[where]
        return (model(x, added) ** 2).mean()

    x, mask = flow.tensor(X), model.mask.clone()
    with flow.autocast(x.device.type, dtype=flow.float16):
        expected = loss_of(x, mask)
    assert_close(Loss()(x, mask), expected.detach(), rtol=2e-3)
