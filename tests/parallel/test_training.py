"""Training in data parallel, tensor parallel and mixed layouts is training on one device."""

import copy
import functools

import numpy as np
import pytest
from compare import assert_close
from global_training import CNN, Layout, Step, Transformer, train

import miniflow as flow

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


@functools.cache
def alone(make):
    return train(make)[:2]


@pytest.mark.few(7)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize(("data", "tensor"), [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2)])
@pytest.mark.parametrize("make", [Transformer, CNN])
def test_losses_and_weights(make, data, tensor, graph, four_ranks):
    losses, state, sent, model = train(make, Layout(data, tensor), graph=graph)
    want, weights = alone(make)
    assert_close(losses, want, rtol=1e-5, atol=0)
    for name, value in weights.items():
        assert_close(state[name], value, rtol=1e-4, atol=2e-6, what=name)
    assert len(set(sent[1:])) == 1  # every step sends the same
    gradients = 4 * sum(shard_size(p) for p in model.parameters())
    if tensor == 1:  # an all-reduce of every gradient, and a few sums of the loss
        rest = sent[-1] - 2 * (data - 1) * gradients
        normalised = 8 * 8 * 16 * 16 * 4  # bytes; batch norm goes by channels: there and back, forward and backward
        assert 0 <= rest <= (3000 if make is Transformer else 6 * normalised * (data - 1) / data)


def shard_size(p):
    return next(iter(p.shards.values())).numel()


def test_memory_of_a_rank(four_ranks):
    """Parameters and states of the optimizer that are split take a share on each rank."""
    *_, model = train(Transformer, Layout(1, 4), steps=1)
    for name, p in model.named_parameters():
        split = name.endswith(("up.weight", "up.bias", "qkv.weight", "qkv.bias", "down.weight", "out.weight"))
        assert shard_size(p) == p.numel() // (4 if split else 1), name
        assert shard_size(p.grad) == shard_size(p), name
    assert shard_size(model.block.up.weight) * 4 == model.block.up.weight.numel()


def test_an_evaluation_graph_is_eager_evaluation(four_ranks):
    *_, model = train(Transformer, Layout(2, 2), steps=2)
    model.eval()

    class Predict(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)

    graph, (x, _) = Predict(), Layout(2, 2).batch(Transformer.batch(3))
    with flow.no_grad():
        want = model(x)
    y = graph(x)
    assert y.sbp == want.sbp and (y == want).all().item()
    text = str(graph.ir)
    assert "boxing(" in text and "(S(0), B)" in text
    assert "sbp=(miniflow.sbp.split(dim=0), miniflow.sbp.broadcast)" in repr(graph)
    with pytest.raises(flow.errors.PlacementError, match="local, global"):
        graph(x.to_global(sbp=(flow.sbp.broadcast, flow.sbp.broadcast)).to_local())


@pytest.mark.parametrize(("data", "tensor"), [(2, 1), (1, 2), (2, 2)])
def test_micro_batches(data, tensor, four_ranks):
    """A step over two micro-batches of each rank is one over the batch."""
    layout, found, want = Layout(data, tensor), [], []
    for losses, steps in ((found, 2), (want, 1)):
        flow.manual_seed(0)
        layout.place(model := Transformer())
        step = Step(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        step.config.set_gradient_accumulation_steps(steps)
        for number in range(4):
            losses.append(step(*layout.batch(Transformer.batch(number))).numpy())
    assert found[0].shape == (2,) and want[0].shape == ()
    assert_close(np.mean(found, 1), np.array(want), rtol=1e-5, atol=1e-6)
    assert step.memory().after > 0


@pytest.mark.parametrize("sbp", [B, S(0)], ids=repr)
def test_a_copy_of_a_state_stays_what_it_was(sbp, four_ranks):
    """Values of states that are copied in the step do not change with these at its end."""

    class Net(flow.nn.Module):
        def __init__(self):
            super().__init__()
            values = np.arange(16, dtype=np.float32).reshape(4, 4)
            self.weight = flow.nn.Parameter(flow.tensor(values, placement=four_ranks, sbp=sbp))
            for name, factor in (("a", 2), ("b", 3)):
                self.register_buffer(name, flow.tensor(factor * values, placement=four_ranks, sbp=sbp))

        def forward(self, x):
            copied, turned, before, b = x.abs(), x.abs(), x.abs(), self.b.clone()
            copied.copy_(self.weight.detach())
            turned.copy_(self.weight.detach().t())
            before.copy_(self.a)
            self.b.copy_(self.a.t())
            self.a.copy_(b)
            return (x * self.weight).sum(), copied, turned, before

    class Train(flow.nn.Graph):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.add_optimizer(flow.optim.SGD(net.parameters(), 1.0))

        def build(self, x):
            loss, *results = self.net(x)
            loss.backward()
            return results

    x, eager, recorded = flow.ones(4, 4, placement=four_ranks, sbp=sbp), Net(), Net()
    graph, optimizer = Train(recorded), flow.optim.SGD(eager.parameters(), 1.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss, *wanted = eager(x)
        loss.backward()
        optimizer.step()
        found = [*graph(x), *recorded.state_dict().values()]
        for got, want in zip(found, [*wanted, *eager.state_dict().values()], strict=True):
            assert_close(got.numpy(), want.numpy(), rtol=0, atol=0)


def test_what_graphs_of_global_tensors_refuse(four_ranks):
    class Predict(flow.nn.Graph):
        def __init__(self, build):
            super().__init__()
            self.function = build

        def build(self, x):
            return self.function(x)

    x = flow.ones(4, 4, placement=four_ranks, sbp=flow.sbp.split(0))
    graph = Predict(flow.relu)
    assert graph(x).sbp == x.sbp
    step = Step(model := Transformer(), flow.optim.SGD(model.parameters(), lr=0.1))
    step.config.set_gradient_accumulation_steps(4)
    Layout(4, 1).place(model)
    with pytest.raises(flow.errors.GraphError, match=r"hold \[2, 2, 2, 2\].*4 equal parts"):
        step(*Layout(4, 1).batch(Transformer.batch(0)))
    with pytest.raises(flow.errors.GraphTraceError, match="to_local"):
        Predict(lambda x: x.to_local())(x)
    with pytest.raises(flow.errors.GraphTraceError, match="to_global"):
        Predict(lambda x: x.to_global(four_ranks, flow.sbp.broadcast))(flow.ones(4))


def amp_losses(place, device):
    """Mixed precision with a scaler, RMSprop, clipping by value, and a state that is saved and loaded on the way."""
    flow.manual_seed(0)
    model = flow.nn.Sequential(flow.nn.Linear(6, 8), flow.nn.GELU(), flow.nn.LayerNorm(8), flow.nn.Linear(8, 4)).to(
        device
    )
    x, y = (t.to(device) for t in (flow.randn(8, 6), flow.arange(8) % 4))
    if place is not None:
        model.to_global(place, flow.sbp.broadcast)
        x, y = (t.to_global(place, flow.sbp.broadcast).to_global(sbp=flow.sbp.split(0)) for t in (x, y))
    optimizer, scaler = flow.optim.RMSprop(model.parameters(), lr=0.01), flow.amp.GradScaler(init_scale=128.0)
    losses = []
    for _ in range(4):
        with flow.autocast(device, dtype=flow.bfloat16):
            loss = flow.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        flow.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        state, model = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model)
        optimizer = flow.optim.RMSprop(model.parameters(), lr=0.01)
        optimizer.load_state_dict(state)
    return losses


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_mixed_precision_and_states(device, four_ranks):
    assert_close(amp_losses(four_ranks.with_type(device), device), amp_losses(None, device), rtol=2e-3, atol=0)


@pytest.mark.parametrize("make", [flow.optim.SGD, flow.optim.Adam], ids=lambda make: make.__name__)
@pytest.mark.parametrize(("before", "after"), [(B, S(0)), (S(0), S(1)), (S(1), B), (P, P)], ids=str)
def test_states_follow_a_parameter_to_another_layout(before, after, make, four_ranks):
    start = np.linspace(-1, 2, 24, dtype=np.float32).reshape(4, 6)
    local, spread = flow.tensor(start), flow.tensor(start, placement=four_ranks, sbp=before)
    options = {"momentum": 0.9} if make is flow.optim.SGD else {}
    for p in (local, spread):
        optimizer = make([p.requires_grad_()], lr=0.1, **options)
        for step in range(3):
            optimizer.zero_grad()
            (p * p * p).sum().backward()
            optimizer.step()
            if p.is_global and step == 0:
                p.data = p.data.to_global(sbp=after)
    assert_close(spread.detach().numpy(), local.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
def test_a_graph_that_scales_gradients(sbp, clip, four_ranks):
    """A step whose gradient is infinite on one rank is left out, and the scale is halved; all others are done."""

    def run(place):
        model = flow.nn.Module()
        model.w = flow.nn.Parameter(flow.tensor(np.linspace(-1, 2, 8, dtype=np.float32)))
        if place is not None:
            model.to_global(place, B).to_global(place, sbp)

        class Train(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                group = {"params": [model.w], **({"clip_grad_max_norm": 0.5} if clip else {})}
                self.add_optimizer(flow.optim.SGD([group], lr=0.1, momentum=0.9))
                self.set_grad_scaler(flow.amp.GradScaler(init_scale=256.0))

            def build(self, x):
                loss = (self.model.w * self.model.w * x).sum()
                loss.backward()
                return loss

        graph, found = Train(), []
        for step in range(5):
            x = flow.ones(8)
            x[6] = float("inf") if step == 2 else 1.0
            loss = graph(x if place is None else x.to_global(place, B).to_global(sbp=sbp))
            found.append([loss.numpy(), *model.w.detach().numpy()])
        return found, graph.state_dict()["System-Train-LossScale"].item()

    (found, scale), (want, scale_alone) = run(four_ranks), run(None)
    assert_close(np.array(found), np.array(want), rtol=1e-5, atol=1e-6)
    assert scale == scale_alone == 128 and not np.allclose(found[0], found[1])
