"""autocast and GradScaler beside PyTorch's: dtypes of results, gradients, and which steps are left out."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)
T = np.array([0, 5, 2, 3])

SAME = {  # of the framework, its nn.functional, x, w, t
    "matmul": lambda m, f, x, w, t: m.matmul(x, w),
    "bmm": lambda m, f, x, w, t: m.bmm(x.view(1, 4, 6), w.view(1, 6, 6)),
    "mm": lambda m, f, x, w, t: m.mm(x, w),
    "linear": lambda m, f, x, w, t: f.linear(x, w, w[0]),
    "conv2d": lambda m, f, x, w, t: f.conv2d(x.view(1, 1, 4, 6), w.view(1, 1, 6, 6)[:, :, :2, :3]),
    "linear twice": lambda m, f, x, w, t: f.linear(f.linear(x, w), w),
    "relu of product": lambda m, f, x, w, t: f.relu(x @ w),
    "gelu of product": lambda m, f, x, w, t: f.gelu(x @ w),
    "softmax of product": lambda m, f, x, w, t: m.softmax(x @ w, 1),
    "log_softmax of product": lambda m, f, x, w, t: m.log_softmax(x @ w, 1),
    "sum of product": lambda m, f, x, w, t: (x @ w).sum(),
    "tanh of product": lambda m, f, x, w, t: m.tanh(x @ w),
    "number times product": lambda m, f, x, w, t: (x @ w) * 0.3,
    "product and float32": lambda m, f, x, w, t: (x @ w) + x,
    "cat of product and float32": lambda m, f, x, w, t: m.cat([x @ w, x]),
    "view of product": lambda m, f, x, w, t: (x @ w).T.reshape(3, 8),
    "softmax": lambda m, f, x, w, t: m.softmax(x, 1),
    "exp": lambda m, f, x, w, t: m.exp(x),
    "compared product": lambda m, f, x, w, t: (x @ w) > 0.25,
    "cast of product": lambda m, f, x, w, t: (x @ w).float(),
    "cross_entropy of product": lambda m, f, x, w, t: f.cross_entropy(x @ w, t),
    "nll_loss of product": lambda m, f, x, w, t: f.nll_loss(m.log_softmax(x @ w, 1), t),
    "mse_loss of product": lambda m, f, x, w, t: f.mse_loss(x @ w, x),
    "l1_loss of product": lambda m, f, x, w, t: f.l1_loss(x @ w, x),
    "bce_with_logits of product": lambda m, f, x, w, t: f.binary_cross_entropy_with_logits(x @ w, m.sigmoid(x)),
    "prod of product": lambda m, f, x, w, t: (x @ w).prod(),
}
# In half precision on PyTorch's CPU, in float32 on its GPUs, and in OneFlow: in float32 here on every device.
FLOAT32_AS_ON_GPUS = {
    "exp of product": lambda m, f, x, w, t: m.exp(x @ w),
    "log of product": lambda m, f, x, w, t: m.log(m.abs(x @ w)),
    "rsqrt of product": lambda m, f, x, w, t: m.rsqrt(m.abs(x @ w) + 1),
    "norm of product": lambda m, f, x, w, t: m.norm(x @ w),
    "softplus of product": lambda m, f, x, w, t: f.softplus(x @ w),
}


def results(function, dtype):
    """The result and the gradients of both frameworks."""
    found = []
    for module, functional, make in (
        (flow, flow.nn.functional, flow.tensor),
        (torch, torch.nn.functional, torch.tensor),
    ):
        x, w, t = make(X), make(W, requires_grad=True), make(T)
        with module.autocast("cpu", dtype=getattr(module, dtype)):
            y = function(module, functional, x, w, t)
        if y.dtype is not module.bool and y.requires_grad:
            y.float().sum().backward()
        found.append((y.detach(), w.grad))
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", SAME)
def test_dtypes_and_values_are_the_same(name, dtype):
    (ours, our_gradient), (theirs, their_gradient) = results(SAME[name], dtype)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    loose = {"bfloat16": 6e-2, "float16": 8e-3}[dtype]  # eight roundings of values around 2
    assert_close(ours, theirs, rtol=loose, atol=loose)
    assert (our_gradient is None) == (their_gradient is None)
    if our_gradient is not None:
        assert our_gradient.dtype is flow.float32 and their_gradient.dtype is torch.float32
        size = float(their_gradient.abs().max())
        assert_close(our_gradient, their_gradient, rtol=loose, atol=loose * size)


@pytest.mark.parametrize("name", FLOAT32_AS_ON_GPUS)
def test_is_in_float32(name):
    (ours, our_gradient), (theirs, their_gradient) = results(FLOAT32_AS_ON_GPUS[name], "bfloat16")
    assert (ours.dtype, theirs.dtype) == (flow.float32, torch.bfloat16)
    assert_close(ours, theirs.float(), rtol=6e-2, atol=6e-2)
    assert our_gradient.dtype is flow.float32
    assert_close(our_gradient, their_gradient, rtol=6e-2, atol=6e-2 * float(their_gradient.abs().max()))


def test_nesting_and_defaults():
    for module in (flow, torch):
        x = module.ones(2, 2)
        with module.autocast("cpu"):
            assert (x @ x).dtype is module.bfloat16
            with module.autocast("cpu", enabled=False):
                assert (x @ x).dtype is module.float32
                with module.autocast("cpu", dtype=module.float16):
                    assert (x @ x).dtype is module.float16
            assert (x @ x).dtype is module.bfloat16
        assert (x @ x).dtype is module.float32


OPTIONS = {"init_scale": 16.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("unscale", [False, True])
def test_scaler_over_many_steps(name, unscale):
    """Parameters, states and scales after each of twelve steps, some of which overflow."""
    ours, theirs = flow.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    options = {"lr": 0.1, "weight_decay": 0.0}
    a, b = getattr(flow.optim, name)([ours], **options), getattr(torch.optim, name)([theirs], **options)
    mine, yours = flow.amp.GradScaler(**OPTIONS), torch.amp.GradScaler("cpu", **OPTIONS)
    for step, factor in enumerate([1, np.inf, 2, 1, 3, np.nan, 1, 1, 1, -np.inf, 1, 2]):
        for p, optimizer, scaler in ((ours, a, mine), (theirs, b, yours)):
            optimizer.zero_grad()
            scaler.scale((p * p).sum() * float(factor)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        assert mine.get_scale() == yours.get_scale()
        assert mine.state_dict() == yours.state_dict()
        assert_close(ours.detach(), theirs.detach(), rtol=1e-5, atol=1e-6, what=f"step {step}")
    state = b.state[theirs]
    assert bool(state) == (name != "SGD")
    for key, value in a.state[ours].items():
        if key == "step":
            assert value == int(state[key]) == 9
        else:
            assert_close(value, state[key], rtol=1e-5, atol=1e-6, what=key)


def test_states_can_be_exchanged():
    mine, yours = flow.amp.GradScaler(**OPTIONS), torch.amp.GradScaler("cpu")
    mine.replayed(False)
    yours.load_state_dict(mine.state_dict())
    fresh = flow.amp.GradScaler()
    fresh.load_state_dict(yours.state_dict())
    assert fresh.state_dict() == mine.state_dict()


@pytest.mark.parametrize("call", ["unscale twice", "unscale after step", "step twice", "update at once"])
def test_the_same_calls_are_refused(call):
    for module, make in ((flow, flow.amp.GradScaler), (torch, lambda: torch.amp.GradScaler("cpu"))):
        p = module.ones(2)
        p.requires_grad_()
        optimizer, scaler = module.optim.SGD([p], lr=0.1), make()
        scaler.scale(p.sum()).backward()
        if call != "update at once":
            (scaler.unscale_ if call == "unscale twice" else scaler.step)(optimizer)
        with pytest.raises((RuntimeError, AssertionError)):
            if call == "update at once":
                scaler.update()
            else:
                (scaler.step if call == "step twice" else scaler.unscale_)(optimizer)


def test_training_with_float16_is_like_torch():
    """A small network, ten steps; the first scale is too large for it in both."""
    draw = np.random.default_rng(3)
    layers = [draw.normal(size=s).astype(np.float32) * 0.4 for s in ((6, 8), (8, 3))]
    losses = []
    for module, make in ((flow, flow.amp.GradScaler), (torch, lambda **o: torch.amp.GradScaler("cpu", **o))):
        w, v = (module.tensor(a, requires_grad=True) for a in layers)
        optimizer, scaler = module.optim.SGD([w, v], lr=0.2), make(init_scale=2.0**20)
        x, t = module.tensor(X), module.tensor(T % 3)
        found = []
        for _ in range(10):
            optimizer.zero_grad()
            with module.autocast("cpu", dtype=module.float16):
                loss = module.nn.functional.cross_entropy(module.tanh(x @ w) @ v, t)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append(loss.item())
        losses.append((found, scaler.get_scale()))
    assert losses[0][1] == losses[1][1] < 2.0**20
    assert_close(np.array(losses[0][0]), np.array(losses[1][0]), rtol=5e-3, atol=5e-3)
    assert losses[0][0][-1] < losses[0][0][0]
    assert_same(np.array(losses[0][1]), np.array(losses[1][1]))
