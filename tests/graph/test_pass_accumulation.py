"""`passes.accumulation`: one update by micro-batches is one by the batch, and by eager micro-steps to the bit."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from op_classes import Add, Mul
from programs import ProgramBuilder, assert_same_bits, assert_unchanged, random_program
from training import Training, micro_batches, peak_bytes, slot_named

import miniflow as flow
from miniflow import nn
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import BACKWARD, BUFFER, UPDATE, Draws, Instruction
from miniflow.graph.passes.accumulation import run, varying
from miniflow.graph.uses import Uses
from miniflow.ops.dropout import Dropout, DropoutGrad
from miniflow.ops.generator import Generator
from miniflow.ops.reduction import Sum
from miniflow.optim.sgd import SgdUpdate

SGD = {"lr": 0.5, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def hand_written():
    """Dropout, products, a gradient, an update; a buffer that counts, and a result that no input has a part in."""
    b = ProgramBuilder("step")
    x, w, count = b.input(2, 3), b.parameter(3, name="w"), b.state(name="count", kind=BUFFER)
    doubled = b(Mul, w, 2.0)
    b.scope = "drop"
    y, keep = b.draw(Dropout, x, p=0.5)
    b.scope = ""
    z = b(Sum, b(Mul, y, doubled), dim=1, keepdim=False)
    total = b(Sum, z, dim=None, keepdim=False)
    b.write(count, b(Add, count, total))
    b.phase = BACKWARD
    dx = b(DropoutGrad, x, keep, scale=2.0)
    dw = b(Sum, dx, dim=0, keepdim=False)
    b.phase = UPDATE
    b.write(w, b(SgdUpdate, w, dw, None, fresh=[False], **SGD))
    b.program.draws = Draws([Generator()])
    return b.build(z, total, doubled, x)


GOLDEN = """\
step:
  %0:f32[4, 3] = input input.0
  %1:f32[3] = parameter w
  %2:f32[] = buffer count
  %3:f32[3] = mul(%1, 2.0)
  %4:f32[2, 3] = slice(%0, index=(slice(0, 2, None), Ellipsis))
  %5:f32[2, 3], %6:bool[2, 3] = dropout(%4, p=0.5, seed=<draw.0.seed>, offset=<draw.0.offset>)  # drop
  %7:f32[2, 3] = mul(%5, %3)
  %8:f32[2] = sum(%7, dim=1, keepdim=False)
  %9:f32[] = sum(%8, dim=None, keepdim=False)
  %10:f32[] = add(%2, %9)
  %11:f32[2, 3] = dropout_grad(%4, %6, scale=2.0)
  %12:f32[3] = sum(%11, dim=0, keepdim=False)
  %13:f32[2, 3] = slice(%0, index=(slice(2, 4, None), Ellipsis))
  %14:f32[2, 3], %15:bool[2, 3] = dropout(%13, p=0.5, seed=<draw.1.seed>, offset=<draw.1.offset>)  # drop
  %16:f32[2, 3] = mul(%14, %3)
  %17:f32[2] = sum(%16, dim=1, keepdim=False)
  %18:f32[] = sum(%17, dim=None, keepdim=False)
  %19:f32[] = add(%10, %18)
  %20:f32[2, 3] = dropout_grad(%13, %15, scale=2.0)
  %21:f32[3] = sum(%20, dim=0, keepdim=False)
  %22:f32[3] = add(%12, %21)
  %23:f32[3] = div(%22, 2.0)
  %24:f32[4] = cat(%8, %17, dim=0, sizes=(2, 2))
  %25:f32[2] = stack(%9, %18, dim=0)
  %26:f32[3] = sgd_update(%1, %23, None, fresh=[False], lr=0.5, momentum=0.0, dampening=0.0, nesterov=False, \
weight_decay=0.0, maximize=False)
  write count <- %19
  write w <- %26
  return %24, %25, %3, %0"""


def test_golden():
    before = hand_written()
    after = assert_unchanged(before, lambda program: run(program, 2))
    after.check()
    assert str(after) == GOLDEN
    assert len(after.draws.generators) == 2


def test_a_gradient_that_no_input_has_a_part_in_is_summed_too():
    """As eager micro-steps do: (g + g + g) / 3 is not g to the bit."""
    b = ProgramBuilder()
    b.input(2, 3)
    w = b.parameter(99)
    b.phase = BACKWARD
    g = b(Mul, w, 0.1)
    b.phase = UPDATE
    b.write(w, b(SgdUpdate, w, g, None, fresh=[False], **SGD))
    before = b.build(g)
    values = before.tensors[w].detach().numpy().copy()
    (mean,), _ = interpret(run(before, 3), [numbers(6, 3)], [values])
    g = values * np.float32(0.1)
    assert not np.array_equal((g + g + g) / np.float32(3), g)
    assert_same_bits(mean, (g + g + g) / np.float32(3))


def test_what_forward_makes_is_joined_even_where_an_update_reads_it():
    b = ProgramBuilder()
    x, w = b.input(2, 3), b.parameter(2, 3)
    y = b(Mul, x, 2.0)
    b.phase = UPDATE
    b.write(w, b(SgdUpdate, w, y, None, fresh=[False], **SGD))
    before = b.build(y)
    values, x = before.tensors[w].detach().numpy().copy(), numbers(4, 3)
    (joined,), writes = interpret(run(before, 2), [x], [values.copy()])
    assert_same_bits(joined, 2 * x)
    assert_close(writes[w], values - np.float32(0.5) * (x[:2] + x[2:]), rtol=1e-6)


def with_update(program):
    """A recorded program whose first parameter is updated by its gradient, which stands among the outputs."""
    w = slot_named(program, "parameter.0")
    gradient = next(s for s in program.outputs if s.shape == w.shape and s in made_in(program, BACKWARD))
    new = w.like()
    update = Instruction(SgdUpdate, [w, gradient, None], [new], {**SGD, "fresh": [False]}, phase=UPDATE)
    return gradient, program.with_(instructions=[*program.instructions, update], writes={**program.writes, w: new})


def made_in(program, phase):
    return {slot for i in program.instructions if i.phase == phase for slot in i.outputs}


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("steps", [2, 3])
def test_random_programs(number, steps):
    """Micro-steps one after the other, each from the buffers that the one before has left, give the same bits."""
    gradient, before = with_update(random_program(number))
    after = run(before, steps)
    after.check()
    random = np.random.default_rng(number)
    inputs = [random.normal(size=slot.shape).astype(slot.dtype) for slot in after.inputs]
    states = [before.tensors[slot]._array for slot in before.states]
    w, buffer = slot_named(before, "parameter.0"), slot_named(before, "buffer")
    flow.manual_seed(number)
    (outputs, writes), parts, total = interpret(after, inputs, states), [], 0.0
    flow.manual_seed(number)
    for micro_batch in micro_batches(inputs, steps):
        part, written = interpret(before, micro_batch, states)
        parts.append(part)
        total = total + part[before.outputs.index(gradient)]
        states[before.states.index(buffer)] = written[buffer]
    changing = varying([*before.inputs, buffer], before.instructions)
    for slot, y, *found in zip(before.outputs, outputs, *parts, strict=True):
        together = np.stack if found[0].ndim == 0 else np.concatenate
        mean = total / np.float32(steps)
        assert_same_bits(y, mean if slot is gradient else together(found) if slot in changing else found[0])
    assert_close(writes[w], before.tensors[w]._array - np.float32(0.5) * mean, rtol=1e-6)
    assert_same_bits(writes[buffer], states[before.states.index(buffer)])


def test_one_step_and_prediction_are_left_alone():
    program = hand_written()
    assert run(program, 1) is program
    prediction = program.with_(instructions=program.instructions[:1], writes={}, outputs=program.outputs[2:3])
    assert run(prediction, 4) is prediction


# against the batch, and against eager code


class Sum2(nn.Module):
    """Two lookups in one table, and their sum with another input."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 4)

    def forward(self, i, x):
        return self.out(self.table(i) + self.table(i + 1) * x)


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 4)), [numbers(12, 4)]


def convolutions():
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    return model, [numbers(12, 2, 4, 4)]


def embeddings():
    return Sum2(), [np.random.default_rng(0).integers(0, 6, 12), numbers(12, 4)]


def with_state():
    """Running statistics and random numbers."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4), nn.Dropout(0.2))
    return model, [numbers(12, 4)]


NETWORKS = [mlp, convolutions, embeddings]
OPTIMIZERS = {
    "sgd": lambda ps: [flow.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01)],
    "adam": lambda ps: [flow.optim.Adam(ps, lr=0.01)],
    "two": lambda ps: [flow.optim.SGD(ps[:1], lr=0.1), flow.optim.AdamW(ps[1:], lr=0.01, weight_decay=0.1)],
    "clipped": lambda ps: [flow.optim.SGD([{"params": ps, "clip_grad_max_norm": 0.1}], lr=0.1)],
}


def training(network, optimizers):
    flow.manual_seed(3)
    model, inputs = network()
    made = OPTIMIZERS[optimizers](list(model.parameters()))
    inputs.append(numbers(12, 4, seed=1))
    return Training(model, nn.MSELoss(), *made, clip=optimizers == "clipped"), inputs


def assert_same_values(got: Training, want: Training, check, **tolerance):
    values, expected = got.values(), want.values()
    assert values.keys() == expected.keys() and values
    for name, value in values.items():
        check(value, expected[name], what=name, **tolerance)


@pytest.mark.parametrize("optimizers", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("steps", [2, 3, 4])
def test_it_equals_a_batch_as_large(network, optimizers, steps):
    (accumulated, inputs), (whole, _) = training(network, optimizers), training(network, optimizers)
    program = run(accumulated.record(*micro_batches(inputs, steps)[0]), steps)
    program.check()
    for _ in range(3):
        y, losses = accumulated.replay(program, *inputs)
        y_whole, loss = whole.eager(inputs)
        assert losses.shape == (steps,)
        assert_close(y, y_whole, rtol=1e-5, atol=1e-6)
        assert_close(losses.mean(), loss, rtol=1e-5)
        assert_same_values(accumulated, whole, assert_close, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizers", OPTIMIZERS)
@pytest.mark.parametrize("network", [*NETWORKS, with_state])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_it_equals_eager_micro_steps_to_the_bit(network, optimizers, steps):
    (accumulated, inputs), (eager, _) = training(network, optimizers), training(network, optimizers)
    program = run(accumulated.record(*micro_batches(inputs, steps)[0]), steps)
    for step in range(3):
        flow.manual_seed(step)
        got = accumulated.replay(program, *inputs)
        state = flow.get_rng_state()
        flow.manual_seed(step)
        want = eager.eager(*micro_batches(inputs, steps))
        np.testing.assert_array_equal(state.numpy(), flow.get_rng_state().numpy())
        for y, expected in zip(got, want, strict=True):
            assert_same(y, expected)
        assert_same_values(accumulated, eager, assert_same)


def test_the_activations_of_one_micro_step_only_are_alive():
    def peak(steps):
        flow.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)])
        step = Training(model, nn.MSELoss(), flow.optim.SGD(model.parameters(), lr=0.1))
        arrays = micro_batches([numbers(1024, 64), numbers(1024, 64)], steps)[0]
        return peak_bytes(run(step.record(*arrays), steps))

    assert peak(8) < 0.35 * peak(1)


# what is given and returned


def test_inputs_without_dims_are_given_to_every_micro_step():
    b = ProgramBuilder()
    x, factor, w = b.input(2), b.input(), b.parameter(2)
    y = b(Mul, x, factor)
    b.phase = UPDATE
    b.write(w, b(SgdUpdate, w, y, None, fresh=[False], **SGD))
    after = run(b.build(y, factor), 3)
    after.check()
    assert [slot.shape for slot in after.inputs] == [(6,), ()] and [s.shape for s in after.outputs] == [(6,), ()]


def test_a_gradient_that_is_returned_is_the_mean_and_what_the_update_makes_is_returned_once():
    b = ProgramBuilder()
    x, w = b.input(2), b.parameter(2)
    b.phase = BACKWARD
    gradient = b(Mul, x, 2.0)
    b.phase = UPDATE
    new = b(SgdUpdate, w, gradient, None, fresh=[False], **SGD)
    b.write(w, new)
    after = run(b.build(gradient, new), 2)
    assert [slot.shape for slot in after.outputs] == [(2,), (2,)]
    assert after.outputs[1] is after.writes[w]
    assert Uses(after).producers[after.outputs[0]].op.function_name == "div"


def test_gradients_that_need_no_input_are_averaged_too():
    """With an L2 term in the loss, the gradient of a parameter that nothing else uses does not depend on the batch."""

    class Penalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.free = nn.Linear(3, 2), nn.Parameter(flow.ones(4))

        def forward(self, x):
            return self.fc(x) + (self.free**2).sum()

    def make():
        flow.manual_seed(0)
        model = Penalised()
        return Training(
            model, lambda y, t: ((y - t) ** 2).mean() + model.free.sum(), flow.optim.SGD(model.parameters())
        )

    accumulated, eager, inputs = make(), make(), [numbers(6, 3), numbers(6, 2)]
    program = run(accumulated.record(*micro_batches(inputs, 3)[0]), 3)
    accumulated.replay(program, *inputs)
    eager.eager(*micro_batches(inputs, 3))
    assert_same_values(accumulated, eager, assert_same)


def test_a_state_that_is_returned_is_what_each_micro_step_finds():
    b = ProgramBuilder()
    x, w, count = b.input(2), b.parameter(2), b.state(3, kind=BUFFER)
    b.write(count, b(Add, count, 1.0))
    b.phase = UPDATE
    b.write(w, b(SgdUpdate, w, x, None, fresh=[False], **SGD))
    program = b.build(count)
    after = run(program, 2)
    after.check()
    before = np.float32([1, 2, 3])
    (found,), writes = interpret(after, [np.zeros(4, np.float32)], [np.zeros(2, np.float32), before])
    assert_same_bits(found, np.concatenate([before, before + 1]))
    assert_same_bits(writes[count], before + 2)
