"""The passes that bring kernels of their own, on a cuda device: the results are those of the programs before them."""

import pytest
from op_classes import Add, Relu
from programs import ProgramBuilder, assert_same_results, of_model, op_names, random_program

import miniflow as flow
from miniflow.graph.passes import cse, dead_code, dropout_mask, normalization_activation
from miniflow.ops.normalization import BatchNorm

pytestmark = pytest.mark.usefixtures("checked_executor")


@pytest.mark.slow
def test_batch_norm_with_shortcut_and_relu():
    b = ProgramBuilder(device="cuda")
    x, z = b.input(3, 4, 5, 5), b.input(3, 4, 5, 5)
    y, mean, var = b(BatchNorm, x, b.parameter(4), b.parameter(4), eps=1e-5)
    before = b.build(b(Relu, b(Add, y, z)), mean, var)
    after = normalization_activation.run(before)
    assert op_names(after) == ["batch_norm_relu"]
    assert_same_results(before, after, exact=False)


@pytest.mark.slow
def test_gradients_of_batch_norm_and_relu():
    nn = flow.nn
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)).to("cuda")
    before = of_model(model, (2, 2, 8, 8), device="cuda")
    after = normalization_activation.run(before)
    assert {"batch_norm_relu", "batch_norm_relu_grad"} <= set(op_names(after))
    assert_same_results(before, after, exact=False, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_random_programs():
    for number in range(3):
        before = after = random_program(number, device="cuda")
        for some_pass in (cse, dead_code, normalization_activation, dropout_mask):
            after = some_pass.run(after)
        assert_same_results(before, after, exact=False)
