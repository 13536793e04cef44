"""What is not a tensor is refused with the names of the function and of its argument, in eager code and in a graph."""

import inspect

import numpy as np
import pytest

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentTypeError, DTypeError, IndexRangeError
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.softmax import Softmax

NO_TENSORS = {
    "list": [1.0, 2.0], "NoneType": None, "str": "values", "object": object(), "ndarray": np.ones((2, 2), np.float32),
}  # fmt: skip
SQUARE = flow.ones(2, 2)
INDEX = flow.zeros(2, 2, dtype=flow.int64)
BATCH = flow.ones(1, 2, 4, 4)
CALLS = [
    (flow.abs, "input", (SQUARE,)),
    (flow.exp, "input", (SQUARE,)),
    (flow.floor, "input", (SQUARE,)),
    (flow.relu, "input", (SQUARE,)),
    (flow.erf, "input", (SQUARE,)),
    (flow.sum, "input", (SQUARE,)),
    (flow.amax, "input", (SQUARE,)),
    (flow.var, "input", (SQUARE,)),
    (flow.norm, "input", (SQUARE,)),
    (flow.softmax, "input", (SQUARE, 0)),
    (flow.where, "condition", (SQUARE > 0, SQUARE, SQUARE)),
    (flow.reshape, "input", (SQUARE, 4)),
    (flow.flatten, "input", (SQUARE,)),
    (flow.transpose, "input", (SQUARE, 0, 1)),
    (flow.select, "input", (SQUARE, 0, 1)),
    (flow.gather, "input", (SQUARE, 0, INDEX)),
    (flow.gather, "index", (SQUARE, 0, INDEX)),
    (flow.split, "tensor", (SQUARE, 1)),
    (flow.pad, "input", (SQUARE, (1, 1))),
    (flow.tril, "input", (SQUARE,)),
    (flow.zeros_like, "input", (SQUARE,)),
    (flow.dropout, "input", (SQUARE,)),
    (flow.max, "input", (SQUARE,)),
    (flow.var_mean, "input", (SQUARE,)),
    (flow.rand_like, "input", (SQUARE,)),
    (flow.masked_fill, "mask", (SQUARE, SQUARE > 0, 0.0)),
    (F.linear, "input", (SQUARE, SQUARE)),
    (F.linear, "weight", (SQUARE, SQUARE)),
    (F.conv2d, "input", (BATCH, flow.ones(2, 2, 3, 3))),
    (F.max_pool2d, "input", (BATCH, 2)),
    (F.layer_norm, "input", (SQUARE, (2,))),
    (F.embedding, "weight", (INDEX, SQUARE)),
    (F.cross_entropy, "input", (SQUARE, INDEX[0])),
    (F.mse_loss, "target", (SQUARE, SQUARE)),
]


@pytest.mark.parametrize("kind", NO_TENSORS)
@pytest.mark.parametrize(
    ("function", "parameter", "arguments"), CALLS, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_is_not_a_tensor_is_refused(function, parameter, arguments, kind):
    position = list(inspect.signature(function).parameters).index(parameter)
    function(*arguments)
    message = rf"{function.__name__}: got {parameter} of type .*{kind}; expected a Tensor"
    with pytest.raises(ArgumentTypeError, match=message):
        function(*arguments[:position], NO_TENSORS[kind], *arguments[position + 1 :])


@pytest.mark.parametrize("function", [flow.exp, flow.relu, flow.flatten])
def test_a_graph_refuses_what_is_not_a_tensor(function):
    class Wrong(flow.nn.Graph):
        def build(self, x):
            return x + function([1.0, 2.0])

    with pytest.raises(
        TypeError, match=rf"{function.__name__}: got (x|input) of type list; expected a Tensor: use flow.tensor"
    ):
        Wrong()(SQUARE)


@pytest.mark.parametrize("parameter", ["bias", "weight"])
def test_an_optional_tensor_is_a_tensor_or_none(parameter):
    assert F.layer_norm(SQUARE, (2,), **{parameter: None}).shape == (2, 2)
    with pytest.raises(ArgumentTypeError, match=f"layer_norm: got {parameter} of type list; expected a Tensor"):
        F.layer_norm(SQUARE, (2,), **{parameter: [1.0, 1.0]})


@pytest.mark.parametrize("function", [flow.add, flow.matmul, flow.maximum])
def test_operands_may_be_arrays_but_not_lists(function):
    assert function(SQUARE, np.ones((2, 2), np.float32)).shape == (2, 2)
    message = f"{function.__name__}: got (other|y) of type list; expected a Tensor, a NumPy array or a Python number"
    with pytest.raises(ArgumentTypeError, match=message):
        function(SQUARE, [1.0, 2.0])


def test_tensors_of_torch_are_refused_with_the_way_to_take_them_over():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(
        TypeError, match=r"exp: got input of type torch.Tensor; expected a Tensor: use flow.from_dlpack\(x\)"
    ):
        flow.exp(torch.ones(2))


def test_a_guarded_function_keeps_its_parameters_and_other_errors():
    @takes_tensors
    def scaled(x, *rest, factor=2.0):
        """Scale."""
        return x.values * factor, rest, np.nothing

    assert str(inspect.signature(scaled)) == "(x, *rest, factor=2.0)"
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "Scale.")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        scaled(type("Values", (), {"values": 1.0})())
    with pytest.raises(AttributeError, match="'list' object has no attribute 'values'"):  # tensors have none either
        scaled([1.0])


def test_a_function_in_place_takes_its_tensor_by_name_and_refuses_what_is_none():
    x = flow.tensor([-1.0, 2.0])
    assert flow.abs_(input=x) is x and x.tolist() == [1.0, 2.0]
    for call in (lambda: flow.abs_([1.0]), lambda: flow.add_([1.0], 2)):
        with pytest.raises(ArgumentTypeError, match="(abs|add)_: got input of type list; expected a Tensor"):
            call()
    with pytest.raises(ArgumentTypeError, match="add_: got other of type str; expected a Tensor, a NumPy array or"):
        x.add_("a")


def test_a_name_that_is_not_taken_stands_in_the_error_as_it_was_given():
    with pytest.raises(TypeError, match=r"trace\(\) got an unexpected keyword argument 'axis'"):
        flow.trace(SQUARE, axis=0)
    with pytest.raises(TypeError, match=r"zeros\(\) got an unexpected keyword argument 'sideways'"):
        flow.zeros(2, sideways=1)
    with pytest.raises(TypeError, match=r"gelu\(\) got an unexpected keyword argument 'sideways'"):
        flow.gelu(SQUARE, sideways=1)


ATTRIBUTES = [(name, attribute) for name, function in OPERATORS.items() for attribute in function.op.formula.attributes]


@pytest.mark.parametrize(("name", "attribute"), ATTRIBUTES)
def test_attributes_of_pointwise_operators_are_refused_by_name(name, attribute):
    function, default = OPERATORS[name], OPERATORS[name].op.formula.attributes[attribute]
    wrong = 0.5 if isinstance(default, str) else "a"
    expected = "a string" if isinstance(default, str) else "a number"
    for value in (wrong, [1.0], SQUARE):
        with pytest.raises(ArgumentTypeError, match=f"(?s){name}: got {attribute}=.*; expected {expected}"):
            function(*[SQUARE] * len(function.op.formula.operands), **{attribute: value})


WITH_INTEGERS_OF_NUMPY = {
    **{
        name: lambda x, i, name=name: getattr(x, name)(i)
        for name in (
            "sum mean prod max min argmax amax any all std var logsumexp squeeze unsqueeze cumsum softmax sort flip "
            "count_nonzero nansum median mode unbind"
        ).split()
    },
    "kthvalue": lambda x, i: x.kthvalue(2, i),
    "roll": lambda x, i: x.roll(i, i),
    "movedim": lambda x, i: x.movedim(i, 0),
    "split": lambda x, i: x.split(i, i),
    "chunk": lambda x, i: x.chunk(i, i),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i, i),
    "layer_norm": lambda x, i: flow.nn.LayerNorm(type(i)(4)).double()(x),
    "interpolate": lambda x, i: flow.nn.functional.interpolate(x, size=i),
    "normalize": lambda x, i: flow.nn.functional.normalize(x, dim=i),
}


@pytest.mark.parametrize("name", WITH_INTEGERS_OF_NUMPY)
def test_integers_of_numpy_are_integers(name):
    x = flow.tensor(np.random.default_rng(0).normal(size=(2, 3, 4)))
    function = WITH_INTEGERS_OF_NUMPY[name]
    got, want = (flat(function(x, i)) for i in (np.int64(1), 1))
    assert got and got == want


def flat(result):
    """What tells tensors apart."""
    return [(y.dtype, y.tolist()) for y in ([result] if isinstance(result, flow.Tensor) else result)]


@pytest.mark.cpu_only("where memory comes from a device, infer is asked for each call")
def test_infer_is_asked_once_for_operands_of_one_shape_and_dtype(monkeypatch):
    asked, infer = [], Softmax.infer
    monkeypatch.setattr(Softmax, "kernels", {})  # one that knows no shapes yet
    monkeypatch.setattr(Softmax, "infer", lambda x, *, dim: asked.append((x.shape, x.dtype, dim)) or infer(x, dim=dim))
    for shape, dim in [((2, 7), 0), ((2, 7), 0), ((2, 7), 1), ((3, 7), 0), ((2, 7), 0)]:
        for dtype in (flow.float32, flow.float64):
            y = flow.softmax(flow.zeros(shape, dtype=dtype), dim)
            assert y.shape == shape and y.dtype is dtype
            np.testing.assert_allclose(y.numpy(), 1 / shape[dim], rtol=1e-6)
    assert len(asked) == len(set(asked)) == 6


def test_an_attribute_of_another_type_is_refused_after_an_equal_one():
    x = flow.ones(2, 3)
    assert x.sum(1).shape == (2,)
    with pytest.raises(DTypeError, match="sum: got dim=1.0; expected an integer dim"):
        x.sum(1.0)


def test_infer_that_looks_at_values_is_asked_each_time():
    x, index = flow.ones(2, 3), flow.tensor([0, 1])
    assert x[index].shape == (2, 3)
    with pytest.raises(IndexRangeError, match="index 2 is out of range"):
        x[index + 1]


@pytest.mark.parametrize("count", [3, 5000])
def test_floats_among_the_numbers_of_an_integer_loop_are_cut_at_every_call(count):
    x = flow.arange(count) % 30
    for _ in range(3):
        assert F.hardtanh(x, 1.5, 20.7).tolist() == np.clip(x.numpy(), 1, 20).tolist()
        assert F.threshold(x, 4.5, 20.7).tolist() == np.where(x.numpy() > 4, x.numpy(), 20).tolist()
        assert flow.addcmul(x, x, x, value=2.5).tolist() == (x.numpy() + 2 * x.numpy() ** 2).tolist()
