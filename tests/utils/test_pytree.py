"""Trees of containers: leaves and structure, as PyTorch has them."""

from collections import OrderedDict, deque, namedtuple

import pytest

import miniflow as flow
from miniflow.errors import ArgumentError
from miniflow.utils import pytree

Pair = namedtuple("Pair", ["first", "second"])
TREES = [
    3,
    None,
    [],
    {"a": [1, (2, 3)], "b": {}},
    OrderedDict(z=1, a=[2, None]),
    Pair([1, 2], {"x": 3}),
    deque([1, [2]], maxlen=5),
    ([[[]]], ((), {"k": ()})),
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_leaves_and_structure_make_the_tree_again(tree):
    leaves, structure = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(leaves, structure)
    assert again == tree and type(again) is type(tree) and getattr(again, "maxlen", 5) == 5
    assert pytree.tree_map(str, tree) == pytree.tree_unflatten([str(leaf) for leaf in leaves], structure)
    with pytest.raises(ArgumentError, match=f"got {len(leaves) + 1} leaves; expected {len(leaves)}"):
        pytree.tree_unflatten([*leaves, 0], structure)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_leaves_are_those_of_pytorch(tree):
    theirs = pytest.importorskip("torch.utils._pytree", reason="torch is not installed")
    leaves, structure = theirs.tree_flatten(tree)
    mine = pytree.tree_flatten(tree)
    assert mine[0] == leaves and mine[1].num_leaves == structure.num_leaves


def test_leaves_that_are_containers_and_containers_of_a_program():
    tree = {"a": [1, 2], "b": flow.ones(2)}
    assert pytree.tree_leaves(tree, is_leaf=lambda x: isinstance(x, list))[0] == [1, 2]
    assert pytree.tree_map_only(flow.Tensor, lambda x: x.sum().item(), tree) == {"a": [1, 2], "b": 2.0}

    assert pytree.tree_map(max, {"a": [1, 5]}, {"a": [4, 2]}, {"a": [3, 3]}) == {"a": [4, 5]}
    with pytest.raises(ArgumentError, match="tree_map: got trees of the structures"):
        pytree.tree_map(max, {"a": [1, 5]}, {"a": [4]})

    class Batch:
        def __init__(self, x, name):
            self.x, self.name = x, name

    pytree.register_pytree_node(Batch, lambda b: ([b.x], b.name), lambda children, name: Batch(*children, name))
    try:
        doubled = pytree.tree_map(lambda x: x * 2, Batch([1, 2], "train"))
        assert doubled.x == [2, 4] and doubled.name == "train"
    finally:
        del pytree.SUPPORTED_NODES[Batch]
