"""Gradients, products with Jacobians from either side, Jacobians and Hessians of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from miniflow import autograd
from miniflow.dispatch.tape import Leaf, ancestors, enable_grad, is_grad_enabled
from miniflow.errors import ArgumentError, ArgumentTypeError, ShapeError
from miniflow.graph.nested import CONSTANT, Tree, flatten, named_leaves, unflatten
from miniflow.ops.creation import eye, zeros_like
from miniflow.tensor import Tensor

ArgNums = int | tuple[int, ...]


def tracked(x: Tensor) -> Tensor:
    """A tensor with the values of `x` to differentiate by; `x` itself can still be differentiated by outside."""
    return x.clone() if x.requires_grad and is_grad_enabled() else x.detach().requires_grad_()


def depends_on_others(results: Sequence[Tensor]) -> bool:
    """Whether a result depends on leaves that require grad other than those of transforms that are done."""
    nodes = ancestors([y._edge[0] for y in results if y.requires_grad])
    leaves = [node.tensor() for node in nodes if type(node) is Leaf]
    return any(x is not None and x.__dict__.get("is_differentiated", True) for x in leaves)


def _tensors(name: str, noun: str, value: Any) -> tuple[list[Tensor], Tree]:
    """The tensors in `value`, which holds nothing else, and the tree around them."""
    tensors, tree = flatten(value, tell=False)
    for _, node in named_leaves(tree, ""):
        if node.kind == CONSTANT:
            remedy = (
                "expected tensors, in lists, tuples and dicts: use flow.tensor(x), or bind it with functools.partial"
            )
            raise ArgumentTypeError(f"{name}: got {noun} of type {node.type.__name__}; {remedy}")
    return tensors, tree


def _positions(name: str, argnums: ArgNums, count: int) -> list[int]:
    """`argnums` as positions from the front."""
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    valid = all(isinstance(p, int) and -count <= p < count for p in numbers)
    if not numbers or not valid or len({p % count for p in numbers}) != len(numbers):
        raise ArgumentError(f"{name}: got argnums={argnums} for {count} arguments; expected their positions, each once")
    return [p % count for p in numbers]


class Call:
    """A function called with inputs to differentiate by.

    Attributes:
        inputs, inputs_tree: the tensors in the arguments that `argnums` names, and what is around them.
        outputs, outputs_tree: the same of the result.
        aux: the second result where `has_aux`.
        records: whether what is derived has to be recorded.
    """

    def __init__(
        self, name: str, func: Callable, argnums: ArgNums, args: tuple, kwargs: dict | None = None,
        has_aux: bool = False,
    ):  # fmt: skip
        positions = _positions(name, argnums, len(args))
        chosen = args[argnums] if isinstance(argnums, int) else tuple([args[p] for p in positions])
        tensors, self.inputs_tree = _tensors(name, "an argument to differentiate by", chosen)
        self.inputs = [tracked(x) for x in tensors]
        replaced = unflatten(self.inputs_tree, self.inputs)
        args = list(args)
        for p, value in zip(positions, (replaced,) if isinstance(argnums, int) else replaced, strict=True):
            args[p] = value
        with enable_grad():
            for x in self.inputs:
                x.__dict__["is_differentiated"] = True
            result = func(*args, **(kwargs or {}))
            for x in self.inputs:
                x.__dict__["is_differentiated"] = False
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            type_name = type(result).__name__
            raise ArgumentTypeError(f"{name}: got a result of type {type_name} for has_aux; expected (result, aux)")
        result, self.aux = result if has_aux else (result, None)
        self.outputs, self.outputs_tree = _tensors(name, "a result", result)
        self.records = is_grad_enabled() and depends_on_others(self.outputs)

    def released(self, value: Any) -> Any:
        """`value` without what was recorded for this call alone."""
        tensors, tree = flatten(value, tell=False)
        recorded = [is_grad_enabled() and depends_on_others([y]) for y in tensors]
        return unflatten(tree, [y if keep else y.detach() for y, keep in zip(tensors, recorded, strict=True)])

    @property
    def result(self) -> Any:
        """What the function returned."""
        return self.released(unflatten(self.outputs_tree, self.outputs))

    def gradients(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], records: bool) -> list[Tensor]:
        """Of the inputs."""
        pairs = [(y, dy) for y, dy in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return [zeros_like(x) for x in self.inputs]
        return list(autograd.grad(*_transposed(pairs, self.inputs), True, records, materialize_grads=True))

    def tangents(self, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A cotangent u of y, and the gradients of the inputs: they are linear in u."""
        u = zeros_like(y.detach()).requires_grad_()
        with enable_grad():
            return u, self.gradients([y], [u], True)


def _transposed(pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor]) -> tuple:
    outputs, cotangents = zip(*pairs, strict=True)
    return outputs, inputs, cotangents


def _matching(name: str, value: Any, tree: Tree, like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of `value`, which has to have the structure, dicts in the same order, and the shapes of these."""
    tensors, value_tree = _tensors(name, "a vector", value)
    shapes = [[tuple(x.shape) for x in xs] for xs in (tensors, like)]
    if value_tree != tree:
        got, expected = unflatten(value_tree, shapes[0]), unflatten(tree, shapes[1])
        raise ShapeError(f"{name}: got tensors of shapes {got}; expected {expected}, nested in the same way and order")
    if shapes[0] != shapes[1]:
        raise ShapeError(f"{name}: got tensors of shapes {shapes[0]}; expected {shapes[1]}")
    return tensors


def _gradient_and_value(name: str, func: Callable, argnums: ArgNums, has_aux: bool, args: tuple, kwargs: dict) -> tuple:
    call = Call(name, func, argnums, args, kwargs, has_aux)
    if len(call.outputs) != 1 or call.outputs[0].ndim:
        shapes = [tuple(y.shape) for y in call.outputs]
        raise ShapeError(f"{name}: got a function with results of shapes {shapes}; expected one number: use y.sum()")
    (y,) = call.outputs
    gradients = call.gradients([y], [zeros_like(y.detach()) + 1], call.records)
    value = (call.result, call.released(call.aux)) if has_aux else call.result
    return unflatten(call.inputs_tree, gradients), value


def grad_and_value(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """A function that returns the gradient of `func`, as `grad` does, and what `func` returns.

    Args, Raises: as of `grad`.

    Source: `torch.func.grad_and_value`.
    """

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> tuple:
        return _gradient_and_value("grad_and_value", func, argnums, has_aux, args, kwargs)

    return run


def grad(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """A function of the same arguments that returns the gradient of `func`, which returns one number.

    Args:
        func: of tensors, or lists, tuples and dicts of them.
        argnums: the position of the argument to differentiate by; of several, the result is a tuple.
        has_aux: `func` returns `(number, other results)`; then the result is `(gradient, other results)`.

    Raises:
        ShapeError: if `func` returns anything but one number.
        ArgumentError: for positions that do not exist, or come twice.
        ArgumentTypeError: for arguments to differentiate by, or results, that are not tensors.

    >>> import miniflow as flow
    >>> cube = lambda x: x**3
    >>> flow.func.grad(cube)(flow.tensor(2.0)).item(), flow.func.grad(flow.func.grad(cube))(flow.tensor(2.0)).item()
    (12.0, 12.0)

    Source: `torch.func.grad`.
    """

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        gradient, value = _gradient_and_value("grad", func, argnums, has_aux, args, kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return run


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """What `func` returns, and the function v -> v^T J, a tuple with one entry for each of `primals`.

    Args:
        func: of `primals`.
        has_aux: `func` returns `(results, other results)`; the latter are returned at the end.

    Raises:
        ShapeError: for a v of other shapes than the results, or nested in another way or order.
        ArgumentTypeError: for primals, results or a v that are not tensors.

    >>> import miniflow as flow
    >>> y, pull = flow.func.vjp(flow.square, flow.tensor([1.0, 2.0]))
    >>> pull(flow.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]

    Source: `torch.func.vjp`.
    """
    call = Call("vjp", func, tuple(range(len(primals))), primals, has_aux=has_aux)

    def pull(*cotangents: Any) -> tuple:
        value = cotangents[0] if len(cotangents) == 1 else cotangents
        vectors = _matching("vjp", value, call.outputs_tree, call.outputs)
        records = is_grad_enabled() and (call.records or any(v.requires_grad for v in vectors))
        return unflatten(call.inputs_tree, call.gradients(call.outputs, vectors, records))

    return (call.result, pull, call.released(call.aux)) if has_aux else (call.result, pull)


def jvp(func: Callable, primals: tuple, tangents: tuple, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """What `func` returns, and J v for the tangents v of `primals`.

    It is computed by two backward passes: u^T J is linear in u, and its gradient by u is J v.

    Args:
        strict: has no effect: where a result does not depend on the primals, its tangent is zero.
        has_aux: as of `vjp`.

    Raises:
        ShapeError: for tangents of other shapes than the primals, or nested in another way or order.
        ArgumentTypeError: for primals, tangents or results that are not tensors.

    >>> import miniflow as flow
    >>> x, v = flow.tensor([1.0, 2.0]), flow.tensor([1.0, 10.0])
    >>> flow.func.jvp(flow.square, (x,), (v,))[1].tolist()
    [2.0, 40.0]

    Source: `torch.func.jvp`.
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        type_names = f"{type(primals).__name__} and tangents of type {type(tangents).__name__}"
        raise ArgumentTypeError(f"jvp: got primals of type {type_names}; expected tuples: (x,) for one argument")
    call = Call("jvp", func, tuple(range(len(primals))), tuple(primals), has_aux=has_aux)
    vectors = _matching("jvp", tuple(tangents), call.inputs_tree, call.inputs)
    records = is_grad_enabled() and (call.records or any(v.requires_grad for v in vectors))
    products = []
    for y in call.outputs:
        u, gradients = call.tangents(y)
        pairs = [(g, v) for g, v in zip(gradients, vectors, strict=True) if g.requires_grad]
        products.append(
            autograd.grad(*_transposed(pairs, [u]), True, records, materialize_grads=True)[0] if pairs
            else zeros_like(y.detach())
        )  # fmt: skip
    pushed = unflatten(call.outputs_tree, products)
    return (call.result, pushed, call.released(call.aux)) if has_aux else (call.result, pushed)


def _rows(outputs: Tensor, inputs: Sequence[Tensor], records: bool) -> list[Tensor]:
    """The derivatives of each element of `outputs`: (elements, shape of the input), one for each input."""
    count = outputs.numel()
    if count == 0 or not outputs.requires_grad:
        return [zeros_like(x.detach()).expand(count, *x.shape) for x in inputs]
    basis = eye(count, dtype=outputs.dtype, device=outputs.device).reshape(count, *outputs.shape)
    return list(
        autograd.grad(outputs, inputs, basis, True, records, is_grads_batched=True, materialize_grads=True)
    )  # fmt: skip


def jacrev(func: Callable, argnums: ArgNums = 0, has_aux: bool = False, *, chunk_size: int | None = None) -> Callable:
    """A function that returns the Jacobian of `func`, one backward pass for each element of the result.

    Args:
        func, argnums, has_aux: as of `grad`, with results of any shape.
        chunk_size: has no effect, since rows are computed one by one.

    Returns:
        for a result of shape S and an argument of shape T, a function with results of shape S + T; nested as the
        results of `func`, and within that as the arguments.

    >>> import miniflow as flow
    >>> flow.func.jacrev(flow.square)(flow.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]

    Source: `torch.func.jacrev`.
    """

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        call = Call("jacrev", func, argnums, args, kwargs, has_aux)
        jacobians = []
        for y in call.outputs:
            rows = _rows(y, call.inputs, call.records)
            shaped = [row.reshape(*y.shape, *x.shape) for row, x in zip(rows, call.inputs, strict=True)]
            jacobians.append(unflatten(call.inputs_tree, shaped))
        result = unflatten(call.outputs_tree, jacobians)
        return (result, call.released(call.aux)) if has_aux else result

    return run


def jacfwd(
    func: Callable, argnums: ArgNums = 0, has_aux: bool = False, chunk_size: int | None = None, *,
    randomness: str = "error",
) -> Callable:  # fmt: skip
    """A function that returns the Jacobian of `func`, as `jacrev` does, one pass for each element of the arguments.

    `chunk_size` and `randomness` have no effect: `func` is called once. `torch.func.jacfwd`.
    """

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        call = Call("jacfwd", func, argnums, args, kwargs, has_aux)
        jacobians = []
        for y in call.outputs:
            u, gradients = call.tangents(y)
            columns = [_rows(g, [u], call.records)[0].reshape(g.numel(), y.numel()) for g in gradients]
            shaped = [c.t().reshape(*y.shape, *x.shape) for c, x in zip(columns, call.inputs, strict=True)]
            jacobians.append(unflatten(call.inputs_tree, shaped))
        result = unflatten(call.outputs_tree, jacobians)
        return (result, call.released(call.aux)) if has_aux else result

    return run


def hessian(func: Callable, argnums: ArgNums = 0) -> Callable:
    """A function that returns the second derivatives of `func`: `jacfwd(jacrev(func, argnums), argnums)`.

    >>> import miniflow as flow
    >>> flow.func.hessian(lambda x: (x**3).sum())(flow.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]

    Source: `torch.func.hessian`.
    """
    return jacfwd(jacrev(func, argnums), argnums)
