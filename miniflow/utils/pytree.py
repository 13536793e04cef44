"""Trees of containers: leaves in a list, and structure apart. As `torch.utils._pytree`, for libraries that use that.

>>> leaves, structure = tree_flatten({"a": [1, 2], "b": (3, None)})
>>> leaves
[1, 2, 3, None]
>>> tree_unflatten([x and x * 10 for x in leaves], structure)
{'a': [10, 20], 'b': (30, None)}
"""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from miniflow.errors import ArgumentError

PyTree = Any


class NodeDef(NamedTuple):
    """How a container is taken apart, into its children and what else it is, and put together again."""

    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]


def _of_sequence(kind: type) -> NodeDef:
    return NodeDef(lambda x: (list(x), None), lambda children, _: kind(children))


def _of_mapping(kind: type) -> NodeDef:
    return NodeDef(lambda x: (list(x.values()), list(x)), lambda children, keys: kind(zip(keys, children, strict=True)))


SUPPORTED_NODES: dict[Any, NodeDef] = {
    dict: _of_mapping(dict),
    OrderedDict: _of_mapping(OrderedDict),
    list: _of_sequence(list),
    tuple: _of_sequence(tuple),
    deque: NodeDef(lambda x: (list(x), x.maxlen), deque),
    namedtuple: NodeDef(lambda x: (list(x), type(x)), lambda children, kind: kind(*children)),
}


@dataclass
class TreeSpec:
    """The structure of a tree.

    Attributes:
        type: of the container, a key of `SUPPORTED_NODES`.
        context: what `flatten_fn` returned besides the children.
        children_specs: the structures of these.
    """

    type: Any
    context: Any
    children_specs: list[TreeSpec]
    num_leaves: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_leaves = sum(spec.num_leaves for spec in self.children_specs)


class LeafSpec(TreeSpec):
    """The structure of what is no container."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[..., Any], **options: Any
) -> None:
    """Let objects of a class be containers.

    Args:
        flatten_fn: of an object; gives its children, and a context, which is all else.
        unflatten_fn: of children and context; gives the object.
        options: of PyTorch, which say how contexts are written to files; without effect.
    """
    SUPPORTED_NODES[cls] = NodeDef(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _get_node_type(tree: Any) -> Any:
    is_named = isinstance(tree, tuple) and hasattr(tree, "_fields") and type(tree) not in SUPPORTED_NODES
    return namedtuple if is_named else type(tree)


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and its structure; what `is_leaf` holds for is not taken apart."""
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES or is_leaf is not None and is_leaf(tree):
        return [tree], LeafSpec()
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    parts = [tree_flatten(child, is_leaf) for child in children]
    return [leaf for leaves, _ in parts for leaf in leaves], TreeSpec(kind, context, [spec for _, spec in parts])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of this structure with these leaves.

    Raises:
        ArgumentError: for another number of leaves.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ArgumentError(f"tree_unflatten: got {len(leaves)} leaves; expected {treespec.num_leaves}")
    if isinstance(treespec, LeafSpec):
        return leaves[0]
    children, start = [], 0
    for spec in treespec.children_specs:
        children.append(tree_unflatten(leaves[start : start + spec.num_leaves], spec))
        start += spec.num_leaves
    return SUPPORTED_NODES[treespec.type].unflatten_fn(children, treespec.context)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """The tree with `func` of each leaf in its place, and of those of `rests` in that place.

    Raises:
        ArgumentError: for a tree of another structure among `rests`.
    """
    leaves, structure = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf) for rest in rests]
    for _, other in others:
        if other != structure:
            raise ArgumentError(f"tree_map: got trees of the structures {structure} and {other}; expected equal ones")
    return tree_unflatten(map(func, leaves, *[found for found, _ in others]), structure)


def tree_map_only(types: Any, func: Callable[[Any], Any], tree: PyTree) -> PyTree:
    """The tree with `func` of each leaf of some types in its place."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, types) else leaf, tree)
