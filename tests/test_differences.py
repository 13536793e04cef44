"""docs/DIFFERENCES.md tells the truth about miniflow; what it says of PyTorch is held against torch where installed."""

import copy
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentTypeError, CheckpointError, DTypeError, PickleError, ShapeError


def test_results_are_row_major():
    assert flow.ones(2, 3).t().exp().stride() == (2, 1)


def test_random_numbers_do_not_depend_on_the_device():
    found = []
    for device in ("cpu", "cuda"):
        flow.manual_seed(5)
        found.append(flow.randn(7, device=device).cpu().numpy())
    np.testing.assert_array_equal(*found)


def test_nothing_is_pickled(tmp_path):
    for value in (flow.ones(2), flow.nn.Linear(2, 2)):
        with pytest.raises(PickleError):
            pickle.dumps(value)
    with pytest.raises(CheckpointError, match="a builtins.set"):
        flow.save({"a": {1, 2}}, tmp_path / "file")
    for name, kind in (("10", flow.vision.datasets.CIFAR10), ("100", flow.vision.datasets.CIFAR100)):
        assert kind.url.endswith(f"/cifar-{name}-binary.tar.gz")


def test_distributed():
    found = [None]
    flow.distributed.all_gather_object(found, ("a", {"b": 1.5}))
    assert found == [("a", {"b": 1.5})]
    with pytest.raises(ArgumentTypeError, match="all_gather_object.*a builtins.set.*never pickled"):
        flow.distributed.all_gather_object(found, {1, 2})
    assert flow.distributed.is_initialized()
    model = flow.nn.Linear(2, 1)
    assert flow.nn.parallel.DistributedDataParallel(model) is model and model.module is model
    assert list(model.state_dict()) == ["weight", "bias"]


def test_unused_inputs_and_no_right_hand_sides():
    x = flow.ones(2)
    zeros = flow.autograd.functional.jacobian(lambda a, b: a * 2, (x, x), strict=True)[1]
    assert zeros.tolist() == [[0, 0], [0, 0]]
    assert flow.linalg.lstsq(flow.eye(3), flow.zeros(3, 0)).rank.item() == 3


def test_dtypes_and_factories():
    with pytest.raises(DTypeError, match="dtype complex128 is not supported"):
        flow.tensor([1j])
    assert flow.ones(2, dtype=flow.bfloat16).numpy().dtype == ml_dtypes.bfloat16


def test_promotion_of_arrays_and_matrix_products():
    total = np.ones(2, np.float32) + flow.ones(2)
    assert type(total) is flow.Tensor and total.tolist() == [2.0, 2.0]
    a, b = flow.ones(2, 2), flow.ones(2, 2, dtype=flow.float64)
    assert (a @ b).dtype is flow.float64
    with pytest.raises(DTypeError, match="linear: got dtypes"):
        flow.nn.functional.linear(a, b)


def test_numpy_gets_values_with_a_warning():
    x = flow.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="no gradient flows through what it computes"):
        assert np.exp(x).tolist() == np.exp(np.ones(2, np.float32)).tolist()


def test_softmax_needs_its_dim():
    for make in (flow.nn.Softmax, flow.nn.LogSoftmax, lambda: flow.softmax(flow.ones(3))):
        with pytest.raises(TypeError, match="'dim'"):
            make()


def test_results_of_inference_mode_are_constants():
    with flow.inference_mode():
        x = flow.ones(2) * 3
    w = flow.ones(2, requires_grad=True)
    (w * x).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0] and x.version == 0


def test_errors_are_those_of_python_too():
    with pytest.raises(ShapeError) as caught:
        flow.ones(2).view(3)
    assert isinstance(caught.value, ValueError)


def test_the_default_device_is_one_for_all_threads():
    found = []
    flow.set_default_device("cuda")
    thread = threading.Thread(target=lambda: found.append(flow.zeros(1).device))
    thread.start()
    thread.join()
    assert found == [flow.device("cuda:0")]


def test_where_of_bool_tensors_has_oneflows_order():
    a, b, c = (flow.tensor(bits) for bits in ([True, True, False], [True, False, True], [False, True, False]))
    assert a.where(b, c).tolist() == flow.where(a, b, c).tolist() == [True, False, False]
    assert flow.tensor([1.0, 2.0, 3.0]).where(b, 0.0).tolist() == [1.0, 0.0, 3.0]


def test_results_of_oneflow_0_6_are_those_of_pytorch():
    x = flow.tensor([3.0, 1.0, 0.0])
    assert all(y.dtype is flow.bool for y in (x > 1, x.eq(x), x.logical_and(x), flow.tensor([0]).in_top_k(x[None], 1)))
    assert all(y.dtype is flow.int64 for y in (x.argsort(), x.sort()[1], x.nonzero(), x.argwhere(), x.argmax()))
    assert [part.tolist() for part in flow.arange(9).chunk(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert flow.nn.functional.kl_div(x, flow.tensor([0.5, -1.0, 0.5]), reduction="none").isnan().tolist() == [0, 1, 0]


def test_layouts_of_global_tensors():
    """What `tests/parallel/oneflow_sbp_1d.json` records of OneFlow: B, B, B, S(0), S(0), P and P, in this order."""
    S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
    flow.parallel.simulate(2)
    try:
        make = lambda sbp, *shape: flow.ones(*shape or (8, 12, 16), placement=flow.placement("cpu", [0, 1]), sbp=sbp)  # noqa: E731
        assert [(make(x) + make(y)).sbp for x, y in [(S(0), B), (B, P), (P, B)]] == [(S(0),)] * 3
        assert [f(make(S(1))).sbp for f in (lambda x: x.amax(1), lambda x: x.argmax(1))] == [(B,)] * 2
        classes = make(S(0), 8).long()
        losses = [flow.nn.functional.cross_entropy(make(sbp, 8, 10), classes) for sbp in (S(0), S(1))]
        assert [loss.sbp for loss in losses] == [(B,)] * 2
        part, zero = make(S(0))[1:3], make(B, 2, 12, 16) * 0
        assert [(y.sbp, y.isnan().all().item()) for y in (part / zero, part * (1 / zero))] == [((P,), True)] * 2
        negative_zero = flow.tensor([-0.0, 1.0], placement=flow.placement("cpu", [0, 1]), sbp=S(0))
        assert str(negative_zero[0:1].item()) == "0.0" and str(negative_zero.to_global(sbp=B)[0:1].item()) == "-0.0"
    finally:
        flow.parallel.simulate(1)


def test_gradients_are_scaled_on_a_laptop_too():
    assert flow.amp.GradScaler().get_scale() == 65536


def test_schedules_with_a_momentum_keep_apart():
    first, second = _two_cycles(flow)
    assert first == [0.9, 0.5] and second == [0.1, 0.3]


def _two_cycles(framework):
    """Learning rate and momentum when the first of two schedules is at its peak, and when the second begins."""
    o = framework.optim.SGD([framework.zeros(1, requires_grad=True)], lr=0.2, momentum=0.7)
    schedules = framework.optim.lr_scheduler
    parts = [
        schedules.OneCycleLR(o, 0.9, 20, pct_start=0.25, base_momentum=0.5),
        schedules.CyclicLR(o, 0.1, 0.4, 3, base_momentum=0.2, max_momentum=0.3),
    ]
    begin = [o.param_groups[0][name] for name in ("lr", "momentum")]
    schedule = schedules.SequentialLR(o, parts, [6])
    for _ in range(4):
        o.step(), schedule.step()
    return [round(o.param_groups[0][name], 9) for name in ("lr", "momentum")], begin


def test_integers_are_not_averaged():
    x, functional = flow.ones(1, 1, 4, 4).long(), flow.nn.functional
    for refused in (
        lambda: functional.conv2d(x, x),
        lambda: functional.conv_transpose2d(x, x),
        lambda: functional.avg_pool2d(x, 2),
        lambda: functional.local_response_norm(x, 2),
        lambda: functional.l1_loss(x, x, reduction="sum"),
        lambda: functional.interpolate(x.to(flow.uint8), 8, mode="bilinear"),
    ):
        with pytest.raises(DTypeError, match=r"expected a floating dtype: use x.float\(\)"):
            refused()
    assert functional.interpolate(x.to(flow.uint8), 2).dtype is flow.uint8


def test_classes_as_a_column():
    logits, classes = flow.tensor([[1.0, 3.0, 2.0], [0.5, 0.0, 1.0]]), flow.tensor([[1], [2]])
    for loss in (flow.nn.functional.cross_entropy, flow.nn.functional.nll_loss):
        assert loss(logits, classes).item() == loss(logits, classes.reshape(2)).item()


def test_the_slope_of_rsqrt_at_zero():
    x = flow.tensor([-0.0, 0.0], requires_grad=True)
    for function in (flow.rsqrt, lambda x: x**-0.5):
        assert flow.autograd.grad(function(x).sum(), x)[0].tolist() == [-np.inf, -np.inf]


def slopes_at_the_edge(module):
    """The gradients of prod, cumprod, copysign, and of kl_div's target."""
    x, t = (module.tensor(v, requires_grad=True) for v in ([1.0, np.inf, 2.0], [0.0, 1.0, 1.0]))
    for y in (x.prod(), x.cumprod(0).sum(), module.copysign(x, -module.ones(3)).sum()):
        yield module.autograd.grad(y, x)[0].tolist()
    divergence = module.nn.functional.kl_div(module.ones(3), t, reduction="sum")
    yield module.autograd.grad(divergence, t)[0].tolist()


def test_slopes_at_the_edge():
    found = list(slopes_at_the_edge(flow))
    assert found == [[np.inf, 2.0, np.inf], [np.inf, 3.0, np.inf], [-1.0, -1.0, -1.0], [-1.0, 0.0, 0.0]]


def strided(framework):
    """What a tensor holds after its first elements were written by `as_strided`."""
    x = framework.zeros(4)
    x.as_strided((2,), (1,)).fill_(1)
    return x.tolist()


def test_as_strided_is_a_copy():
    assert strided(flow) == [0, 0, 0, 0] and flow.arange(9)[4:].as_strided((2,), (1,), 0).tolist() == [4, 5]


def masked_whole(framework):
    """What attention and its weights are in a row without a single key."""
    attention = framework.nn.MultiheadAttention(4, 1, bias=False)
    x, mask = framework.ones(2, 1, 4), framework.tensor([[True, True], [False, False]])
    return [y.detach().numpy().reshape(-1)[:2] for y in attention(x, x, x, attn_mask=mask)]


def test_attention_to_nothing_is_zero():
    np.testing.assert_array_equal(masked_whole(flow), np.zeros((2, 2)))


def test_integrals_do_not_wrap_around():
    x = flow.tensor([117, 100, 117], dtype=flow.int8)
    assert flow.trapezoid(x).item() == 217.0 and flow.trapezoid(x, flow.tensor([1, 3, 9])).item() == 868.0


def test_bools_are_not_squared_and_no_channels_not_convolved():
    with pytest.raises(DTypeError, match="square: got bool"):
        flow.square(flow.tensor([True]))
    with pytest.raises(ShapeError, match="conv2d: got weight"):
        flow.nn.functional.conv2d(flow.ones(1, 0, 4, 4), flow.ones(2, 0, 2, 2))


@pytest.mark.filterwarnings("error")
def test_rates_after_the_minimum_of_a_cosine():
    """Nothing is said of an optimizer that has not stepped."""
    np.testing.assert_allclose(_after_the_minimum(flow), 0.3 - 0.2 * np.cos(np.pi * np.arange(1, 5) / 4), rtol=1e-9)


def _after_the_minimum(framework):
    optimizer, rates = framework.optim.SGD([framework.zeros(1, requires_grad=True)], lr=0.5), []
    schedule = framework.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4, 0.1)
    for step in range(8):
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
        if step == 3:
            optimizer.param_groups[0]["lr"] = 0.3
    return rates[4:]


@pytest.mark.peers
def test_pytorch_does_otherwise():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, functional = torch.ones(1, 1, 4, 4).long(), torch.nn.functional
    assert functional.conv2d(x, x).dtype is functional.conv_transpose2d(x, x).dtype is torch.int64
    assert functional.avg_pool2d(x, 2).dtype is torch.int64
    assert functional.interpolate(x.to(torch.uint8), 8, mode="bilinear").dtype is torch.uint8
    ones = torch.ones(2)
    with pytest.raises(RuntimeError, match="is independent of input 1"):
        torch.autograd.functional.jacobian(lambda a, b: a * 2, (ones, ones), strict=True)
    assert torch.linalg.lstsq(torch.eye(3), torch.zeros(3, 0)).rank.item() == 0
    x = torch.tensor([-0.0, 0.0], requires_grad=True)
    assert torch.autograd.grad(torch.rsqrt(x).sum(), x)[0].tolist() == [np.inf, -np.inf]
    assert functional.l1_loss(x.long(), x.long(), reduction="sum").dtype is torch.int64
    assert torch.square(torch.tensor([True])).dtype is torch.int64
    assert functional.conv2d(torch.ones(1, 0, 4, 4), torch.ones(2, 0, 2, 2)).shape == (1, 0, 3, 3)
    assert torch.trapezoid(torch.tensor([117, 100, 117], dtype=torch.int8)).item() == 345.0
    slopes = [found[at] for found, at in zip(slopes_at_the_edge(torch), (1, 1, 1, 0), strict=True)]
    assert strided(torch) == [1, 1, 0, 0] and torch.arange(9)[4:].as_strided((2,), (1,), 0).tolist() == [0, 1]
    assert np.isnan(slopes).all() and np.isnan(masked_whole(torch)).all()
    assert torch.ones(2, 3).t().exp().stride() == (1, 3)
    assert copy.deepcopy(pickle.loads(pickle.dumps(torch.ones(2)))).tolist() == [1.0, 1.0]
    assert torch.Tensor([1]).dtype is torch.float32 and torch.tensor([1j]).dtype is torch.complex64
    for error, wrong in (
        (TypeError, lambda: torch.ones(2, dtype=torch.bfloat16).numpy()),
        (RuntimeError, lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(2, 1).long())),
        (RuntimeError, lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64)),
        (RuntimeError, lambda: torch.ones(2).view(3)),
    ):
        with pytest.raises(error):
            wrong()
    a, b, c = (torch.tensor(bits) for bits in ([True, True, False], [True, False, True], [False, True, False]))
    assert a.where(b, c).tolist() == [True, True, False]
    first, second = _two_cycles(torch)
    assert first == [0.9, 0.2] and second == pytest.approx([0.036, 0.3])
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert torch.amp.GradScaler("cuda").get_scale() == 1
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        assert max(_after_the_minimum(torch)) > 1.8
    with torch.inference_mode():
        x = torch.ones(2) * 3
    with pytest.raises(RuntimeError, match="Inference tensors"):
        (torch.ones(2, requires_grad=True) * x).sum().backward()
    torch.set_default_device("meta")
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(1).device.type))
    thread.start()
    thread.join()
    torch.set_default_device(None)
    assert found == ["cpu"]
