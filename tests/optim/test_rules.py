"""Twenty updates by each optimizer against the rule in NumPy float64, over dtypes, layouts and sizes."""

import math

import numpy as np
import pytest
from checks import assert_close, assert_same, on_device

import miniflow as flow
from miniflow import optim
from miniflow.backends.cpu.optim import LOOPS
from miniflow.backends.cpu.threads import SHARED_FROM
from miniflow.errors import ShapeError

STEPS = 20


def sgd(p, grads, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    v = None
    for g in grads:
        g = (-g if maximize else g) + weight_decay * p
        if momentum:
            v = g if v is None else momentum * v + (1 - dampening) * g
            g = g + momentum * v if nesterov else v
        p = p - lr * g
    return p


def adam(
    p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
    do_bias_correction=True, decoupled=False,
):  # fmt: skip
    m, v, largest = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v)
        first, second = ((1 - betas[0] ** t), (1 - betas[1] ** t)) if do_bias_correction else (1, 1)
        p = p - lr * (m / first) / (np.sqrt((largest if amsgrad else v) / second) + eps)
    return p


def adamw(p, grads, weight_decay=0.01, **options):
    return adam(p, grads, weight_decay=weight_decay, decoupled=True, **options)


def rmsprop(p, grads, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False, maximize=False):
    v, mean, b = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for g in grads:
        g = (-g if maximize else g) + weight_decay * p
        v = alpha * v + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        b = momentum * b + g / (np.sqrt(v - mean**2 if centered else v) + eps)
        p = p - lr * b
    return p


def adagrad(
    p, grads, lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10, maximize=False
):
    s = np.full_like(p, initial_accumulator_value)
    for t, g in enumerate(grads, 1):
        g = (-g if maximize else g) + weight_decay * p
        s = s + g**2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s) + eps)
    return p


def ftrl(
    p, grads, lr=1e-3, weight_decay=0.0, lr_power=-0.5, initial_accumulator_value=0.1, lambda1=0.0, lambda2=0.0,
    beta=0.0, maximize=False,
):  # fmt: skip
    a, z = np.full_like(p, initial_accumulator_value), np.zeros_like(p)
    for g in grads:
        g = (-g if maximize else g) + weight_decay * p
        root = (a + g**2) ** -lr_power
        z = z + g - (root - a**-lr_power) / lr * p
        a = a + g**2
        p = np.where(abs(z) <= lambda1, 0, (np.sign(z) * lambda1 - z) / ((beta + root) / lr + lambda2))
    return p


def lamb(
    p, grads, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, adam_w_mode=True, do_bias_correction=True,
    amsgrad=False, maximize=False,
):  # fmt: skip
    m, v, largest = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = (-g if maximize else g) + (0 if adam_w_mode else weight_decay * p)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v)
        first, second = ((1 - betas[0] ** t), (1 - betas[1] ** t)) if do_bias_correction else (1, 1)
        r = (m / first) / (np.sqrt((largest if amsgrad else v) / second) + eps) + adam_w_mode * weight_decay * p
        norms = np.sqrt((p**2).sum()), np.sqrt((r**2).sum())
        p = p - lr * r * (norms[0] / norms[1] if min(norms) > 0 else 1)
    return p


CASES = [
    (optim.FTRL, ftrl, {"lr": 0.1}),
    (
        optim.FTRL,
        ftrl,
        {
            "lr": 0.1,
            "weight_decay": 0.1,
            "lr_power": -0.7,
            "initial_accumulator_value": 0.5,
            "lambda1": 3.0,
            "lambda2": 0.2,
            "beta": 1.0,
            "maximize": True,
        },
    ),
    (optim.SGD, sgd, {}),
    (optim.SGD, sgd, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    (optim.Adam, adam, {}),
    (optim.Adam, adam, {"lr": 0.1, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    (optim.Adam, adam, {"lr": 0.1, "betas": (0.5, 0.6), "amsgrad": True}),
    (optim.Adam, adam, {"lr": 0.1, "do_bias_correction": False}),
    (optim.AdamW, adamw, {}),
    (optim.AdamW, adamw, {"lr": 0.1, "weight_decay": 0.2, "amsgrad": True, "betas": (0.5, 0.6)}),
    (optim.RMSprop, rmsprop, {}),
    (optim.RMSprop, rmsprop, {"lr": 0.1, "alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    (optim.RMSprop, rmsprop, {"lr": 0.05, "momentum": 0.9, "centered": True}),
    (optim.Adagrad, adagrad, {}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.3, "weight_decay": 0.1, "eps": 1e-3, "maximize": True}),
    (optim.Adagrad, adagrad, {"lr": 0.1, "initial_accumulator_value": 0.7}),
    (optim.LAMB, lamb, {}),
    (optim.LAMB, lamb, {"lr": 0.1, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
    (optim.LAMB, lamb, {"lr": 0.1, "weight_decay": 0.1, "adam_w_mode": False, "do_bias_correction": False}),
    (optim.LAMB, lamb, {"lr": 0.1, "weight_decay": 0.1, "adam_w_mode": False, "maximize": True}),
]
IDS = [f"{c[0].__name__}-{'-'.join(f'{k}={v}' for k, v in c[2].items())}" for c in CASES]


def make(array, dtype, layout):
    """A leaf with these values whose memory is laid out in that way."""
    base = {
        "dense": array,
        "transposed": np.ascontiguousarray(array.T).T,
        "strided": np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array,
    }[layout]
    x = on_device(base.astype(dtype.numpy, order="K", copy=False))
    if layout == "strided" and array.ndim:
        x = on_device(np.repeat(array, 2, axis=-1).astype(dtype.numpy))[..., ::2].detach()
    return x.requires_grad_()


def run(optimizer_class, options, dtype, shapes, layout="dense", seed=0):
    """Twenty steps of the optimizer; returns the parameters, their first values and the gradients given."""
    draw = np.random.default_rng(seed)
    starts = [draw.normal(size=shape) for shape in shapes]
    params = [make(start, dtype, layout) for start in starts]
    starts = [p.detach().cpu().numpy().astype(np.float64) for p in params]
    optimizer = optimizer_class(params, **options)
    grads = [[] for _ in params]
    for _ in range(STEPS):
        for p, seen in zip(params, grads, strict=True):
            p.grad = flow.tensor(draw.normal(size=tuple(p.shape)), dtype=dtype)
            if layout == "transposed" and p.ndim == 2:
                p.grad = p.grad.t().contiguous().t()
            seen.append(p.grad.cpu().numpy().astype(np.float64))
        optimizer.step()
    return params, starts, grads


SHAPES = [(3, 5), (7,), (), (2, 3, 2, 2), (0, 4)]


@pytest.mark.parametrize(("optimizer", "rule", "options"), CASES, ids=IDS)
def test_float64(optimizer, rule, options):
    params, starts, grads = run(optimizer, options, flow.float64, SHAPES)
    for p, start, seen in zip(params, starts, grads, strict=True):
        assert_close(p.detach(), np.asarray(rule(start, seen, **options)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("optimizer", "rule", "options"), CASES, ids=IDS)
def test_float32(optimizer, rule, options):
    params, starts, grads = run(optimizer, options, flow.float32, SHAPES)
    for p, start, seen in zip(params, starts, grads, strict=True):
        expected = np.asarray(rule(start, seen, **options)).astype(np.float32)
        assert_close(p.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["transposed", "strided"])
@pytest.mark.parametrize(("optimizer", "rule", "options"), CASES[1::3], ids=IDS[1::3])
def test_parameters_that_are_not_contiguous(optimizer, rule, options, layout):
    params, starts, grads = run(optimizer, options, flow.float64, [(3, 5), (4, 2)], layout)
    for p, start, seen in zip(params, starts, grads, strict=True):
        assert not p.is_contiguous()
        assert_close(p.detach(), rule(start, seen, **options), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("optimizer", "rule", "options"), [CASES[2], CASES[6]])
@pytest.mark.parametrize("others", [{}, {"dtype": flow.float32}, {"layout": "transposed"}], ids=str)
def test_parameters_of_all_sizes_that_have_seen_different_numbers_of_steps(optimizer, rule, options, others):
    draw = np.random.default_rng(0)
    sizes = [(3, 5), (4096,), (2,), (0,), (4095,), (4097,), (7, 2)]
    starts = [draw.normal(size=size) for size in sizes]
    params = [make(start.copy(), flow.float64, "dense") for start in starts[:-1]]
    params.append(make(starts[-1].copy(), others.get("dtype", flow.float64), others.get("layout", "dense")))
    instance, grads = optimizer(params, **options), [[] for _ in params]
    for step in range(4):
        for k, p in enumerate(params):
            p.grad = None
            if step >= k % 3:
                grads[k].append(draw.normal(size=sizes[k]))
                p.grad = flow.tensor(grads[k][-1], dtype=p.dtype)
        if step == 2:
            params[0].data = params[0].data.clone()  # other memory
        instance.step()
    for p, start, seen in zip(params, starts, grads, strict=True):
        tolerance = 1e-10 if p.dtype is flow.float64 else 1e-5
        want = np.asarray(rule(start, seen, **options)).astype(p.dtype.numpy)
        assert_close(p.detach(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
@pytest.mark.parametrize(
    ("optimizer", "rule", "options"),
    [
        (optim.SGD, sgd, {"lr": 0.05, "momentum": 0.9}),
        (optim.Adam, adam, {"lr": 0.05, "amsgrad": True}),
        (optim.RMSprop, rmsprop, {"lr": 0.05, "momentum": 0.5, "centered": True, "alpha": 0.9}),
        (optim.Adagrad, adagrad, {"lr": 0.05}),
    ],
)
def test_half_precision_is_updated_in_float32(optimizer, rule, options, dtype):
    params, starts, grads = run(optimizer, options, dtype, [(3, 5), (4,)])
    rounding = 20 * float(np.finfo(np.float16).eps if dtype is flow.float16 else 2**-8)
    for p, start, seen in zip(params, starts, grads, strict=True):
        assert p.dtype is dtype
        expected = rule(start, seen, **options)
        np.testing.assert_allclose(p.detach().float().cpu().numpy(), expected, atol=rounding)


def test_states_of_half_precision_are_float32():
    p = flow.ones(2, dtype=flow.float16, requires_grad=True)
    p.grad = flow.full((2,), 1e-4, dtype=flow.float16)  # its square is below the range of float16
    optimizer = optim.Adam([p], lr=0.25)
    optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"].dtype is flow.float32
    assert p.tolist() == [0.75, 0.75]


@pytest.mark.parametrize(("optimizer", "rule", "options"), [CASES[2], CASES[6], CASES[12], CASES[14]])
@pytest.mark.parametrize("size", [SHARED_FROM - 1, SHARED_FROM, SHARED_FROM + 1])
def test_around_the_size_from_which_threads_share(optimizer, rule, options, size):
    draw = np.random.default_rng(0)
    start, g = draw.normal(size=size), draw.normal(size=size)
    p = flow.tensor(start, dtype=flow.float32, requires_grad=True)
    p.grad = flow.tensor(g, dtype=flow.float32)
    instance = optimizer([p], **options)
    instance.step()
    instance.step()
    assert_close(p.detach(), rule(start, [g, g], **options).astype(np.float32), rtol=1e-5, atol=1e-5)


def test_parameters_that_share_memory_are_updated_one_after_the_other():
    p = flow.zeros(4 * SHARED_FROM, requires_grad=True)
    q = p.detach()[1:].requires_grad_()
    p.grad, q.grad = flow.ones(4 * SHARED_FROM), flow.full((4 * SHARED_FROM - 1,), 2.0)
    optim.SGD([p, q], lr=1.0).step()
    assert p[0].item() == -1 and (p[1:] == -3).all()


def signatures():
    return [len(loop.signatures) for loop in LOOPS.values()]


def test_integer_options_need_no_loop_of_their_own():
    p = flow.zeros(2, requires_grad=True)
    p.grad = flow.ones(2)
    optim.SGD([p], momentum=0.5).step()
    optim.Adam([p]).step()
    optim.Adam([p], amsgrad=True).step()
    optim.RMSprop([p], momentum=0.5, centered=True).step()
    optim.Adagrad([p]).step()
    compiled = signatures()
    optim.SGD([p], lr=1, momentum=1, weight_decay=0, dampening=1).step()
    optim.Adam([p], lr=1, betas=(0, 0), eps=1, weight_decay=0, do_bias_correction=False).step()
    optim.AdamW([p], lr=1, betas=(0.5, 0), eps=1, weight_decay=1, amsgrad=True).step()
    optim.RMSprop([p], lr=1, alpha=0, eps=1, weight_decay=1, momentum=1, centered=True).step()
    optim.Adagrad([p], lr=1, lr_decay=1, weight_decay=1, eps=1).step()
    assert signatures() == compiled


def test_gradients_that_are_read_only_need_no_loop_of_their_own():
    run(optim.SGD, {}, flow.float32, [(1,)])
    compiled = signatures()
    p = flow.zeros(1, requires_grad=True)
    p.sum().backward()
    optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [-0.5]
    p.grad = on_device(np.broadcast_to(np.float32(1), (1,)))
    optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [-1.0] and signatures() == compiled


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad])
def test_nan_and_infinity_stay_where_they_are(optimizer):
    p = flow.tensor([0.0, math.inf, -math.inf, 1.0], requires_grad=True)
    p.grad = flow.tensor([math.nan, 1.0, 1.0, 0.0])
    optimizer([p], lr=1.0, weight_decay=0.0).step()
    assert_same(p.detach(), np.array([math.nan, math.inf, -math.inf, 1.0], np.float32))


@pytest.mark.cpu_only("ranks are simulated on the CPU")
def test_the_lengths_of_lamb_are_those_of_the_whole_of_a_split_parameter():
    draw = np.random.default_rng(0)
    start, grads = draw.normal(size=(4, 3)), draw.normal(size=(3, 4, 3))
    flow.parallel.simulate(2)
    try:
        everyone, split = flow.placement.all("cpu"), flow.sbp.split(0)
        p = flow.tensor(start, placement=everyone, sbp=split, requires_grad=True)
        optimizer = optim.LAMB([p], lr=0.1, weight_decay=0.1)
        for g in grads:
            p.grad = flow.tensor(g, placement=everyone, sbp=split)
            optimizer.step()
        assert p.sbp == (split,)
        assert_close(flow.tensor(p.detach().numpy()), lamb(start, grads, lr=0.1, weight_decay=0.1), rtol=1e-10)
    finally:
        flow.parallel.simulate(1)


@pytest.mark.parametrize("optimizer_class", [flow.optim.Adam, flow.optim.LAMB, flow.optim.SparseAdam])
def test_a_parameter_that_got_another_shape_is_refused(optimizer_class):
    name = optimizer_class.__name__
    p = flow.ones(3, 2).requires_grad_()
    optimizer = optimizer_class([p])
    p.grad = flow.ones(3, 2)
    optimizer.step()
    p.data = flow.ones(40, 2)
    for grad in (p.grad, flow.ones(40, 2)):  # the old gradient, then the old states
        p._grad = grad
        with pytest.raises(ShapeError, match=rf"{name}.step: got a gradient or state of shape \(3, 2\) .* \(40, 2\)"):
            optimizer.step()
    assert p.tolist() == [[1.0, 1.0]] * 40
