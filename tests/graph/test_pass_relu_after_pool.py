"""The pass that pools before it rectifies."""

import numpy as np
import pytest
from checks import assert_close
from op_classes import Neg, Relu, ReluGrad
from programs import ProgramBuilder, assert_same_results

import miniflow as flow
from miniflow import nn
from miniflow.device import CPU
from miniflow.graph.passes import relu_after_pool
from miniflow.graph.trace import record
from miniflow.ops.pooling import MaxPool2d, MaxPool2dGrad

WINDOW = dict(kernel=(2, 2), stride=(2, 2), padding=((0, 0), (0, 0)), dilation=(1, 1), ceil_mode=False)

BEFORE = """\
program:
  %0:f32[2, 3, 6, 4] = input input.0
  %1:f32[2, 3, 6, 4] = relu(%0)
  %2:f32[2, 3, 3, 2], %3:i32[2, 3, 3, 2] = max_pool2d(%1, kernel=(2, 2), stride=(2, 2), \
padding=((0, 0), (0, 0)), dilation=(1, 1), ceil_mode=False)
  return %2"""

AFTER = """\
program:
  %0:f32[2, 3, 6, 4] = input input.0
  %1:f32[2, 3, 3, 2], %2:i32[2, 3, 3, 2] = max_pool2d(%0, kernel=(2, 2), stride=(2, 2), \
padding=((0, 0), (0, 0)), dilation=(1, 1), ceil_mode=False)
  %3:f32[2, 3, 3, 2] = relu(%1)
  return %3"""


def test_golden():
    b = ProgramBuilder()
    y, _ = b(MaxPool2d, b(Relu, b.input(2, 3, 6, 4)), **WINDOW)
    program = b.build(y)
    assert str(program) == BEFORE
    after = relu_after_pool.run(program)
    after.check()
    assert str(after) == AFTER
    assert str(program) == BEFORE, "the pass changed what it was given"


def training(kernel, stride, padding):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(kernel, stride, padding), nn.Flatten())

    def step(x):
        y = model(x)
        loss = (y * (y.detach() * 3).cos()).sum()
        loss.backward()
        return [y, model[0].weight.grad, model[0].bias.grad]

    return record(step, [((3, 2, 9, 8), np.dtype(np.float32), CPU)])


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1)])
def test_training_gives_the_same_values_with_fewer_elements_rectified(window, seed):
    flow.manual_seed(seed)
    program = training(*window)
    after = relu_after_pool.run(program)
    after.check()
    relus = [i for i in after.instructions if i.op.function_name in ("relu", "relu_grad")]
    pooled = next(i for i in after.instructions if i.op is MaxPool2d).outputs[0]
    assert len(relus) == 2 and all(i.output.shape == pooled.shape for i in relus)
    assert_same_results(program, after)


def test_nan_and_infinities_stay():
    b = ProgramBuilder()
    y, _ = b(MaxPool2d, b(Relu, b.input(1, 1, 4, 4)), **WINDOW)
    program = b.build(y)
    x = np.array([[np.nan, -1, -np.inf, -2], [0, 2, -3, -4], [np.inf, 1, -0.0, 0.0], [1, 1, -1, 5]], np.float32)
    from miniflow.graph.interpret import interpret

    (want,), _ = interpret(program, [x.reshape(1, 1, 4, 4)])
    (got,), _ = interpret(relu_after_pool.run(program), [x.reshape(1, 1, 4, 4)])
    assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("kept", ["output", "other reader", "index"])
def test_left_alone_where_the_large_relu_is_needed(kept):
    b = ProgramBuilder()
    r = b(Relu, b.input(2, 3, 6, 4))
    y, index = b(MaxPool2d, r, **WINDOW)
    extra = {"output": r, "other reader": b(Relu, r), "index": index}[kept]
    program = b.build(y, extra)
    assert relu_after_pool.run(program) is program


@pytest.mark.parametrize("dilation, changes", [(3, False), (1, True)])
def test_left_alone_where_a_window_may_miss_the_image(dilation, changes):
    class Pooled(nn.Graph):
        def build(self, x):
            return nn.functional.max_pool2d(x.relu(), 2, stride=1, padding=1, dilation=dilation)

    graph, x = Pooled(), flow.tensor([[[[-1.0, 2.0], [3.0, -4.0]]]])
    assert_close(graph(x).numpy(), nn.functional.max_pool2d(x.relu(), 2, 1, 1, dilation).numpy())
    ops = [i.op for i in relu_after_pool.run(graph.recorded).instructions]
    assert (ops == [MaxPool2d, Relu]) == changes


@pytest.mark.parametrize("awaited", ["rectified", "index", "gradient"])
def test_what_others_wait_for_stays(awaited):
    b = ProgramBuilder()
    x, dy = b.input(1, 2, 6, 4), b.input(1, 2, 3, 2)
    rectified = b(Relu, x)
    y, index = b(MaxPool2d, rectified, **WINDOW)
    gradient = b(MaxPool2dGrad, dy, index, size=(6, 4))
    dx = b(ReluGrad, gradient, rectified)
    b.after = {"rectified": rectified, "index": index, "gradient": gradient}[awaited]
    program = b.build(y, dx, b(Neg, x))
    assert relu_after_pool.run(program) is program
