"""`amp.GradScaler` in eager code: scaling, unscaling, skipped steps, growth and backoff, state, misuse."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.amp import GradScaler, StaticGradScaler
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, GradScalerError
from miniflow.ops.loss_scale import any_non_finite, scale_loss

OPTIMIZERS = {
    "SGD": lambda ps: flow.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adam": lambda ps: flow.optim.Adam(ps, lr=0.1, amsgrad=True),
    "AdamW": lambda ps: flow.optim.AdamW(ps, lr=0.1, weight_decay=0.1),
    "RMSprop": lambda ps: flow.optim.RMSprop(ps, lr=0.1, momentum=0.9, centered=True),
    "Adagrad": lambda ps: flow.optim.Adagrad(ps, lr=0.1),
}


def parameters():
    return [flow.tensor([[1.0, -2.0, 3.0]], requires_grad=True), flow.tensor([0.5], requires_grad=True)]


def backward(scaler, params, factor=1.0):
    w, b = params
    scaler.scale((w * w * factor).sum() + b.sum() * 2.0).backward()


def picture(optimizer):
    """All that a step may change, as lists and numbers."""
    return plain([optimizer.state_dict(), *[p for group in optimizer.param_groups for p in group["params"]]])


def plain(value):
    """Nested dicts and lists with lists for tensors."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.tolist() if isinstance(value, flow.Tensor) else value


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_finite_steps_are_those_without_a_scaler(name):
    """Bit for bit, since the scale is a power of two."""
    ours, plain_ones = parameters(), parameters()
    a, b = OPTIMIZERS[name](ours), OPTIMIZERS[name](plain_ones)
    scaler, none = GradScaler(init_scale=1024.0, growth_interval=2), GradScaler(enabled=False)
    for _ in range(5):
        a.zero_grad()
        b.zero_grad()
        backward(scaler, ours)
        assert scaler.step(a) is None
        scaler.update()
        backward(none, plain_ones)
        none.step(b)
        none.update()
    assert scaler.get_scale() == 4096.0 and none.get_scale() == 1.0
    for p, q in zip(ours, plain_ones, strict=True):
        assert_same(p.detach(), q.detach())


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_infinities_changes_nothing_but_the_scale(name, bad):
    params = parameters()
    optimizer = OPTIMIZERS[name](params)
    scaler = GradScaler(init_scale=64.0)
    for factor in (1.0, bad, 1.0):
        optimizer.zero_grad()
        before = picture(optimizer)
        versions = [p.version for p in params]
        backward(scaler, params, factor)
        scaler.step(optimizer)
        scaler.update()
        changed = picture(optimizer) != before
        assert changed == (factor == 1.0)
        assert ([p.version for p in params] == versions) == (not changed)
    assert scaler.get_scale() == 32.0


def test_scale_and_backoff_and_growth():
    scaler = GradScaler(init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=2)
    seen = []
    for found in (False, True, True, False, False, False, True, False, False):
        scaler.replayed(found)
        seen.append(scaler.get_scale())
    assert seen == [4, 1, 1, 1, 3, 3, 1, 1, 3]  # an infinity restarts the count; 1 is the least


def test_a_scale_below_one_is_not_raised_by_backing_off():
    scaler = GradScaler(init_scale=0.5)
    scaler.replayed(True)
    assert scaler.get_scale() == 0.5


def test_the_scale_does_not_grow_beyond_float32():
    scaler = GradScaler(init_scale=2.0**127, growth_interval=1)
    scaler.replayed(False)
    assert scaler.get_scale() == 2.0**127


def test_outputs_of_several_kinds_are_scaled():
    scaler = GradScaler(init_scale=8.0)
    losses = (flow.tensor(1.5), [flow.tensor([2.0, 3.0]), flow.tensor(0.5)])
    scaled = scaler.scale(losses)
    assert type(scaled) is tuple and type(scaled[1]) is list
    assert_same(scaled[0], np.float32(12))
    assert_same(scaled[1][0], np.float32([16, 24]))
    with pytest.raises(ArgumentTypeError, match="got float; expected a Tensor"):
        scaler.scale(1.0)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_loss_in_half_precision_is_scaled_in_float32(half):
    loss = flow.tensor(3.0, dtype=getattr(flow, half))
    assert_same(GradScaler().scale(loss), np.float32(3 * 65536))


def test_unscale_before_clipping():
    params = parameters()
    optimizer = flow.optim.SGD(params, lr=1.0)
    scaler = GradScaler(init_scale=256.0)
    backward(scaler, params)
    scaler.unscale_(optimizer)
    assert_same(params[0].grad, np.float32([[2, -4, 6]]))
    total = nn.utils.clip_grad_norm_(params, 1.0)
    assert_close(total, np.float32(60**0.5))
    scaler.step(optimizer)
    scaler.update()
    assert_close(params[0].detach(), np.float32([[1, -2, 3]]) - np.float32([[2, -4, 6]]) / 60**0.5)


def test_unscaling_is_in_place():
    params = parameters()
    scaler = GradScaler(init_scale=4.0)
    backward(scaler, params)
    kept = params[0].grad
    scaler.unscale_(flow.optim.SGD(params, lr=1.0))
    assert params[0].grad is kept
    assert_same(kept, np.float32([[2, -4, 6]]))


def test_several_optimizers_and_one_scaler():
    first, second = parameters()
    one, two = flow.optim.SGD([first], lr=1.0), flow.optim.SGD([second], lr=1.0)
    scaler = GradScaler(init_scale=4.0)
    scaler.scale([(first * np.inf).sum(), second.sum()][0]).backward()
    scaler.scale(second.sum()).backward()
    scaler.step(one)
    scaler.step(two)
    scaler.update()
    assert_same(first.detach(), np.float32([[1, -2, 3]]))
    assert_same(second.detach(), np.float32([-0.5]))  # its own gradients were finite
    assert scaler.get_scale() == 2.0


def test_step_returns_what_the_optimizer_returns():
    params = parameters()

    class Telling(flow.optim.SGD):
        def step(self):
            super().step()
            return "done"

    scaler = GradScaler()
    backward(scaler, params)
    assert scaler.step(Telling(params, lr=0.1)) == "done"


def test_gradients_of_bfloat16_parameters_are_unscaled():
    w = flow.tensor([1.0, 2.0], dtype=flow.bfloat16, requires_grad=True)
    scaler = GradScaler(init_scale=2.0**16)
    scaler.scale((w * w).float().sum()).backward()
    scaler.unscale_(flow.optim.SGD([w], lr=1.0))
    assert_same(w.grad, flow.tensor([2.0, 4.0], dtype=flow.bfloat16))


def test_the_order_of_calls_is_checked():
    params = parameters()
    optimizer = flow.optim.SGD(params, lr=0.1)
    scaler = GradScaler()
    with pytest.raises(GradScalerError, match="no gradients were checked before"):
        scaler.update()
    with pytest.raises(GradScalerError, match="no gradient was checked for this optimizer"):
        scaler.step(optimizer)
    backward(scaler, params)
    scaler.unscale_(optimizer)
    with pytest.raises(GradScalerError, match="unscale_\\(\\) has already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(GradScalerError, match="step\\(\\) has already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(GradScalerError, match="unscale_\\(\\) is being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(ArgumentError, match="got a closure"):
        scaler.step(optimizer, lambda: None)


def test_float16_gradients_are_refused():
    w = flow.tensor([1.0], dtype=flow.float16, requires_grad=True)
    scaler = GradScaler()
    scaler.scale((w * 2.0).float().sum()).backward()
    with pytest.raises(ArgumentError, match="gradient in float16.*flow.autocast"):
        scaler.step(flow.optim.SGD([w], lr=1.0))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"init_scale": 0.0}, ArgumentError, "init_scale=0.0; expected a finite number above 0"),
        ({"init_scale": float("nan")}, ArgumentError, "init_scale=nan"),
        ({"init_scale": "cuda"}, ArgumentTypeError, "init_scale='cuda'; expected a number"),
        ({"growth_factor": 1.0}, ArgumentError, "growth_factor=1.0; expected a finite number above 1"),
        ({"backoff_factor": 1.0}, ArgumentError, "backoff_factor=1.0; expected a number above 0 and below 1"),
        ({"growth_interval": 0}, ArgumentError, "growth_interval=0; expected an integer of at least 1"),
        ({"growth_interval": 2.5}, ArgumentError, "growth_interval=2.5"),
    ],
    ids=str,
)
def test_bad_numbers(options, error, words):
    with pytest.raises(error, match=words):
        GradScaler(**options)


def test_graphs_want_the_reciprocal():
    GradScaler().check_for_graph()
    GradScaler(growth_factor=3.0, backoff_factor=1 / 3).check_for_graph()
    StaticGradScaler(8.0).check_for_graph()
    with pytest.raises(ArgumentError, match="Only support 1.0/growth_factor as backoff_factor at the moment, got 0.25"):
        GradScaler(backoff_factor=0.25).check_for_graph()


def test_setters_and_update_to_a_number():
    scaler = GradScaler()
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    scaler.update(128.0)
    got = (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval(), scaler.get_scale())
    assert got == (4.0, 0.25, 7, 128.0) and scaler.is_enabled()
    assert repr(scaler) == (
        "GradScaler(scale=128.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=7, enabled=True)"
    )
    with pytest.raises(ArgumentError, match="new_scale=-1"):
        scaler.update(-1)


def test_state_dict(tmp_path):
    scaler = GradScaler(init_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)
    scaler.replayed(False)
    scaler.replayed(False)
    flow.save(scaler.state_dict(), tmp_path / "scaler")
    other = GradScaler()
    other.load_state_dict(flow.load(tmp_path / "scaler"))
    assert other.state_dict() == scaler.state_dict()
    other.replayed(False)
    assert other.get_scale() == 32.0
    assert GradScaler(enabled=False).state_dict() == {}
    with pytest.raises(CheckpointError, match="expected a dict with scale, growth_factor"):
        other.load_state_dict({})
    for steps in (-1, 0.5, "2", True):
        with pytest.raises(ArgumentError, match="_growth_tracker=.*; expected an integer of at least 0"):
            other.load_state_dict({**scaler.state_dict(), "scale": 1.0, "_growth_tracker": steps})
    assert other.get_scale() == 32.0


def test_a_disabled_scaler_stands_aside():
    params = parameters()
    optimizer = flow.optim.SGD(params, lr=0.1)
    scaler = GradScaler(enabled=False)
    backward(scaler, params, np.inf)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.replayed(True)
    assert scaler.get_scale() == 1.0 and not np.isfinite(params[0].tolist()).all()


def test_static_scaler():
    params = parameters()
    optimizer = flow.optim.SGD(params, lr=0.5)
    scaler = StaticGradScaler(1024.0)
    for _ in range(2):
        optimizer.zero_grad()
        backward(scaler, params)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 1024.0 and repr(scaler) == "StaticGradScaler(1024.0)"
    assert_same(params[0].detach(), np.float32([[0, 0, 0]]))
    assert_same(params[1].detach(), np.float32([-1.5]))
    backward(scaler, params, np.inf)
    scaler.step(optimizer)  # nobody looks
    assert not np.isfinite(params[0].tolist()).all()


def test_gradients_lost_in_float16_are_kept_by_scaling():
    """The gradient 1e-8 is 0 in float16; times 65536 it is not."""

    def gradient(scaler):
        w = flow.ones(1, 1, requires_grad=True)
        with flow.autocast(w.device.type, dtype=flow.float16):
            loss = (flow.ones(1, 1) @ w).float().sum() * 1e-8
        scaler.scale(loss).backward()
        scaler.unscale_(flow.optim.SGD([w], lr=1.0))
        return w.grad

    assert_same(gradient(GradScaler(enabled=False)), np.float32([[0]]))
    assert_close(gradient(GradScaler()), np.float32([[1e-8]]), rtol=1e-3, atol=0)


# the ops


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 5, 4097, 150_001])
def test_any_non_finite(dtype, size):
    kind = getattr(flow, dtype)
    largest = {"float16": 65504.0, "bfloat16": 3.3895314e38, "float32": 3.4028235e38, "float64": 1.7e308}[dtype]
    for position in (0, size // 2, size - 1):
        for value, found in [(largest, False), (-largest, False), (np.inf, True), (-np.inf, True), (np.nan, True)]:
            x = np.zeros(size, kind.numpy)
            x[position] = value
            got = any_non_finite([flow.ones(3, 2), flow.tensor(x), flow.zeros(0), flow.ones(2, dtype=flow.float64)])
            assert got.dtype is flow.bool and got.shape == ()
            assert got.item() == found


def test_any_non_finite_in_views():
    x = flow.zeros(6, 8)
    x[1, 3] = np.inf
    assert any_non_finite([x.T]).item() and any_non_finite([x[::1, 3:]]).item() and any_non_finite([x[1:2, 3]]).item()
    assert not any_non_finite([x[:, ::2]]).item() and not any_non_finite([x[2:].T]).item()


def test_scaling_can_be_differentiated_twice():
    x = flow.tensor([2.0], requires_grad=True)
    (slope,) = flow.autograd.grad(scale_loss(x**3, 8.0), x, create_graph=True)
    assert_same(flow.autograd.grad(slope, x)[0], np.float32([96]))


def test_the_first_argument_is_the_device():
    assert GradScaler("cpu", 8.0).get_scale() == GradScaler(init_scale=8.0).get_scale() == 8.0
    with pytest.raises(TypeError, match="device=8.0; expected 'cuda' or 'cpu', and init_scale by its name"):
        GradScaler(8.0)
    assert flow.autocast().device_type == "cuda"
