"""Pruning: some elements of a parameter are held at 0.

`layer.weight` then is computed, whenever it is read, from the parameter `layer.weight_orig` and the buffer
`layer.weight_mask`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.ops.creation import ones_like
from miniflow.ops.joining import cat
from miniflow.ops.matrix_functions import vector_norm
from miniflow.ops.random import rand, rand_like
from miniflow.tensor import Tensor


class BasePruningMethod:
    """Base of the methods; one of your own overrides `compute_mask`. `torch.nn.utils.prune.BasePruningMethod`.

    Attributes:
        PRUNING_TYPE: what a method sees of a parameter that was pruned before: "unstructured" the elements that are
            left, in one dim; "structured" the indices of `self.dim` where some are left; "global" all.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask of scores `t`: a copy of the mask so far, with more zeros."""
        raise NotImplementedError(f"{type(self).__name__}: a pruning method must override compute_mask")

    def of_what_is_left(self, t: Tensor, mask: Tensor) -> Tensor:
        """The mask after another pruning; see PRUNING_TYPE."""
        remaining_index: Any = ...
        if self.PRUNING_TYPE == "unstructured":
            remaining_index = mask != 0
        elif self.PRUNING_TYPE == "structured":
            dim = self.dim % t.ndim
            remaining = mask.movedim(dim, 0).reshape(t.shape[dim], -1).amax(1).nonzero().flatten()
            remaining_index = (*[slice(None)] * dim, remaining)
        new = mask.clone()
        new[remaining_index] = self.compute_mask(t[remaining_index], mask[remaining_index])
        return new

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **options: Any
    ) -> BasePruningMethod:
        """Prune the parameter `name` of a module by a method made of the other arguments."""
        method = cls(*args, **options)
        prune(method, module, name, importance_scores)
        return method


@no_grad()
def prune(method: BasePruningMethod, module: Module, name: str, scores: Tensor | None = None) -> Module:
    """Prune the parameter `name` of a module by a method."""
    value, mask = value_and_mask(module, name)
    scores = value if scores is None else scores
    if scores.shape != value.shape:
        raise ArgumentError(f"prune: got scores of shape {tuple(scores.shape)}; expected {tuple(value.shape)}")
    mask = method.of_what_is_left(scores, mask)
    if f"{name}_orig" not in module._parameters:
        module.register_parameter(f"{name}_orig", module._parameters.pop(name))
        module._derived_tensors[name] = lambda m: getattr(m, f"{name}_orig") * getattr(m, f"{name}_mask")
    module.register_buffer(f"{name}_mask", mask)
    return module


def value_and_mask(module: Module, name: str) -> tuple[Tensor, Tensor]:
    """The parameter before pruning, and its mask so far."""
    if f"{name}_orig" in module._parameters:
        return module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
    value = module._parameters.get(name)
    if value is None:
        raise ArgumentError(f"prune: got the name {name!r}; expected a parameter of {module}")
    return value, ones_like(value).detach()


class Identity(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(dtype=default_mask.dtype)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of least magnitude: a number of them, or a fraction from 0 to 1."""

    def __init__(self, amount: int | float):
        if not amount >= 0 or isinstance(amount, float) and amount > 1:
            raise ArgumentError(f"prune: got amount={amount!r}; expected a count, or a fraction from 0.0 to 1.0")
        self.amount = amount

    def least(self, scores: Tensor) -> Tensor:
        """Where the `amount` smallest of scores (n,) are."""
        count = round(self.amount * scores.numel()) if isinstance(self.amount, float) else self.amount
        if count > scores.numel():
            raise ArgumentError(f"prune: got amount={self.amount}; expected at most {scores.numel()}, what is left")
        return scores.topk(count, largest=False).indices

    def importance(self, t: Tensor) -> Tensor:
        """A score for each element."""
        return t.abs()

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask.flatten().index_fill(0, self.least(self.importance(t).flatten()), 0).reshape(t.shape)


class RandomUnstructured(L1Unstructured):
    """Prunes random elements."""

    def importance(self, t: Tensor) -> Tensor:
        return rand_like(t)


class LnStructured(L1Unstructured):
    """Prunes the indices of a dim whose elements have the least norm of order n."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, n: float, dim: int = -1):
        super().__init__(amount)
        self.n, self.dim = n, dim

    def importance(self, t: Tensor) -> Tensor:
        return vector_norm(t, self.n, [d for d in range(t.ndim) if d != self.dim % t.ndim])

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask.index_fill(self.dim, self.least(self.importance(t)), 0)


class RandomStructured(LnStructured):
    """Prunes random indices of a dim."""

    def __init__(self, amount: int | float, dim: int = -1):
        super().__init__(amount, 0, dim)

    def importance(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim], device=t._device)


def identity(module: Module, name: str) -> Module:
    """A mask of ones. `torch.nn.utils.prune.identity`."""
    return prune(Identity(), module, name)


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prune random elements. `torch.nn.utils.prune.random_unstructured`."""
    return prune(RandomUnstructured(amount), module, name)


def l1_unstructured(module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of least magnitude, or of least scores.

    Args:
        module: a layer.
        name: of its parameter.
        amount: how many of the elements that are left, or which fraction of them.
        importance_scores: of the shape of the parameter.

    >>> import miniflow as flow
    >>> layer = flow.nn.Linear(2, 2)
    >>> _ = flow.nn.init.constant_(layer.weight, 3.0)
    >>> layer = l1_unstructured(layer, "weight", amount=0.5)
    >>> layer.weight.sum().item(), [name for name, _ in layer.named_parameters()]
    (6.0, ['bias', 'weight_orig'])

    Source: `torch.nn.utils.prune.l1_unstructured`.
    """
    return prune(L1Unstructured(amount), module, name, importance_scores)


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prune random indices of a dim. `torch.nn.utils.prune.random_structured`."""
    return prune(RandomStructured(amount, dim), module, name)


def ln_structured(
    module: Module, name: str, amount: int | float, n: float, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the indices of a dim with the least norm of order n. `torch.nn.utils.prune.ln_structured`."""
    return prune(LnStructured(amount, n, dim), module, name, importance_scores)


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune where a mask is 0. `torch.nn.utils.prune.custom_from_mask`."""
    return prune(CustomFromMask(mask), module, name)


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prune several parameters, pairs of a module and a name, as if they were one vector.

    Args:
        parameters: pairs of a module and a name.
        pruning_method: `L1Unstructured`, or another of that kind, made of `kwargs` such as amount=0.2.
        importance_scores: for some of the pairs, scores in place of values.

    Source: `torch.nn.utils.prune.global_unstructured`.
    """
    pairs, scores_of = list(parameters), importance_scores or {}
    with no_grad():
        before = [value_and_mask(*pair) for pair in pairs]
        scores = cat([scores_of.get(pair, value).flatten() for pair, (value, _) in zip(pairs, before, strict=True)])
        mask = pruning_method(**kwargs).of_what_is_left(scores, cat([mask.flatten() for _, mask in before]))
        parts = mask.split([value.numel() for value, _ in before])
    for (module, name), part, (value, _) in zip(pairs, parts, before, strict=True):
        custom_from_mask(module, name, part.reshape(value.shape))


def remove(module: Module, name: str) -> Module:
    """Make a pruned parameter a plain one again, with its zeros. `torch.nn.utils.prune.remove`."""
    if f"{name}_orig" not in module._parameters or f"{name}_mask" not in module._buffers:
        raise ArgumentError(f"prune.remove: got the name {name!r}; expected a pruned parameter of {module}")
    with no_grad():
        value, parameter = getattr(module, name), module._parameters.pop(f"{name}_orig")
        parameter.copy_(value)
    del module._buffers[f"{name}_mask"], module._derived_tensors[name]
    module.register_parameter(name, parameter)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a module or one in it is pruned. `torch.nn.utils.prune.is_pruned`."""
    return any(f"{name}_mask" in m._buffers for m in module.modules() for name in m._derived_tensors)
