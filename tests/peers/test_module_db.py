"""PyTorch's own database of layers: built in every way that it lists, with its weights, they give the same here.

Outputs are compared, the gradients of inputs and parameters, and the names of the state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import add_note, count_comparison
from database import Unknown, compare_gradients, compare_values, converted, flat, torch

import miniflow as flow

database = pytest.importorskip(
    "torch.testing._internal.common_modules", reason="expecttest is not installed: pip install expecttest"
)

OTHERWISE = {"CTCLoss": "the gradient of torch supposes that log_softmax comes before; see test_loss"}
KNOWN = {
    info.module_cls.__name__: info
    for info in database.module_db
    if hasattr(flow.nn, info.module_cls.__name__) and info.module_cls.__name__ not in OTHERWISE
}


@pytest.fixture(autouse=True)
def double_precision():
    """Parameters are float64 unless a case says otherwise."""
    torch.set_default_dtype(torch.float64)
    flow.set_default_dtype(flow.float64)
    yield
    torch.set_default_dtype(torch.float32)
    flow.set_default_dtype(flow.float32)


def compare(info: Any, case: Any, training: bool) -> None:
    """The names, the outputs and the gradients of one layer."""
    built, given = case.constructor_input, case.forward_input
    theirs = info.module_cls(*built.args, **built.kwargs).train(training)
    leaves: list = []
    arguments, options = converted((built.args, built.kwargs), [])
    inputs, keywords = converted((given.args, given.kwargs), leaves)
    ours = getattr(flow.nn, info.module_cls.__name__)(*arguments, **options).train(training)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({name: x.detach().numpy().copy() for name, x in theirs.state_dict().items()})
    want, got = flat(theirs(*given.args, **given.kwargs)), flat(ours(*inputs, **keywords))
    compare_values(got, want)
    parameters = dict(ours.named_parameters())
    assert list(parameters) == [name for name, _ in theirs.named_parameters()]
    leaves += [(x, parameters[name]) for name, x in theirs.named_parameters()]
    compare_gradients(got, want, leaves, np.random.default_rng(0))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", KNOWN)
def test_layers(name, training):
    info = KNOWN[name]
    torch.manual_seed(0)
    cases = info.module_inputs_func(info, "cpu", torch.float64, requires_grad=True, training=training)
    count_comparison()  # some have no inputs
    for case in cases:
        if case.forward_input is not None:
            try:
                compare(info, case, training)
            except Unknown:
                pass
            except Exception as error:
                add_note(error, f"{case.desc}: {case.constructor_input.args} {case.constructor_input.kwargs}"[:500])
                raise
