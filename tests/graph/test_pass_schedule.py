"""schedule: a golden text, what an update has to wait for, lower peaks, and bits that stay."""

import numpy as np
import pytest
from compare import assert_close
from op_classes import Exp, Mul, Neg
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program
from training import Training

import miniflow as flow
from miniflow import nn, optim
from miniflow.graph.ir import UPDATE
from miniflow.graph.passes import schedule
from miniflow.graph.plan import plan
from miniflow.nn.utils.clip_grad import ClipGradNorm, ClipGradValue, TotalNorm
from miniflow.ops.shape import View
from miniflow.optim.sgd import SgdUpdate

ATTRS = {"fresh": [False], "lr": 0.5, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}
ATTRS["maximize"] = False


def update(b, parameter, gradient):
    b.phase = UPDATE
    result = b(SgdUpdate, parameter, gradient, None, **ATTRS)
    b.write(parameter, result)
    return result


def test_golden():
    b = ProgramBuilder()
    p, q, small, x = b.parameter(4, name="p"), b.parameter(4, name="q"), b.parameter(2, name="small"), b.input(4)
    g = b(Mul, x, q)
    h = b(Exp, g)
    y = b(Neg, h)
    update(b, small, b.constant([1.0, 2.0], "float32"))
    update(b, q, h)
    update(b, p, g)
    before = b.build(y)
    after = assert_unchanged(before, schedule.run)
    attrs = "fresh=[False], lr=0.5, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, maximize=False"
    assert str(after) == (
        "program:\n"
        "  %0:f32[4] = input input.0\n"
        "  %1:f32[4] = parameter p\n"
        "  %2:f32[4] = parameter q\n"
        "  %3:f32[2] = parameter small\n"
        "  %4:f32[2] = constant [1., 2.]\n"
        f"  %5:f32[2] = sgd_update(%3, %4, None, {attrs})\n"
        "  %6:f32[4] = mul(%0, %2)\n"
        f"  %7:f32[4] = sgd_update(%1, %6, None, {attrs})\n"
        "  %8:f32[4] = exp(%6)\n"
        f"  %9:f32[4] = sgd_update(%2, %8, None, {attrs})\n"
        "  %10:f32[4] = neg(%8)\n"
        "  write small <- %5\n"
        "  write q <- %9\n"
        "  write p <- %7\n"
        "  return %10"
    )
    assert_same_results(before, after, special=True)
    assert schedule.run(after) is after


def test_an_update_waits_for_readers_of_the_old_value_also_through_views():
    b = ProgramBuilder()
    p, x = b.parameter(2, 3), b.input(2, 3)
    g = b(Exp, x)
    view = b(View, p, shape=(6,))
    y = b(Neg, b(Exp, g))
    z = b(Neg, view)
    last = b(Neg, y)
    update(b, p, g)
    before = b.build(last, z)
    after = assert_unchanged(before, schedule.run)
    assert op_names(after) == ["exp", "view", "exp", "neg", "neg", "sgd_update", "neg"]
    assert_same_results(before, after)


def test_what_needs_all_gradients_stays_behind_them():
    b = ProgramBuilder()
    p, q, x = b.parameter(4), b.parameter(5), b.input(5)
    g, h = b.input(4), b(Exp, x)
    norm = b(TotalNorm, g, h, norm_type=2.0)
    clipped = [b(ClipGradNorm, some, norm, max_norm=0.1) for some in (g, h)]
    for parameter, gradient in zip((p, q), clipped, strict=True):
        update(b, parameter, gradient)
    before = b.build()
    after = assert_unchanged(before, schedule.run)
    names = ["exp", "total_norm", "clip_grad_norm", "clip_grad_norm", "sgd_update", "sgd_update"]
    assert op_names(after) == names
    assert_same_results(before, after)


def test_a_bound_on_the_values_comes_along():
    b = ProgramBuilder()
    p, x = b.parameter(4), b.input(4)
    g = b(Exp, x)
    y = b(Neg, b(Neg, g))
    update(b, p, b(ClipGradValue, b(Mul, g, 2.0), clip_value=0.5))
    before = b.build(y)
    after = schedule.run(before)
    assert op_names(after) == ["exp", "neg", "neg", "mul", "clip_grad_value", "sgd_update"]
    assert_same_results(before, after)


def test_an_update_stays_before_readers_of_its_new_value():
    b = ProgramBuilder()
    p, q, g = b.parameter(4), b.parameter(4), b.input(4)
    new = update(b, p, g)
    shown = b(Neg, update(b, q, new))
    old = b(Exp, b(Mul, p, q))
    before = b.build(shown, old)
    after = assert_unchanged(before, schedule.run)
    assert op_names(after)[:3] == ["sgd_update", "sgd_update", "neg"]
    assert_same_results(before, after)


def test_a_gradient_that_is_clipped_and_compared_with_its_old_value_is_right():
    flow.manual_seed(0)
    model, twin = (nn.Linear(7, 5, bias=False) for _ in range(2))
    twin.load_state_dict(model.state_dict())

    def step(module, x):
        loss = (module(x) * module(x)).sum()
        loss.backward()
        before = module.weight.grad * 1.0
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        return [loss, (before - module.weight.grad).abs().max()]

    class Compared(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            return step(self.model, x)

    x = flow.tensor(np.random.default_rng(0).normal(size=(3, 7)), dtype=flow.float32)
    expected = step(twin, x)
    optim.SGD(twin.parameters(), lr=0.1).step()
    got = Compared()(x)
    for actual, wanted in zip([*got, model.weight], [*expected, twin.weight], strict=True):
        assert_close(actual.detach().numpy(), wanted.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("rule", [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad])
def test_training_steps_give_the_same_bits_in_less_memory(rule):
    flow.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(30, 30), nn.Tanh())], nn.Linear(30, 1))
    training = Training(model, nn.functional.mse_loss, rule(model.parameters(), lr=0.1))
    draw = np.random.default_rng(0)
    x, y = (flow.tensor(draw.normal(size=s), dtype=flow.float32) for s in ((4, 30), (4, 1)))
    before = training.record(x._array, y._array)
    after = assert_unchanged(before, schedule.run)
    assert_same_results(before, after)
    if not x.is_cuda:
        assert plan(after).arena_bytes < 0.5 * plan(before).arena_bytes
        assert not plan(after).staged and not plan(after).late


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(10))
def test_random_programs_give_the_same_bits(seed):
    """Some of their values become gradients of parameters that they read themselves; some new values are read too."""
    program = random_program(seed)
    random = np.random.default_rng(seed)
    b = ProgramBuilder(seed=seed)
    b.program = program
    fitting = [(s, v) for s in program.states for i in program.instructions for v in i.outputs if v.shape == s.shape]
    for state, value in (fitting[i] for i in random.permutation(len(fitting))):
        if state not in program.writes and state.dtype == value.dtype:
            result = program.instructions[0].outputs[0].like(shape=state.shape, dtype=state.dtype)
            instruction = program.instructions[0].with_(
                op=SgdUpdate, inputs=[state, value, None], outputs=[result], attrs=ATTRS, phase=UPDATE
            )
            program.instructions.append(instruction)
            if random.random() < 0.4:
                shown = result.like()
                reader = instruction.with_(op=Mul, inputs=[result, state], outputs=[shown], attrs={})
                program.instructions.append(reader)
                program.outputs.append(shown)
            program.writes[state] = result
    after = assert_unchanged(program, schedule.run)
    assert_same_results(program, after)
