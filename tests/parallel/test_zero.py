"""ZeRO shares out what the optimizer remembers: losses stay, memory and bytes are those of the paper."""

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
from miniflow import nn

S, B = flow.sbp.split, flow.sbp.broadcast
WIDTH, STEPS = 32, 4


def make():
    flow.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
    )


def batch(step, rows=16):
    random = np.random.default_rng(step)
    return [flow.tensor(random.normal(size=(rows, WIDTH)).astype(np.float32)) for _ in range(2)]


class Train(nn.Graph):
    def __init__(self, model, configure=lambda config: None, micro_batches=1, clip=None, scaler=None):
        super().__init__()
        self.model, self.loss = model, nn.MSELoss()
        group = {"params": list(model.parameters()), **({} if clip is None else {"clip_grad_max_norm": clip})}
        self.add_optimizer(flow.optim.Adam([group], lr=0.01))
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.set_gradient_accumulation_steps(micro_batches)
        configure(self.config)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def train(ranks, configure=lambda config: None, huge=None, **options):
    """Losses, weights, the graph, and the bytes that a step sent; in the step `huge` gradients are infinite."""
    model, place = make(), None
    if ranks:
        flow.parallel.simulate(ranks)
        place = flow.placement("cpu", list(range(ranks)))
        model.to_global(place, B)
    graph, losses = Train(model, configure, **options), []
    for step in range(STEPS):
        x, y = batch(step)
        if step == huge:
            x[3] = 1e30
        if place is not None:
            x, y = [t.to_global(place, B).to_global(sbp=S(0)) for t in (x, y)]
        before = dict(flow.parallel.stats())
        losses.append(graph(x, y).numpy().mean())
        sent = sum(flow.parallel.stats().values()) - sum(before.values())
    return losses, [p.numpy() for p in model.parameters()], graph, sent


@pytest.fixture(autouse=True)
def alone():
    yield
    flow.parallel.simulate(1)


def bytes_on_rank_0(tensors):
    return sum(t._array.shards[0].nbytes for t in tensors)


def states(graph):
    found = [entry.values() for entry in graph._optimizers[0].state.values()]
    return [value for values in found for value in values if isinstance(value, flow.Tensor) and value.ndim]


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [2, 4])
def test_stages(ranks, stage, micro_batches):
    configure = lambda config: stage and config.enable_zero(True, stage=stage, shard_min_size=1)  # noqa: E731
    losses, weights, graph, sent = train(ranks, configure, micro_batches=micro_batches)
    want, wanted_weights, _, _ = train(None, micro_batches=micro_batches)
    assert_close(np.array(losses), np.array(want), rtol=1e-5, atol=1e-6)
    for got, expected in zip(weights, wanted_weights, strict=True):
        assert_close(got, expected, rtol=1e-4, atol=1e-5)
    parameters = list(graph.model.parameters())
    total = 4 * sum(p.numel() for p in parameters)
    assert bytes_on_rank_0(states(graph)) == 2 * total // (ranks if stage else 1)
    assert bytes_on_rank_0(parameters) == total // (ranks if stage == 3 else 1)
    k, once = micro_batches, (ranks - 1) * total
    gradient, parameter = {0: (2, 0), 1: (1, 1), 2: (k, 1), 3: (k, 2 * k)}[stage]
    rest = sent - (gradient + parameter) * once
    first_weight = (ranks - 1) * WIDTH * WIDTH * 4 if stage == 3 else 0  # backward does not read it
    first_weight += (ranks - 1) * 3 * WIDTH * 4 if stage == 3 else 0  # nor any bias
    assert 0 <= rest + k * first_weight <= 100 * k * ranks, (rest, once)


@pytest.mark.parametrize("stage", [1, 3])
def test_clipping_sends_norms_only(stage):
    configure = lambda config: config.enable_zero(True, stage=stage, shard_min_size=1)  # noqa: E731
    losses, _, graph, sent = train(4, configure, clip=0.1)
    assert_close(np.array(losses), np.array(train(None, clip=0.1)[0]), rtol=1e-5, atol=1e-6)
    without = train(4, configure)[3]
    assert sent - without < 1000


def test_a_scaler_decides_with_all_parts():
    """The search for infinities looks at the parts of all ranks; a step with one of them is left out."""
    configure = lambda config: config.enable_zero(True, stage=2, shard_min_size=1)  # noqa: E731
    scalers = [flow.amp.GradScaler(init_scale=128.0) for _ in range(2)]
    losses, weights, graph, sent = train(4, configure, scaler=scalers[0], huge=1)
    want, wanted_weights, _, _ = train(None, scaler=scalers[1], huge=1)
    assert scalers[0].get_scale() == scalers[1].get_scale() == 64.0
    assert_close(np.array(losses), np.array(want), rtol=1e-5, atol=1e-6)
    for got, expected in zip(weights, wanted_weights, strict=True):
        assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_states_on_single_ranks():
    configure = lambda config: config.set_zero_redundancy_optimizer_mode("non_distributed")  # noqa: E731
    losses, weights, graph, _ = train(3, configure)
    want, wanted_weights, _, _ = train(None)
    assert_close(np.array(losses), np.array(want), rtol=1e-5, atol=1e-6)
    for got, expected in zip(weights, wanted_weights, strict=True):
        assert_close(got, expected, rtol=1e-4, atol=1e-5)
    held = {r: sum(s.numel() for s in states(graph) if s.placement.ranks.tolist() == [r]) for r in range(3)}
    assert sum(held.values()) == 6 * WIDTH * (WIDTH + 1) and max(held.values()) <= 2 * WIDTH * (WIDTH + 2)


def test_states_on_single_ranks_of_a_mesh():
    """Other inputs compile again, and what is saved can be loaded: states go to where their parameter is and back."""
    configure = lambda config: config.set_zero_redundancy_optimizer_mode("non_distributed")  # noqa: E731
    flow.parallel.simulate(4)
    place = flow.placement("cpu", [[0, 1], [2, 3]])
    on_mesh = lambda t: t.to_global(place, (B, B))  # noqa: E731
    model = make()
    graph, alone = Train(model.to_global(place, (B, B)), configure), Train(make())
    for step, rows in enumerate((16, 8, 16)):
        x, y = batch(step, rows)
        assert_close(graph(on_mesh(x), on_mesh(y)).numpy(), alone(x, y).numpy(), rtol=1e-4, atol=1e-5)
    again = Train(make().to_global(place, (B, B)))
    again.load_state_dict(graph.state_dict())
    x, y = batch(9)
    assert_close(again(on_mesh(x), on_mesh(y)).numpy(), alone(x, y).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_small_parameters_beside_others_in_a_clipped_group(stage):
    """A parameter that stays whole is updated with a gradient that is clipped by the norm of parts."""
    configure = lambda config: config.enable_zero(True, stage=stage, shard_min_size=WIDTH)  # noqa: E731
    scalers = [flow.amp.GradScaler(init_scale=128.0) for _ in range(2)]
    losses, weights, *_ = train(4, configure, clip=0.1, scaler=scalers[0], huge=1)
    want, wanted_weights, *_ = train(None, clip=0.1, scaler=scalers[1], huge=1)
    assert_close(np.array(losses), np.array(want), rtol=1e-5, atol=1e-6)
    for got, expected in zip(weights, wanted_weights, strict=True):
        assert_close(got, expected, rtol=1e-4, atol=1e-5)


def parts_of_a_width(config):
    config.set_zero_redundancy_optimizer_mode("distributed_split")
    config.set_zero_redundancy_optimizer_min_size_after_split(WIDTH)


def test_small_parameters_stay_whole():
    _, _, graph, _ = train(2, parts_of_a_width)
    of_weight, _, of_bias, *_ = states(graph)
    assert (of_weight.ndim, of_weight.sbp, of_bias.ndim, of_bias.sbp) == (2, (S(0),), 1, (B,))


@pytest.mark.parametrize("stage", [1, 3])
def test_it_goes_on(stage, tmp_path):
    """Other inputs, an evaluation, and what is saved: in other layouts, too."""
    configure = lambda config: config.enable_zero(True, stage=stage, shard_min_size=1)  # noqa: E731
    _, _, graph, _ = train(4, configure)
    _, _, alone, _ = train(None)
    flow.parallel.simulate(4)
    place = flow.placement("cpu", [0, 1, 2, 3])
    split = lambda t: t.to_global(place, B).to_global(sbp=S(0))  # noqa: E731
    for step in (7, 8):  # another number of rows, then the first again
        x, y = batch(step, rows=8 * step % 24)
        assert_close(graph(split(x), split(y)).numpy(), alone(x, y).numpy(), rtol=1e-4, atol=1e-5)

    class Evaluate(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)

    assert_close(Evaluate(graph.model)(split(x)).numpy(), alone.model(x).numpy(), rtol=1e-4, atol=1e-5)
    flow.save(graph.state_dict(), tmp_path / "state", global_dst_rank=0)
    x, y = batch(9)
    want = alone(x, y).numpy()
    for layout in (None, B, S(0)):
        model = make()
        if layout is not None:
            model.to_global(place, B).to_global(place, layout)
        again = Train(model, configure if layout is B else lambda config: None)
        again.load_state_dict(flow.load(tmp_path / "state", **({} if layout is None else {"global_src_rank": 0})))
        inputs = (x, y) if layout is None else (split(x), split(y))
        assert_close(again(*inputs).numpy(), want, rtol=1e-4, atol=1e-5)


def test_local_tensors_are_told_of():
    with pytest.warns(UserWarning, match="tensors of the graph are local"):
        losses, *_ = train(None, lambda config: config.enable_zero(True))
    assert losses == train(None)[0]


def test_what_is_refused():
    config = Train(make()).config
    with pytest.raises(flow.errors.ArgumentError, match="stage=4"):
        config.enable_zero(True, stage=4)
    with pytest.raises(flow.errors.ArgumentError, match="stage=True"):
        config.enable_zero(True, stage=True)
    with pytest.raises(flow.errors.ArgumentError, match="at least 1"):
        config.enable_zero(True, shard_min_size=0)
    with pytest.raises(flow.errors.ArgumentError, match="distributed_split"):
        config.set_zero_redundancy_optimizer_mode("split")
    with pytest.raises(flow.errors.ArgumentTypeError, match="enable_zero"):
        config.zero = True
