"""A loss that nobody reads still refuses targets that are not classes."""

import pytest
from compare import count_comparison

import miniflow as flow
from miniflow import nn
from miniflow.errors import IndexRangeError
from miniflow.nn import functional as F


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("wrong", [-1, 5])
def test_targets_of_an_unread_nll_loss(reduction, wrong):
    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), 0.1))

        def build(self, x, y):
            F.nll_loss(self.model(x).log_softmax(1), y, reduction=reduction).sum().backward()
            return y + 0

    model, x = nn.Linear(3, 5), flow.randn(4, 3)
    graph = Step(model)
    graph(x, flow.tensor([0, 1, -100, 4]))
    before = model.weight.detach().clone()
    with pytest.raises(IndexRangeError, match=f"index {wrong} is out of range for dim 1 of size 5"):
        graph(x, flow.tensor([0, 1, 2, wrong]))
    assert model.weight.detach().numpy().tobytes() == before.numpy().tobytes()
    count_comparison()
