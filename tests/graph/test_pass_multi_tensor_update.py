"""multi_tensor_update: golden texts, what stays apart, and training steps whose bits stay."""

import numpy as np
import pytest
from op_classes import Mul
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names
from training import Training

import miniflow as flow
from miniflow import nn, optim
from miniflow.graph.ir import OPTIMIZER, UPDATE, Scalar
from miniflow.graph.passes import multi_tensor_update
from miniflow.nn.utils.clip_grad import ClipGradNorm, TotalNorm
from miniflow.optim.sgd import SgdUpdate

PLAIN = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}


def sgd(b, parameter, gradient, lr=0.5, buffer=None, fresh=False, **options):
    """An update and the writes of its results."""
    results = b(SgdUpdate, parameter, gradient, buffer, lr=lr, fresh=[fresh], **{**PLAIN, **options})
    results = results if isinstance(results, tuple) else (results,)
    for state, value in zip([parameter, buffer], results, strict=False):
        b.write(state, value)
    return results


def builder():
    b = ProgramBuilder()
    b.phase = UPDATE
    return b


def test_golden():
    b = builder()
    p, q = b.parameter(2, name="fc.weight"), b.parameter(3, name="fc.bias")
    m, n = b.state(2, kind=OPTIMIZER, name="fc.weight-momentum"), b.state(3, kind=OPTIMIZER, name="fc.bias-momentum")
    g, h = b.input(2), b.input(3)
    lr, fresh = Scalar("lr", lambda: 0.5), [Scalar(f"fresh.{i}", lambda: True) for i in range(2)]
    sgd(b, p, g, lr, m, fresh[0], momentum=0.9)
    sgd(b, q, h, lr, n, fresh[1], momentum=0.9)
    before = b.build()
    after = assert_unchanged(before, multi_tensor_update.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2] = input input.0\n"
        "  %1:f32[3] = input input.1\n"
        "  %2:f32[2] = parameter fc.weight\n"
        "  %3:f32[3] = parameter fc.bias\n"
        "  %4:f32[2] = optimizer fc.weight-momentum\n"
        "  %5:f32[3] = optimizer fc.bias-momentum\n"
        "  %6:f32[2], %7:f32[3], %8:f32[2], %9:f32[3] = sgd_update(%2, %3, %0, %1, %4, %5, lr=<lr>, "
        "fresh=[<fresh.0>, <fresh.1>], momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.0, maximize=False)\n"
        "  write fc.weight <- %6\n"
        "  write fc.weight-momentum <- %8\n"
        "  write fc.bias <- %7\n"
        "  write fc.bias-momentum <- %9\n"
        "  return"
    )
    assert_same_results(before, after, special=True)
    assert multi_tensor_update.run(after) is after


@pytest.mark.parametrize(
    ("first", "second"),
    [({"lr": 0.5}, {"lr": 0.25}), ({"weight_decay": 0.0}, {"weight_decay": -0.0}), ({}, {"maximize": True})],
)
def test_other_attributes_stay_apart(first, second):
    b = builder()
    p, q, g = b.parameter(2), b.parameter(2), b.input(2)
    sgd(b, p, g, **first)
    sgd(b, q, g, **second)
    program = b.build()
    assert multi_tensor_update.run(program) is program


def test_other_conditions_stay_apart():
    b = builder()
    p, q, r, g, skip = b.parameter(2), b.parameter(2), b.parameter(2), b.input(2), b.input(dtype="bool")
    sgd(b, p, g)
    b.unless = skip
    sgd(b, q, g)
    sgd(b, r, g)
    before = b.build()
    after = multi_tensor_update.run(before)
    assert [i.unless for i in after.instructions] == [None, skip]
    assert_same_results(before, after)


def test_a_result_that_is_read_keeps_its_place():
    """The second update of p and the product need the first one."""
    b = builder()
    p, q, r, g = b.parameter(2), b.parameter(2), b.parameter(2), b.input(2)
    (new,) = sgd(b, p, g)
    sgd(b, q, g)
    sgd(b, r, b(Mul, new, g))
    (newer,) = sgd(b, new, g)
    b.program.writes.pop(new)
    b.write(p, newer)
    before = b.build()
    after = assert_unchanged(before, multi_tensor_update.run)
    assert op_names(after) == ["sgd_update", "mul", "sgd_update"]
    assert_same_results(before, after)


def test_an_instruction_between_that_reads_nothing_of_it_stays():
    b = builder()
    p, q, g = b.parameter(2), b.parameter(2), b.input(2)
    sgd(b, p, g)
    sgd(b, q, b(Mul, g, 2.0))
    before = b.build()
    after = multi_tensor_update.run(before)
    assert op_names(after) == ["mul", "sgd_update"]
    assert_same_results(before, after)


def test_clipping_is_merged_too():
    b = builder()
    g, h = b.input(2), b.input(3, 2)
    norm = b(TotalNorm, g, h, norm_type=2.0)
    before = b.build(*[b(ClipGradNorm, x, norm, max_norm=0.5) for x in (g, h)], norm)
    after = assert_unchanged(before, multi_tensor_update.run)
    assert op_names(after) == ["total_norm", "clip_grad_norm"]
    assert_same_results(before, after, special=True)


RULES = [
    (optim.SGD, {}),
    (optim.SGD, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    (optim.Adam, {"amsgrad": True}),
    (optim.AdamW, {"weight_decay": 0.1}),
    (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (optim.Adagrad, {"lr_decay": 0.1}),
]


@pytest.mark.parametrize(("rule", "options"), RULES)
def test_training_steps_give_the_same_bits(rule, options):
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 1))
    groups = [{"params": [*model[0].parameters(), *model[2].parameters()]}, {"params": model[4].parameters()}]
    groups[0]["clip_grad_max_norm"] = 0.3
    optimizer = rule(groups, lr=0.1, **options)
    training = Training(model, nn.functional.mse_loss, optimizer, clip=True)
    draw = np.random.default_rng(0)
    x, y = (flow.tensor(draw.normal(size=s), dtype=flow.float32) for s in ((4, 5), (4, 1)))
    before = training.record(x._array, y._array)
    after = assert_unchanged(before, multi_tensor_update.run)
    assert [i.op for i in after.instructions].count(optimizer.rule) == 2  # the learning rates of the groups may differ
    assert_same_results(before, after)
