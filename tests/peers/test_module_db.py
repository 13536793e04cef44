"""PyTorch's own database of layers: built in every way that it lists, with its weights, they give the same here.

Outputs are compared, and the gradients of inputs and parameters. What is refused here must be named in REFUSED.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import count_comparison
from database import Unknown, compare_gradients, compare_values, converted, flat, torch

import miniflow as flow
from miniflow import errors

database = pytest.importorskip(
    "torch.testing._internal.common_modules", reason="expecttest is not installed: pip install expecttest"
)

REFUSED = {
    "BatchNorm1d": "bias=False", "BatchNorm2d": "bias=False", "BatchNorm3d": "bias=False", "GroupNorm": "bias=False",
    "InstanceNorm1d": "bias=False", "InstanceNorm2d": "bias=False", "InstanceNorm3d": "bias=False",
    "LSTM": "proj_size", "MultiheadAttention": "add_bias_kv and add_zero_attn",
}  # fmt: skip
OTHERWISE = {"CTCLoss": "the gradient of torch supposes that log_softmax comes before; see test_loss"}
BUILT = (errors.ArgumentError, errors.ArgumentTypeError)
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


def compare(info: Any, case: Any, training: bool) -> bool:
    """The outputs and the gradients of one layer; whether it is refused here."""
    built, given = case.constructor_input, case.forward_input
    theirs = info.module_cls(*built.args, **built.kwargs).train(training)
    leaves: list = []
    arguments, options = converted((built.args, built.kwargs), [])
    inputs, keywords = converted((given.args, given.kwargs), leaves)
    try:
        ours = getattr(flow.nn, info.module_cls.__name__)(*arguments, **options).train(training)
    except BUILT:
        return True
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({name: x.detach().numpy().copy() for name, x in theirs.state_dict().items()})
    want, got = flat(theirs(*given.args, **given.kwargs)), flat(ours(*inputs, **keywords))
    compare_values(got, want)
    parameters = dict(ours.named_parameters())
    assert list(parameters) == [name for name, _ in theirs.named_parameters()]
    leaves += [(x, parameters[name]) for name, x in theirs.named_parameters()]
    compare_gradients(got, want, leaves, np.random.default_rng(0))
    return False


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", KNOWN)
def test_layers(name, training):
    info, refused = KNOWN[name], False
    torch.manual_seed(0)
    cases = info.module_inputs_func(info, "cpu", torch.float64, requires_grad=True, training=training)
    count_comparison()  # some have no inputs
    for case in cases:
        if case.forward_input is not None:
            try:
                refused |= compare(info, case, training)
            except Unknown:
                pass
            except Exception as error:
                error.add_note(f"{case.desc}: {case.constructor_input.args} {case.constructor_input.kwargs}"[:500])
                raise
    assert refused == (name in REFUSED)
