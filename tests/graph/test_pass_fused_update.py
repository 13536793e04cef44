"""fused_update: golden texts, what stays as it is, and training steps that agree to the last digits."""

import numpy as np
import pytest
from checks import assert_close
from op_classes import Add, Div, Mul
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names
from training import Training

import miniflow as flow
from miniflow import nn, optim
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import UPDATE, Scalar
from miniflow.graph.passes import fused_update, multi_tensor_update
from miniflow.nn.utils.clip_grad import ClipGradNorm, ClipGradValue, TotalNorm
from miniflow.ops.loss_scale import AnyNonFinite, UnscaleGradient
from miniflow.ops.promotion import Cast
from miniflow.optim.sgd import SgdUpdate

ATTRS = {"fresh": [False], "lr": 0.5, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}
ATTRS["maximize"] = False
SCALE = Scalar("scale", lambda: 8.0)


def builder():
    b = ProgramBuilder()
    b.phase = UPDATE
    return b


def update(b, parameter, gradient):
    result = b(SgdUpdate, parameter, gradient, None, **ATTRS)
    b.write(parameter, result)
    return result


def test_golden():
    b = builder()
    p, q, g, h = b.parameter(2, name="weight"), b.parameter(3, name="bias"), b.input(2), b.input(3)
    skip = b(AnyNonFinite, g, h)
    unscaled = [b(UnscaleGradient, x, scale=SCALE) for x in (g, h)]
    b.unless = skip
    norm = b(TotalNorm, *unscaled, norm_type=2.0)
    for parameter, gradient in zip((p, q), unscaled, strict=True):
        update(b, parameter, b(ClipGradNorm, gradient, norm, max_norm=0.25))
    before = b.build()
    after = assert_unchanged(before, fused_update.run)
    attrs = "lr=0.5, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, maximize=False"
    attrs += ", multiply=(), divide=(), max_norm=0.25"
    assert str(after) == (
        "program:\n"
        "  %0:f32[2] = input input.0\n"
        "  %1:f32[3] = input input.1\n"
        "  %2:f32[2] = parameter weight\n"
        "  %3:f32[3] = parameter bias\n"
        "  %4:bool[] = any_non_finite(%0, %1)\n"
        "  %5:f32[2] = unscale_gradient(%0, scale=<scale>)\n"
        "  %6:f32[3] = unscale_gradient(%1, scale=<scale>)\n"
        "  %7:f32[] = total_norm(%5, %6, norm_type=2.0) unless %4\n"
        f"  %8:f32[2] = fused_sgd_update(%2, %5, None, %7, fresh=[False], {attrs}) unless %4\n"
        f"  %9:f32[3] = fused_sgd_update(%3, %6, None, %7, fresh=[False], {attrs}) unless %4\n"
        "  write weight <- %8\n"
        "  write bias <- %9\n"
        "  return"
    )
    assert_same_results(before, after, exact=False, rtol=1e-6, atol=1e-7)
    merged = multi_tensor_update.run(after)
    assert op_names(merged) == [
        "any_non_finite", "unscale_gradient", "unscale_gradient", "total_norm", "fused_sgd_update",
    ]  # fmt: skip
    assert_same_results(after, merged)


FACTORS = {
    "product": (lambda b, g: b(Mul, g, 0.3), "multiply", 0.3),
    "product from the left": (lambda b, g: b(Mul, 0.3, g), "multiply", 0.3),
    "quotient": (lambda b, g: b(Div, g, 3), "divide", 3),
    "loss scale": (lambda b, g: b(UnscaleGradient, g, scale=SCALE), "divide", SCALE),
}


@pytest.mark.parametrize("what", FACTORS)
def test_the_last_product_or_quotient_with_a_number(what):
    make, name, number = FACTORS[what]
    b = builder()
    p, g = b.parameter(2, 3), b.input(2, 3)
    update(b, p, make(b, b(Mul, g, 7.0)))
    before = b.build()
    after = assert_unchanged(before, fused_update.run)
    assert op_names(after) == ["mul", "fused_sgd_update"]
    factors = {"multiply": (), "divide": (), name: (number,)}
    assert {key: after.instructions[-1].attrs[key] for key in factors} == factors
    assert_same_results(before, after, exact=False, rtol=1e-6)


def other(b, p, g, case):
    """A gradient that does not allow it."""
    if case == "read elsewhere":
        g = b(Mul, g, 2.0)
        b.program.outputs.append(b(Add, g, 1.0))
    elif case == "returned":
        g = b(Mul, g, 2.0)
        b.program.outputs.append(g)
    elif case == "product with a tensor":
        g = b(Mul, g, g)
    elif case == "reciprocal":
        g = b(Div, 2.0, g)
    elif case == "cast":
        g = b(Cast, b(Cast, g, dtype=np.dtype(np.float16)), dtype=np.dtype(np.float32))
    elif case == "bound on the values":
        g = b(ClipGradValue, g, clip_value=0.5)
    elif case == "bound left out at another time":
        b.unless = b.input(dtype="bool")
        g = b(ClipGradNorm, g, b(TotalNorm, g, norm_type=2.0), max_norm=0.1)
        b.unless = None
    return g


CASES = [
    "read elsewhere", "returned", "product with a tensor", "reciprocal", "cast", "bound on the values",
    "bound left out at another time",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_stays(case):
    b = builder()
    p, g = b.parameter(2), b.input(2)
    update(b, p, other(b, p, g, case))
    program = b.build(*b.program.outputs)
    assert fused_update.run(program) is program


def test_the_division_stays_if_the_unscaled_gradient_is_needed():
    b = builder()
    p, g = b.parameter(2), b.input(2)
    unscaled = b(UnscaleGradient, g, scale=8.0)
    norm = b(TotalNorm, unscaled, norm_type=2.0)
    update(b, p, b(ClipGradNorm, unscaled, norm, max_norm=0.25))
    before = b.build(unscaled)
    after = fused_update.run(before)
    assert op_names(after) == ["unscale_gradient", "total_norm", "fused_sgd_update"]
    assert_same_results(before, after, exact=False, rtol=1e-6)


class Along(nn.Graph):
    """A step whose gradient is the input."""

    def __init__(self, model, optimizer, scaler):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.set_grad_scaler(scaler)

    def build(self, x):
        loss = (self.model[0] * x).sum()
        loss.backward()
        return loss


@pytest.mark.parametrize(("number", "scale"), [(1e30, 2.0**60), (1e-30, 2.0**-60)])
def test_a_number_and_a_scale_that_varies_may_lie_outside_of_float32_together(number, scale):
    """Their product is 0 or inf in float32: parameters would stand still, or become nan."""
    b = builder()
    p, g = b.parameter(4), b.input(4)
    b.program.tensors[p].copy_(flow.zeros(4))
    update(b, p, b(UnscaleGradient, b(Div, g, number), scale=Scalar("scale", lambda: scale)))
    before = b.build()
    after = fused_update.run(before)
    assert op_names(after) == ["div", "fused_sgd_update"]
    for program in (before, after):
        _, moved = interpret(program, [np.full(4, number, np.float32)])
        assert_close(moved[p], np.full(4, -0.5 / scale, np.float32), rtol=1e-6)


@pytest.mark.parametrize("rule", [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad])
def test_the_bound_and_the_loss_scale_may_lie_outside_of_float32_together(rule):
    """Their product here, 1e-20 / 2^126, is 0 in float32: parameters would stand still."""
    x = flow.tensor(np.random.default_rng(0).normal(size=64).astype(np.float32)) * 2.0**23
    found = []
    for eager in (True, False):
        model, scaler = nn.ParameterList([nn.Parameter(flow.zeros(64))]), flow.amp.StaticGradScaler(2.0**100)
        options = {"params": model.parameters(), "lr": 1e20, "clip_grad_max_norm": 1e-20}
        optimizer = rule([options], eps=1e-20) if rule is not optim.SGD else rule([options])
        if eager:
            scaler.scale((model[0] * x).sum()).backward()
            scaler.unscale_(optimizer)
            optimizer.clip_grad()
            scaler.step(optimizer)
        else:
            Along(model, optimizer, scaler)(x)
        found.append(model[0].detach().numpy())
    assert_close(found[1], found[0], rtol=1e-6)
    assert np.abs(found[1]).max() > 0.01


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_in_half_precision_are_rounded_after_each_factor(dtype):
    b = builder()
    p, g = b.parameter(6, dtype=dtype), b.input(6, dtype=dtype)
    unscaled = b(UnscaleGradient, g, scale=3.0)
    update(b, p, b(ClipGradNorm, unscaled, b(TotalNorm, unscaled, norm_type=2.0), max_norm=0.1))
    program = b.build()
    assert fused_update.run(program) is program


UNFIT = {
    "a division by 0": [(Div, 0.0)],
    "a product that overflows": [(Mul, 1e30), (Mul, 1e30), (Div, 1e60)],
    "a product that vanishes": [(Div, 1e30), (Mul, 1e-30), (Mul, 1e38)],
}


@pytest.mark.parametrize("what", UNFIT)
def test_factors_that_are_not_normal_numbers_stay(what):
    b = builder()
    p, g = b.parameter(2), b.input(2)
    with np.errstate(all="ignore"):
        for op, number in UNFIT[what]:
            g = b(op, g, number)
        update(b, p, g)
    before = b.build()
    assert_same_results(before, fused_update.run(before), exact=False, rtol=1e-6)


RULES = [
    (optim.SGD, {}),
    (optim.SGD, {"momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    (optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (optim.AdamW, {"weight_decay": 0.1}),
    (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (optim.Adagrad, {"lr_decay": 0.1}),
]


@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
@pytest.mark.parametrize(("rule", "options"), RULES)
def test_training_steps_agree(rule, options, norm_type):
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    clip = {"clip_grad_max_norm": 0.1, "clip_grad_norm_type": norm_type}
    training = Training(
        model, nn.functional.mse_loss, rule([{"params": model.parameters(), **clip}], lr=0.1, **options), clip=True
    )
    draw = np.random.default_rng(0)
    x, y = (flow.tensor(draw.normal(size=s), dtype=flow.float32) for s in ((4, 5), (4, 1)))
    before = training.record(x._array, y._array)
    after = assert_unchanged(before, fused_update.run)
    assert op_names(after).count(f"fused_{rule.rule.function_name}") == 4 and "clip_grad_norm" not in op_names(after)
    assert_same_results(before, after, exact=False, rtol=1e-5, atol=1e-6)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(20))
def test_random_chains_agree(seed):
    """Parameters whose gradients go through random factors, some of them read elsewhere, on the way to the update."""
    random = np.random.default_rng(seed)
    b = builder()
    gradients = [b.input(*shape) for shape in ((3,), (2, 4), (), (5,))]
    steps = [
        lambda g: b(Mul, g, 0.7), lambda g: b(Div, g, 3.0), lambda g: b(UnscaleGradient, g, scale=SCALE),
        lambda g: b(Add, g, 0.1), lambda g: b(ClipGradNorm, g, b(TotalNorm, g, norm_type=2.0), max_norm=0.3),
    ]  # fmt: skip
    outputs = []
    for _ in range(4):
        gradients = [steps[random.integers(len(steps))](g) for g in gradients]
        if random.random() < 0.3:
            outputs.append(gradients[random.integers(4)])
        if random.random() < 0.3:
            norm = b(TotalNorm, *gradients, norm_type=2.0)
            gradients = [b(ClipGradNorm, g, norm, max_norm=0.5) for g in gradients]
    for g in gradients:
        update(b, b.parameter(*g.shape), g)
    before = b.build(*outputs)
    after = assert_unchanged(before, fused_update.run)
    assert_same_results(before, after, exact=False, rtol=1e-5, atol=1e-6)
    assert_same_results(after, multi_tensor_update.run(after))
