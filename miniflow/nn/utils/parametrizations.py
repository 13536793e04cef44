"""Weight norm and spectral norm, as parametrizations."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.nn.utils.parametrize import is_parametrized, register_parametrization, remove_parametrizations
from miniflow.ops.elementwise import div, mul
from miniflow.ops.matmul import matmul
from miniflow.ops.permute import movedim
from miniflow.ops.random import randn
from miniflow.ops.shape import reshape
from miniflow.ops.statistics import norm
from miniflow.tape import no_grad
from miniflow.tensor import Tensor


class WeightNorm(Module):
    """weight = g v / |v|, the norm being taken over all dims but `dim`."""

    def __init__(self, dim: int | None):
        super().__init__()
        self.dim = dim

    def _norm(self, v: Tensor) -> Tensor:
        if self.dim in (None, -1):
            return norm(v)
        return norm(v, dim=[d for d in range(v.ndim) if d != self.dim % v.ndim], keepdim=True)

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return mul(v, div(g, self._norm(v)))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """g and v of a weight."""
        return self._norm(weight), weight.clone()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn length and direction of a weight apart: weight = g v / |v|.

    Args:
        module: the layer.
        name: of the parameter.
        dim: there is a length for each index of it; None or -1 for one alone.

    The parameters are parametrizations.weight.original0, g, and original1, v.

    Source: `torch.nn.utils.parametrizations.weight_norm`; Salimans and Kingma 2016, "Weight Normalization".
    """
    return register_parametrization(module, name, WeightNorm(dim))


class SpectralNorm(Module):
    """weight / sigma, its largest singular value, which power iterations estimate in training."""

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int):
        super().__init__()
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        with no_grad():
            matrix = self._matrix(weight.detach())
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                self.register_buffer(name, self._unit(randn(size, dtype=weight.dtype, device=weight._place)))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return reshape(movedim(weight, self.dim, 0), (weight.shape[self.dim], -1))

    def _unit(self, x: Tensor) -> Tensor:
        return div(x, norm(x).clamp(self.eps))

    @no_grad()
    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u.copy_(self._unit(matmul(matrix, self._v)))
            self._v.copy_(self._unit(matmul(matrix.T, self._u)))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return div(weight, matmul(self._u.clone(), matmul(matrix, self._v.clone())))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value, which power iterations estimate in training.

    Args:
        module: the layer.
        name: of the parameter, of at least 2 dims.
        n_power_iterations: for each time the weight is read in training.
        eps: the smallest norm to divide by.
        dim: the rows of the matrix; 0 if None, and 1 for transposed convolutions.

    Raises:
        ArgumentError: for less than one iteration.

    Source: `torch.nn.utils.parametrizations.spectral_norm`; Miyato et al. 2018, "Spectral Normalization for GANs".
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: got n_power_iterations={n_power_iterations}; expected at least 1")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(
        module, name, SpectralNorm(getattr(module, name), n_power_iterations, eps, dim).train(module.training)
    )


def _remove(function: str, kind: type[Module], module: Module, name: str) -> Module:
    if not is_parametrized(module, name) or not isinstance(module.parametrizations[name][0], kind):
        raise ArgumentError(f"{function}: {name!r} of {module} has no such norm")
    return remove_parametrizations(module, name)


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight of the same value. `torch.nn.utils.remove_weight_norm`."""
    return _remove("remove_weight_norm", WeightNorm, module, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight of the same value. `torch.nn.utils.remove_spectral_norm`."""
    return _remove("remove_spectral_norm", SpectralNorm, module, name)
