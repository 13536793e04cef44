"""elementwise fusion: golden texts, what stays apart, where regions stand, and results that stay."""

import numpy as np
import pytest
from bodies import step_by_step
from op_classes import Add, Exp, Gelu, Gt, Mul, Neg, Pow, Relu, ReluGrad, Sin, Sub, Tanh, Where
from programs import ProgramBuilder, assert_same_results, assert_unchanged, of_model, op_names, random_program

import miniflow as flow
from miniflow import nn
from miniflow.backends.registry import KERNELS, Kernel
from miniflow.graph import trace
from miniflow.graph.codegen import expressions
from miniflow.graph.ir import BACKWARD, FORWARD
from miniflow.graph.passes import elementwise_fusion
from miniflow.graph.passes.elementwise_fusion import fuse
from miniflow.graph.plan import plan
from miniflow.graph.rewrite import Groups
from miniflow.ops.matmul import Matmul
from miniflow.ops.promotion import Cast
from miniflow.ops.reduction import Sum
from miniflow.ops.shape import Expand

PLAIN = {"transpose_x": False, "transpose_y": False}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Regions of few elements are formed too; each step runs by itself: what is tested is which are formed."""
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 0)
    monkeypatch.setitem(KERNELS["cpu"], "FusedElementwise", Kernel(step_by_step, returns=True))


def test_a_chain_becomes_one_loop():
    b = ProgramBuilder()
    x, y = b.input(3, 5), b.input(5)
    before = b.build(b(Exp, b(Mul, b(Add, x, y), 0.5)))
    after = assert_unchanged(before, elementwise_fusion.run)
    assert str(after) == (
        "program:\n"
        "  %0:f32[3, 5] = input input.0\n"
        "  %1:f32[5] = input input.1\n"
        "  %2:f32[3, 5] = fused_elementwise(%0, %1, body={v0 = add(x0, x1); v1 = mul(v0, 0.5); v2 = exp(v1) -> v2})\n"
        "  return %2"
    )
    assert_same_results(before, after, special=True)


def test_what_others_read_leaves_the_region():
    b = ProgramBuilder()
    x = b.input(4, 4)
    total = b(Add, x, 1.0)
    active = b(Relu, total)
    product = b(Matmul, total, total, **PLAIN)
    before = b.build(active, product)
    after = assert_unchanged(before, elementwise_fusion.run)
    assert str(after).splitlines()[2:] == [
        "  %1:f32[4, 4], %2:f32[4, 4] = fused_elementwise(%0, body={v0 = add(x0, 1.0); v1 = relu(v0) -> v0, v1})",
        "  %3:f32[4, 4] = matmul(%1, %1, transpose_x=False, transpose_y=False)",
        "  return %2, %3",
    ]
    assert_same_results(before, after, special=True)


def test_no_region_encloses_what_needs_a_part_of_it():
    b = ProgramBuilder()
    x = b.input(4, 4)
    active = b(Relu, b(Neg, x))
    residual = b(Add, active, b(Matmul, active, x, **PLAIN))
    before = b.build(b(Exp, residual))
    after = assert_unchanged(before, elementwise_fusion.run)
    assert op_names(after) == ["fused_elementwise", "matmul", "fused_elementwise"]
    assert_same_results(before, after)


def test_two_regions_do_not_wait_for_each_other():
    """p -> q fit, and r -> s; but with both fused, each would have to come before the other."""
    b = ProgramBuilder()
    x, y = b.input(4, 4), b.input(4, 4)
    p, r = b(Neg, x), b(Exp, y)
    to_s, to_q = b(Sum, p, dim=0, keepdim=True), b(Sum, r, dim=0, keepdim=True)
    q, s = b(Mul, p, to_q), b(Mul, r, to_s)
    before = b.build(q, s)
    after = assert_unchanged(before, elementwise_fusion.run)
    after.check()
    assert op_names(after).count("fused_elementwise") == 1
    assert_same_results(before, after)


def test_shapes_phases_and_waiting_keep_apart():
    b = ProgramBuilder()
    x = b.input(4, 4)
    row = b(Sum, x, dim=0, keepdim=False)
    small = b(Neg, b(Exp, row))
    large = b(Mul, x, small)
    b.phase = BACKWARD
    later = b(ReluGrad, large, x)
    b.after = row
    last = b(Neg, later)
    before = b.build(last)
    after = assert_unchanged(before, elementwise_fusion.run)
    assert op_names(after) == ["sum", "fused_elementwise", "mul", "relu_grad", "neg"]
    assert after.instructions[-1].after is row and after.instructions[1].phase == FORWARD
    assert_same_results(before, after)


def test_what_is_left_alone():
    b = ProgramBuilder()
    x, i = b.input(4, 4), b.input(4, 4, dtype="int32")
    wide = b.input(4, 4, dtype="float64")
    values = [b(Sin, b(Sin, x)), b(Add, b(Mul, i, i), i), b(Exp, b(Exp, wide)), b(Pow, x, 1.7)]
    program = b.build(*values)
    assert elementwise_fusion.run(program) is program


def test_small_arrays_and_single_ops_are_left_alone(monkeypatch):
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 17)
    b = ProgramBuilder()
    x, y = b.input(4, 4), b.input(5, 4)
    program = b.build(b(Exp, b(Neg, x)), b(Exp, y))
    assert elementwise_fusion.run(program) is program


def test_dtypes_change_within():
    b = ProgramBuilder()
    x, half = b.input(3, 5), b.input(5, dtype="float16")
    positive = b(Gt, x, 0.0)
    wide = b(Cast, half, dtype=np.dtype("float32"))
    chosen = b(Where, positive, b(Mul, x, b(Expand, wide, shape=(3, 5))), -1.0)
    before = b.build(b(Cast, chosen, dtype=np.dtype("float16")), positive)
    after = assert_unchanged(before, elementwise_fusion.run)
    assert op_names(after) == ["cast", "expand", "fused_elementwise"]
    assert_same_results(before, after, special=True)


def test_fused_regions_are_fused_again():
    b = ProgramBuilder()
    x = b.input(4, 4)
    before = b.build(b(Neg, b(Sub, b(Mul, b(Add, x, 1.0), 2.0), 1.0)))
    groups = Groups(before)
    groups.merge(*before.instructions[:2])
    after = elementwise_fusion.run(groups.replaced(fuse))
    assert str(after).splitlines()[-2] == (
        "  %1:f32[4, 4] = fused_elementwise(%0, body={v0 = add(x0, 1.0); v1 = mul(v0, 2.0); v2 = sub(v1, 1.0); "
        "v3 = neg(v2) -> v3})"
    )
    assert_same_results(before, after, special=True)


def test_a_region_does_not_hold_memory_for_long():
    """A region of both additions would have to wait for the last layer, and all eight sums with it."""
    b = ProgramBuilder()
    x, w = b.input(64, 64), b.parameter(64, 64)
    sums, last = [], x
    for _ in range(8):
        sums.append(b(Sum, b(Exp, b(Matmul, x, w, **PLAIN)), dim=None, keepdim=False))
        last = b(Matmul, last, w, **PLAIN)
    before = b.build(b(Add, b(Neg, last), x), *sums)
    after = elementwise_fusion.run(before)
    assert plan(after).peak_after <= plan(before).peak_after
    assert_same_results(before, after)


def test_readers_of_a_state_stay_before_its_update():
    model = nn.Linear(6, 6)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = flow.tanh(model(x) * 2.0 + model.weight).sum() + (flow.exp(model.weight) * 0.5).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss]

    before = trace.record(step, [((6, 6), np.dtype("float32"), flow.device("cpu"))])
    after = assert_unchanged(before, elementwise_fusion.run)
    updates = [i for i, instruction in enumerate(after.instructions) if instruction.mutates]
    assert "fused_elementwise" in op_names(after)
    for i in updates:
        changed = {after.instructions[i].inputs[p] for p in after.instructions[i].mutates}
        assert not any(changed & set(later.reads) for later in after.instructions[i + 1 :])
    assert_same_results(before, after)


def test_training_steps_form_regions():
    block = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16), nn.Tanh())
    before = of_model(block, (5, 16))
    after = assert_unchanged(before, elementwise_fusion.run)
    fused = [i for i in after.instructions if i.op.__name__ == "FusedElementwise"]
    assert {i.phase for i in fused} == {FORWARD, BACKWARD}
    assert_same_results(before, after)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(15))
def test_random_programs_keep_their_results(number, seed):
    before = random_program(100 * seed + number)
    after = assert_unchanged(before, elementwise_fusion.run)
    assert len(after.instructions) <= len(before.instructions)
    assert_same_results(before, after)


def test_gelu_has_its_saved_input_as_an_output():
    b = ProgramBuilder()
    x, bias = b.input(4, 6), b.parameter(6)
    shifted = b(Add, x, bias)
    y = b(Gelu, shifted, approximate="tanh")
    before = b.build(y, b(Tanh, shifted), shifted)
    after = assert_unchanged(before, elementwise_fusion.run)
    assert op_names(after) == ["fused_elementwise"] and len(after.instructions[0].outputs) == 3
    assert_same_results(before, after, special=True)
