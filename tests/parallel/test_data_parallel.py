"""`DistributedDataParallel` and `DistributedSampler` on simulated ranks; `ddp_script.py` runs on MPI ranks."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, AutogradError, GraphTraceError
from miniflow.utils.data import DistributedSampler


class Model(nn.Module):
    """With an unused parameter, several outputs, and a parameter that is used twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        h = self.b(self.b(self.a(x)).relu())
        return {"first": self.c(h), "second": [h.sum(1)]}


def data(seed):
    return flow.tensor(np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32))


def make(**options):
    flow.manual_seed(0)
    return nn.parallel.DistributedDataParallel(Model(), **options) if options is not None else Model()


def bytes_sent(model):
    """Of an all-reduce among four ranks: the gradients, and for each how many ranks have it, in float32."""
    return 2 * 3 * 4 * sum(p.numel() + 1 for p in model.parameters())


@pytest.mark.parametrize("options", [{"bucket_size": 1}, {"bucket_size": 2}, {}, {"use_bucket": False}], ids=str)
def test_gradients_are_those_of_one_rank(options, four_ranks):
    """The ranks hold the same, so the mean is what each of them has."""
    flow.manual_seed(0)
    alone, model = Model(), make(**options)
    for loss in (lambda y: y["first"].sum() + y["second"][0].mean(), lambda y: y["second"][0].sum()):
        for net in (alone, model):
            net.zero_grad()
            loss(net(data(1))).backward()
        assert model.unused.weight.grad is None and model.unused.bias.grad is None
        for (name, p), q in zip(alone.named_parameters(), model.parameters(), strict=True):
            if name.startswith("unused."):
                continue
            want = np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy()
            np.testing.assert_allclose(q.grad.numpy(), want, rtol=1e-6, atol=1e-7)


def test_frozen_parameters_do_not_move(four_ranks):
    model = make()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def step(seed):
        optimizer.zero_grad()
        model(data(seed))["first"].sum().backward()
        optimizer.step()

    step(0)
    model.a.requires_grad_(False)
    before, moving = model.a.weight.numpy().copy(), model.c.weight.numpy().copy()
    step(1)
    assert model.a.weight.grad is None and np.array_equal(model.a.weight.numpy(), before)
    assert not np.array_equal(model.c.weight.numpy(), moving)
    model.a.requires_grad_(True)
    start = flow.parallel.stats()["all_reduce"]
    step(2)  # averaged again
    assert flow.parallel.stats()["all_reduce"] - start == bytes_sent(model)
    assert not np.array_equal(model.a.weight.numpy(), before)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_synchronized_statistics_of_half_precision(dtype, four_ranks):
    x = flow.tensor(np.random.default_rng(0).normal(size=(8, 3, 64, 64)), dtype=dtype)
    alone, layer = nn.BatchNorm2d(3), nn.SyncBatchNorm(3)
    want, got = alone(x), layer(x)
    assert got.dtype is dtype
    np.testing.assert_allclose(got.detach().float().numpy(), want.detach().float().numpy(), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(layer.running_var.numpy(), alone.running_var.numpy(), rtol=1e-3)


def test_no_sync_accumulates(four_ranks):
    model = make()
    start = flow.parallel.stats().get("all_reduce", 0)
    with model.no_sync():
        model(data(1))["first"].sum().backward()
    assert flow.parallel.stats().get("all_reduce", 0) == start
    before = model.c.weight.grad.numpy().copy()
    model(data(2))["first"].sum().backward()
    assert flow.parallel.stats()["all_reduce"] - start == bytes_sent(model)
    flow.manual_seed(0)
    other = Model()
    other(data(2))["first"].sum().backward()
    np.testing.assert_allclose(model.c.weight.grad.numpy(), before + other.c.weight.grad.numpy(), rtol=1e-5)


def test_two_forwards_before_one_backward(four_ranks):
    model = make()
    (model(data(1))["first"].sum() + model(data(2))["first"].sum()).backward()
    flow.manual_seed(0)
    alone = Model()
    (alone(data(1))["first"].sum() + alone(data(2))["first"].sum()).backward()
    for p, q in zip(alone.a.parameters(), model.a.parameters(), strict=True):
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_errors(four_ranks):
    with pytest.raises(ArgumentError, match="local parameters"):
        nn.parallel.DistributedDataParallel(nn.ReLU())
    with pytest.raises(ArgumentError, match="bucket_size=0"):
        make(bucket_size=0)
    model = make(bucket_size=1)
    y = model(data(1))["first"]
    with pytest.raises(AutogradError, match="did not reach"):
        (model.c.weight * 2).sum().backward()  # not through the output
        model(data(1))
    del y


def test_arguments_of_pytorch(four_ranks):
    """Inputs go to the device of the parameters; join has an end where all ranks are the same."""
    layer = nn.Linear(3, 1).cuda()
    model = nn.parallel.DistributedDataParallel(layer, [0], 0, find_unused_parameters=True, bucket_cap_mb=25)
    assert model.module is layer
    with model.join():
        model(input=data(1)).sum().backward()
    np.testing.assert_allclose(layer.weight.grad.cpu().numpy()[0], data(1).numpy().sum(0), rtol=1e-6)
    child = nn.Module()
    child.module = nn.Linear(1, 1)
    child.forward = child.module.forward
    assert nn.parallel.DistributedDataParallel(child).module is not child
    for wrong in (["cuda", "cpu"], ["cpu"]):
        with pytest.raises(ArgumentError, match="the one device that they are on"):
            nn.parallel.DistributedDataParallel(nn.Linear(3, 1).cuda(), wrong)
    for name in ("mixed_precision", "device_mesh"):
        assert make(**{name: None})
        with pytest.raises(ArgumentError, match=f"DistributedDataParallel: got {name}='x'; expected None: use"):
            make(**{name: "x"})
    with pytest.raises(TypeError, match="unexpected argument 'bucket'"):
        make(bucket=3)
    with pytest.raises(ArgumentError, match="rank 0 is not in"):
        make(process_group=flow.distributed.new_group([1, 2]))


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"broadcast_buffers": False}, False), ({"broadcast_buffers": None}, True), ({}, True),
        ({"forward_sync_buffers": False}, False),
    ],
)  # fmt: skip
def test_buffers_are_sent_before_a_forward(four_ranks, options, want):
    model = nn.parallel.DistributedDataParallel(nn.BatchNorm1d(3), **options)
    before = dict(flow.parallel.stats())
    model(data(1))
    assert (dict(flow.parallel.stats()) != before) == want


def test_an_error_ends_a_join(four_ranks):
    model = make()
    with pytest.raises(ZeroDivisionError), model.join():
        raise ZeroDivisionError
    start = dict(flow.parallel.stats())
    model(data(1))["first"].sum().backward()
    assert {key for key, n in flow.parallel.stats().items() if n != start.get(key)} == {"all_reduce"}


def test_graphs_predict_and_do_not_train(four_ranks):
    model = make()

    class Predict(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)["first"]

    class Train(Predict):
        def __init__(self):
            super().__init__()
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            loss = super().build(x).sum()
            loss.backward()
            return loss

    assert_same(Predict()(data(1)), model(data(1))["first"])
    with pytest.raises(GraphTraceError, match="averaged in eager mode only"):
        Train()(data(1))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_sampler(shuffle, drop_last):
    samplers = [DistributedSampler(range(10), 4, r, shuffle, drop_last=drop_last) for r in range(4)]
    orders = []
    for epoch in range(2):
        found = []
        for sampler in samplers:
            sampler.set_epoch(epoch)
            found.append(list(sampler))
            assert len(found[-1]) == len(sampler) == (2 if drop_last else 3)
        every = sorted(sum(found, []))
        assert len(set(every)) == (8 if drop_last else 10) and (drop_last or len(every) == 12)
        orders.append(found)
    assert (orders[0] != orders[1]) == shuffle
    with pytest.raises(ArgumentError, match="rank=4"):
        DistributedSampler(range(10), 4, 4)


def test_a_gradient_hook_that_comes_after(four_ranks):
    x, seen = flow.ones(2, requires_grad=True), []
    handle = x.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.tolist()))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    handle.remove()
    x.sum().backward()
    assert seen == [[2.0, 2.0], [5.0, 5.0]]
    assert_same(x.grad, np.full(2, 6, np.float32))
    x.register_post_accumulate_grad_hook(lambda x: seen.append(x.dtype))
    x.requires_grad_(False).requires_grad_(True)
    layer = nn.Linear(2, 1)
    layer.weight.register_post_accumulate_grad_hook(lambda w: seen.append(w.dtype))
    (layer.double()(flow.ones(2, dtype=flow.float64)).sum() + x.sum()).backward()
    assert set(seen[2:]) == {flow.float32, flow.float64}
    with pytest.raises(AutogradError, match="expected a leaf"):
        (x * 1).register_post_accumulate_grad_hook(print)
