"""dropout_mask: near misses, and results that stay."""

import pytest
from op_classes import Relu, ReluGrad
from programs import ProgramBuilder, assert_same_results, assert_unchanged, of_model, op_names, random_program

import miniflow as flow
from miniflow.graph.passes import dead_code, dropout_mask
from miniflow.graph.uses import Uses
from miniflow.ops.dropout import Dropout, DropoutGrad


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_behind_relu_the_result_is_the_mask(p):
    b = ProgramBuilder()
    x, dy = b.input(5, 7), b.input(5, 7)
    r = b(Relu, x)
    y, keep = b.draw(Dropout, r, p=p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    dx = b(ReluGrad, b(DropoutGrad, dy, keep, scale=scale), r)
    before = b.build(y, dx)
    after = assert_unchanged(before, dropout_mask.run)
    assert op_names(after) == ["relu", "dropout", "relu_grad", "mul"]
    assert keep not in Uses(after).readers and Uses(after).readers[r] == [Uses(after).producers[y]]
    assert_same_results(before, after)


def test_nan_before_relu_gives_the_same_gradients():
    b = ProgramBuilder()
    x, dy = b.input(40, 40), b.input(40, 40)
    r = b(Relu, x)
    y, keep = b.draw(Dropout, r, p=0.5)
    before = b.build(b(ReluGrad, b(DropoutGrad, dy, keep, scale=2.0), r))
    assert_same_results(before, dropout_mask.run(before), special=True)


def test_another_scale_or_another_relu_keeps_the_mask():
    b = ProgramBuilder()
    x, dy = b.input(5, 7), b.input(5, 7)
    r = b(Relu, x)
    _, keep = b.draw(Dropout, r, p=0.5)
    program = b.build(
        b(ReluGrad, b(DropoutGrad, dy, keep, scale=3.0), r),
        b(ReluGrad, b(DropoutGrad, dy, keep, scale=2.0), b(Relu, dy)),
    )
    assert dropout_mask.run(program) is program


def test_a_model_with_relu_and_dropout():
    nn = flow.nn
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 16), nn.GELU(), nn.Dropout(0.2))
    before = of_model(model, (64, 16))
    after = dead_code.run(assert_unchanged(before, dropout_mask.run))
    assert len([i for i in after.instructions if i.op is DropoutGrad and i.phase == "backward"]) == 1
    assert_same_results(before, after)


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, dropout_mask.run), special=True)
