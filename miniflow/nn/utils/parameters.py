"""All parameters in one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ShapeError
from miniflow.ops.indexing import narrow
from miniflow.ops.joining import cat
from miniflow.ops.shape import reshape
from miniflow.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one vector. `torch.nn.utils.parameters_to_vector`.

    >>> import miniflow as flow
    >>> parameters_to_vector([flow.ones(2), flow.zeros(1, 1)]).tolist()
    [1.0, 1.0, 0.0]
    """
    return cat([reshape(p, (-1,)) for p in parameters])


@no_grad
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the elements of a vector into parameters. `torch.nn.utils.vector_to_parameters`.

    Raises:
        ShapeError: if there are not as many elements.
    """
    parameters = list(parameters)
    total = sum(p.numel() for p in parameters)
    if tuple(vec.shape) != (total,):
        raise ShapeError(f"vector_to_parameters: got a vector of shape {tuple(vec.shape)}; expected ({total},)")
    start = 0
    for p in parameters:
        p.copy_(reshape(narrow(vec, 0, start, p.numel()), p.shape))
        start += p.numel()
