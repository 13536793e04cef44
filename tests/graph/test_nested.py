"""Nested arguments and results: what is taken apart, put together again, and told from others."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentTypeError, GraphError
from miniflow.graph.nested import constants, flatten, named_leaves, unflatten

Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    images: object
    labels: object = None
    extra: list = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    x: object


class Record:
    unit = "m"

    def __init__(self, **fields):
        vars(self).update(fields)

    def __repr__(self):
        return f"Record({vars(self)})"


class Apply(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def t(*values):
    return flow.tensor(list(values))


A, B, C = t(1.0), t(2.0, 3.0), t(4)


@pytest.mark.parametrize(
    ("value", "tensors"),
    [
        (A, [A]),
        (None, []),
        ([A, (B, None), {"x": C}], [A, B, C]),
        (Pair(A, [B]), [A, B]),
        (OrderedDict(b=B, a=A), [B, A]),
        (Batch(A, {"y": B}, [C]), [A, B, C]),
        (Frozen((A, A)), [A, A]),
        (Record(x=A, inner=SimpleNamespace(y=[B], n=3)), [A, B]),
        ((), []),
        ([[], {}, ()], []),
        ({3: A, (1, 2): B, "c": 7}, [A, B]),
        (("name", 3, 2.5, True, A), [A]),
    ],
    ids=repr,
)
def test_there_and_back(value, tensors):
    found, tree = flatten(value)
    assert len(found) == len(tensors) and all(x is y for x, y in zip(found, tensors, strict=True))
    again = unflatten(tree, found)
    assert type(again) is type(value) and repr(again) == repr(value)
    assert flatten(again)[1] == tree and hash(flatten(again)[1]) == hash(tree)


def test_a_dict_of_another_class_becomes_a_dict_if_it_must():
    value = defaultdict(list, a=A)
    _, tree = flatten(value)
    assert unflatten(tree, [B]) == {"a": B}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A], (A,)),
        ([A], [A, A]),
        ([A, None], [A, 0]),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ({"a": A}, {"b": A}),
        ({"a": A, "b": B}, {"b": A, "a": B}),
        (Pair(A, B), (A, B)),
        (Record(a=1, b=A), Record(a=2, b=A)),
        (Record(a=1), SimpleNamespace(a=1)),
        ("a", b"a"),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([1, 2]), np.array([1, 2], np.int32)),
    ],
    ids=repr,
)
def test_trees_differ(one, other):
    assert flatten(one)[1] != flatten(other)[1]
    assert flatten(one)[1] == flatten(one)[1]


def test_a_record_that_changes_between_two_calls_is_noticed():
    graph, record, x = Apply(lambda x, r: Record(y=x * r.scale, sum=x + r.inner.shift)), Record(scale=2.0), t(1.0, 2.0)
    record.inner = Record(shift=t(3.0, 4.0))
    for scale, shift in ((2.0, 0.0), (5.0, 0.0), (5.0, 7.0)):
        record.scale, record.inner.shift = scale, record.inner.shift + shift
        found = graph(x, record)
        assert type(found) is Record and found.y.tolist() == [scale, 2 * scale]
        assert found.sum.tolist() == [4.0 + shift, 6.0 + shift]


def test_nan_is_like_nan():
    assert flatten(float("nan"))[1] == flatten(float("nan"))[1]
    assert flatten(np.array([1, 2]))[1] == flatten(np.array([1, 2]))[1]


def test_names_are_those_of_oneflow():
    _, tree = flatten(((A, {"left": B, "right": [C, None]}), {"mask": A}))
    assert [name for name, _ in named_leaves(tree, "G_input")] == [
        "_G_input.0.0_2", "_G_input.0.1.0_left", "_G_input.0.1.1.0_6", "_G_input.0.1.1.1_7", "_G_input.1.0_mask",
    ]  # fmt: skip
    _, tree = flatten(((3, None, "x"), {}))
    assert constants(tree, "G_input") == [("_G_input.0.0_2", 3), ("_G_input.0.2_4", "x")]


def test_what_cannot_be_taken_apart():
    with pytest.raises(ArgumentTypeError, match="got a set; expected tensors, None and values that can be hashed"):
        flatten({1, 2})
    loop = [A]
    loop.append(loop)
    with pytest.raises(GraphError, match="a list contains itself"):
        flatten(loop)


# graphs


def test_nested_arguments_and_results():
    def function(batch, pair, *, weights, missing=None):
        assert missing is None and isinstance(batch, Batch) and isinstance(pair, Pair)
        total = batch.images + batch.labels["y"] + pair.left * pair.right[0]
        return {"total": total, "parts": (Pair(total * 2, None), [weights["w"]])}, Batch(total - 1)

    graph = Apply(function)
    for scale in (1.0, 3.0):
        args = Batch(scale * B, {"y": B}), Pair(B, [B, None])
        result, batch = graph(*args, weights={"w": A})
        total = scale * B.numpy() + B.numpy() + B.numpy() ** 2
        np.testing.assert_array_equal(result["total"].numpy(), total)
        pair, (w,) = result["parts"]
        assert type(pair) is Pair and pair.right is None and type(batch) is Batch and batch.labels is None
        np.testing.assert_array_equal(pair.left.numpy(), total * 2)
        np.testing.assert_array_equal(batch.images.numpy(), total - 1)
        np.testing.assert_array_equal(w.numpy(), A.numpy())
    assert len(graph._plans) == 1


def test_constants_are_burned_in_with_a_warning():
    graph = Apply(lambda x, power, flag=False: -(x**power) if flag else x**power)
    with pytest.warns(
        UserWarning, match=rf"{graph.name}: _{graph.name}_input.0.1_3 is of type int, not Tensor, and becomes a"
    ):
        first = graph(B, 2)
    np.testing.assert_array_equal(first.numpy(), [4.0, 9.0])
    np.testing.assert_array_equal(graph(B, 3).numpy(), [8.0, 27.0])  # another plan, and no second warning
    with pytest.warns(UserWarning, match=r"input.1.0_flag is of type bool, not Tensor"):
        np.testing.assert_array_equal(graph(B, 2, flag=True).numpy(), [-4.0, -9.0])
    assert len(graph._plans) == 3
    with pytest.warns(
        UserWarning, match="output.0.1_3 is of type float, not Tensor, .*: every call returns it as it was in"
    ) as caught:
        assert Apply(lambda x: (x, 0.5))(B)[1] == 0.5
    assert caught[0].filename == __file__


def test_a_numpy_array_is_a_constant_by_its_values():
    graph, array = Apply(lambda x, a: x + flow.tensor(a)), np.array([1.0, 2.0], np.float32)
    with pytest.warns(UserWarning, match="is of type ndarray, not Tensor"):
        np.testing.assert_array_equal(graph(B, array).numpy(), [3.0, 5.0])
    array[0] = 5.0
    np.testing.assert_array_equal(graph(B, array).numpy(), [7.0, 5.0])


def test_structure_that_changes_makes_another_plan(capsys):
    graph = Apply(lambda xs: xs[0] + (0 if xs[1] is None else xs[1]))
    graph.debug(0)
    np.testing.assert_array_equal(graph([B, None]).numpy(), B.numpy())
    np.testing.assert_array_equal(graph([B, B]).numpy(), 2 * B.numpy())
    assert "changed: the structure of the arguments, or a constant among them." in capsys.readouterr().out


def test_the_same_tensor_twice_and_outputs_that_are_inputs():
    graph = Apply(lambda x, y: (x, y, x + y))
    x, y, z = graph(B, B)
    assert x is not B and y is not x
    np.testing.assert_array_equal(z.numpy(), 2 * B.numpy())
    x.zero_()
    assert B.tolist() == [2.0, 3.0] and y.tolist() == [2.0, 3.0]
    other = t(1.0, 1.0)
    np.testing.assert_array_equal(graph(B, other)[2].numpy(), [3.0, 4.0])


def test_inputs_that_are_views():
    graph = Apply(lambda x: x * 2)
    whole = flow.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    for view in (whole.t(), whole[:, 1:3], whole[::2], whole[0].expand(3, 4)):
        np.testing.assert_array_equal(graph(view).numpy(), 2 * view.numpy())


def test_outputs_that_are_held_are_not_overwritten():
    graph = Apply(lambda x: (x * 2, x.sum()))
    results = [graph(flow.ones(5) * n) for n in range(6)]
    for n, (double, total) in enumerate(results):
        np.testing.assert_array_equal(double.numpy(), np.full(5, 2.0 * n))
        assert total.item() == 5 * n


def test_nothing_at_all():
    assert Apply(lambda: None)() is None
    assert Apply(lambda x: ())(B) == ()
