"""`set_gradient_accumulation_steps(k)` as users meet it: against eager micro-steps, and against a whole batch."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError


class Net(nn.Module):
    """Normalization with running statistics, random numbers, and an embedding."""

    def __init__(self, plain):
        super().__init__()
        self.table, self.fc2 = nn.Embedding(9, 6), nn.Linear(16, 3)
        self.fc1 = nn.Linear(6, 16, bias=plain)  # in front of a normalization its gradient would be noise
        self.norm = nn.Identity() if plain else nn.BatchNorm1d(16)
        self.drop = nn.Identity() if plain else nn.Dropout(0.3)

    def forward(self, i):
        return self.fc2(self.drop(flow.relu(self.norm(self.fc1(self.table(i).mean(1))))))


class Train(nn.Graph):
    """A step with several optimizers, whose groups may ask for clipping."""

    def __init__(self, model, optimizers, steps=1, scaler=None, sparse=False):
        super().__init__()
        self.model = model
        self.loss_function = nn.CrossEntropyLoss()
        for optimizer in optimizers:
            self.add_optimizer(optimizer, is_sparse=sparse)
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, i, target):
        y = self.model(i)
        loss = self.loss_function(y, target)
        loss.backward()
        return loss, {"y": y, "classes": y.argmax(1), "inputs": i}


def batch(step, device="cpu"):
    random = np.random.default_rng(step)
    indices, target = random.integers(0, 9, (12, 4)), random.integers(0, 3, 12)
    return flow.tensor(indices, device=device), flow.tensor(target, device=device)


def optimizers_of(model, clip):
    first, *others = model.parameters()
    more = {"clip_grad_max_norm": 0.05, "clip_grad_norm_type": 2.0} if clip else {}
    return [
        flow.optim.SGD([{"params": [first], **more}], lr=0.2),
        flow.optim.AdamW([{"params": others, **more}], lr=0.01),
    ]


def make(plain, clip=False, device="cpu"):
    flow.manual_seed(4)
    model = Net(plain).to(device)
    return model, optimizers_of(model, clip)


def eager_step(model, optimizers, i, target, steps):
    for optimizer in optimizers:
        optimizer.zero_grad()
    size, losses, outputs = i.shape[0] // steps, [], []
    for k in range(steps):
        part = slice(k * size, (k + 1) * size)
        outputs.append(model(i[part]))
        loss = nn.CrossEntropyLoss()(outputs[-1], target[part])
        loss.backward()
        losses.append(loss.detach())
    for p in model.parameters():
        p.grad /= steps
    for optimizer in optimizers:
        optimizer.clip_grad()
        optimizer.step()
    return flow.stack(losses), flow.cat(outputs).detach()


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("steps, device", [(2, "cpu"), (3, "cpu"), (4, "cpu"), (3, "cuda")])
def test_it_equals_eager_micro_steps(steps, clip, device):
    (model, optimizers), (twin, twin_optimizers) = make(False, clip, device), make(False, clip, device)
    graph = Train(model, optimizers, steps)
    for step in range(4):
        i, target = batch(step, device)
        flow.manual_seed(step)
        losses, more = graph(i, target)
        state = flow.get_rng_state()
        flow.manual_seed(step)
        want_losses, want = eager_step(twin, twin_optimizers, i, target, steps)
        assert_same(state, flow.get_rng_state())
        assert losses.shape == (steps,) and more["y"].shape == (12, 3) and more["classes"].shape == (12,)
        assert_close(losses, want_losses, rtol=1e-5)
        assert_close(more["y"], want, rtol=1e-5, atol=1e-6)
        assert_same(more["classes"], more["y"].argmax(1))
        assert_same(more["inputs"], i)
    for (name, p), q in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert_close(p, q, rtol=1e-4, atol=1e-6, what=name)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("sparse", [False, True], ids=["", "sparse"])
@pytest.mark.filterwarnings("ignore:.*is_sparse=True")
def test_it_equals_a_batch_as_large(sparse, device):
    (model, optimizers), (twin, twin_optimizers) = make(True, device=device), make(True, device=device)
    graph, whole = Train(model, optimizers, 4, sparse=sparse), Train(twin, twin_optimizers)
    for step in range(4):
        losses, more = graph(*batch(step, device))
        loss, other = whole(*batch(step, device))
        assert_close(losses.mean(), loss, rtol=1e-5)
        assert_close(more["y"], other["y"], rtol=1e-5, atol=1e-6)
    for (name, p), q in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert_close(p, q, rtol=1e-4, atol=1e-6, what=name)


def test_with_loss_scaling_one_bad_micro_batch_leaves_the_step_out():
    model, optimizers = make(True)
    scaler = flow.amp.GradScaler(init_scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2)
    twin, twin_optimizers = make(True)

    class Weighted(Train):
        def build(self, i, target, weight):
            loss = (nn.functional.cross_entropy(self.model(i), target) * weight).mean()
            loss.backward()
            return loss

    graph, plain = Weighted(model, optimizers, 3, scaler), Weighted(twin, twin_optimizers, 3)
    good, bad = flow.ones(12), flow.ones(12)
    bad[1] = float("inf")  # in the first micro-batch
    for step, weight in enumerate([good, bad, good, good]):
        before = [p.detach().clone() for p in model.parameters()]
        graph(*batch(step), weight)
        if weight is good:
            plain(*batch(step), weight)
        else:
            for p, old in zip(model.parameters(), before, strict=True):
                assert_same(p, old)
    assert scaler.get_scale() == 8.0  # halved once, doubled once
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_a_batch_that_cannot_be_cut_is_an_error():
    model, optimizers = make(True)
    graph = Train(model, optimizers, 5)
    with pytest.raises(GraphError, match=r"set_gradient_accumulation_steps\(5\): .*cannot be cut into 5 equal"):
        graph(*batch(0))


def test_prediction_ignores_it():
    model, _ = make(True)

    class Predict(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_gradient_accumulation_steps(5)

        def build(self, i):
            return self.model(i)

    i, _ = batch(0)
    assert_close(Predict()(i), model(i), rtol=1e-5, atol=1e-6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc1, self.fc2, self.drop = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.fc2(nn.functional.gelu(self.fc1(self.norm(x)))))


class Language(nn.Module):
    """Words in, classes of words out."""

    def __init__(self):
        super().__init__()
        self.table, self.blocks, self.out = nn.Embedding(9, 8), nn.Sequential(Block(), Block()), nn.Linear(8, 3)

    def forward(self, i):
        return self.out(self.blocks(self.table(i)).mean(1))


@pytest.mark.parametrize("amp", [False, True], ids=["", "half"])
def test_everything_at_once_equals_accumulation_alone(amp):
    """With checkpointing the bits are the same; with the sparse update too, since SGD is what updates the table."""
    trained = []
    for more in (False, True):
        flow.manual_seed(9)
        model = Language()
        table, *others = model.parameters()
        optimizers = [flow.optim.SGD([table], lr=0.5), flow.optim.Adam(others, lr=0.01)]
        graph = Train(model, optimizers, 3, flow.amp.GradScaler(init_scale=64.0))
        graph.config.enable_amp(amp, dtype=flow.float16)
        for block in graph.model.blocks:
            block.config.activation_checkpointing = more
        graph._sparse[:] = [more, False]
        graph.config.disable_pass("add_to_output")  # it changes the order in which dense gradients are summed
        losses = []
        for step in range(3):
            flow.manual_seed(step)
            losses.append(graph(*batch(step))[0])
        program = graph._last.program
        program.check()
        names = [i.op.function_name for i in program.instructions]
        assert ("group_rows" in names) == more and any(i.after is not None for i in program.instructions) == more
        trained.append([*losses, *[p.detach() for p in model.parameters()]])
    for got, want in zip(*trained, strict=True):
        assert_same(got, want)


@pytest.mark.parametrize("write", [lambda w: w.mul_(0.9), lambda w: w[0].zero_()])
def test_a_write_to_a_parameter_that_is_trained_is_refused(write):
    """Each micro-step would write, and the update would start from what the last one left."""

    class Decay(nn.Graph):
        def __init__(self, steps):
            super().__init__()
            self.model = nn.Linear(3, 2)
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
            self.config.set_gradient_accumulation_steps(steps)

        def build(self, x):
            with flow.no_grad():
                write(self.model.weight)
            loss = (self.model(x) ** 2).mean()
            loss.backward()
            return loss

    x = flow.ones(4, 3)
    Decay(1)(x)
    with pytest.raises(GraphError, match=r"steps\(2\): build writes to model.weight, which an optimizer updates"):
        Decay(2)(x)
