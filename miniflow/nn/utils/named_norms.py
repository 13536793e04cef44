"""Weight norm and spectral norm whose tensors are members of the layer: `weight_g` and `weight_v`, or `weight_orig`.

`layer.weight` is computed from them, whenever it is read.
"""

from __future__ import annotations

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.nn.utils.parametrizations import WeightNorm, as_matrix, check_spectral, over_sigma, random_vectors
from miniflow.ops.matmul import matmul
from miniflow.ops.normalization import normalize
from miniflow.tensor import Tensor


class NamedNorm:
    """The base of both: how a weight is computed from the tensors of a layer.

    Attributes:
        suffixes: of their names, each with the name that a parametrization has for it.
        buffers: those of buffers; the others are parameters.
    """

    suffixes: dict[str, str]
    buffers: tuple[str, ...] = ()

    def __init__(self, name: str):
        self.name = name

    def tensors(self, module: Module) -> list[Tensor]:
        """The tensors of a layer."""
        return [getattr(module, self.name + suffix) for suffix in self.suffixes]

    def __call__(self, module: Module) -> Tensor:
        """The weight."""
        raise NotImplementedError("a norm must override __call__(module)")

    def apply(self, module: Module, **tensors: Tensor) -> Module:
        """Put tensors in the place of a parameter."""
        weight = module._parameters.pop(self.name)
        for suffix, x in tensors.items():
            if suffix in self.buffers:
                module.register_buffer(self.name + suffix, x)
            else:
                module.register_parameter(self.name + suffix, Parameter(x.detach(), weight.requires_grad))
        module._derived_tensors[self.name] = self
        others = {self.name + suffix: f"parametrizations.{self.name}.{x}" for suffix, x in self.suffixes.items()}
        module._other_names = {**module._other_names, **others}
        return module

    def remove(self, module: Module) -> Module:
        """Make the weight a parameter again, of the value that it has."""
        with no_grad():
            value = self(module)
        for suffix in self.suffixes:
            delattr(module, self.name + suffix)
        del module._derived_tensors[self.name]
        module.register_parameter(self.name, Parameter(value))
        return module


class NamedWeightNorm(NamedNorm):
    """weight = g v / |v|."""

    suffixes = {"_g": "original0", "_v": "original1"}

    def __init__(self, name: str, dim: int | None):
        super().__init__(name)
        self.norm = WeightNorm(dim)

    def __call__(self, module: Module) -> Tensor:
        return self.norm(*self.tensors(module))


class NamedSpectralNorm(NamedNorm):
    """weight / (u W v)."""

    suffixes = {"_orig": "original", "_u": "0._u", "_v": "0._v"}
    buffers = ("_u", "_v")

    def __init__(self, name: str, n_power_iterations: int, eps: float, dim: int):
        super().__init__(name)
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim

    def __call__(self, module: Module) -> Tensor:
        weight, u, v = self.tensors(module)
        return over_sigma(weight, self.dim, u, v)

    def apply(self, module: Module, **tensors: Tensor) -> Module:
        module.register_forward_pre_hook(self.iterate)
        return super().apply(module, **tensors)

    def remove(self, module: Module) -> Module:
        module._forward_pre_hooks.remove((self.iterate, False))
        return super().remove(module)

    @no_grad()
    def iterate(self, module: Module, args: tuple) -> None:
        """Before each call in training: a better estimate of the largest singular value."""
        if not module.training:
            return
        weight, u, v = self.tensors(module)
        matrix = as_matrix(weight.detach(), self.dim)
        for _ in range(self.n_power_iterations):
            v.copy_(normalize(matmul(matrix.T, u), dim=0, eps=self.eps))
            u.copy_(normalize(matmul(matrix, v), dim=0, eps=self.eps))


def _parameter(function: str, module: Module, name: str) -> Tensor:
    weight = module._parameters.get(name)
    if weight is None:
        raise ArgumentError(f"{function}: got {name!r}; expected a parameter of {module}")
    return weight.detach()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn length and direction of a weight apart: weight = g v / |v|.

    Args:
        module: the layer, which gets the parameters weight_g and weight_v. A state with the names of
            `parametrizations.weight_norm` is read too.
        name: of the parameter.
        dim: there is a length for each index of it; None or -1 for one alone.

    Raises:
        ArgumentError: if there is no such parameter.

    >>> import miniflow as flow
    >>> layer = flow.nn.utils.weight_norm(flow.nn.Linear(2, 3))
    >>> {name: tuple(p.shape) for name, p in layer.named_parameters()}
    {'bias': (3,), 'weight_g': (3, 1), 'weight_v': (3, 2)}

    Source: `torch.nn.utils.weight_norm`; Salimans and Kingma 2016, "Weight Normalization".
    """
    weight, norm = _parameter("weight_norm", module, name), NamedWeightNorm(name, dim)
    g, v = norm.norm.right_inverse(weight)
    return norm.apply(module, _g=g, _v=v)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value, which power iterations estimate in training.

    Args:
        module: the layer, which gets the parameter weight_orig and the buffers weight_u and weight_v. A state with the
            names of `parametrizations.spectral_norm` is read too.
        name: of the parameter, of at least 2 dims.
        n_power_iterations: for each call of the layer in training.
        eps: the smallest norm to divide by.
        dim: the rows of the matrix; 0 if None, and 1 for transposed convolutions.

    Raises:
        ArgumentError: for less than one iteration, or if there is no such parameter.

    Source: `torch.nn.utils.spectral_norm`; Miyato et al. 2018, "Spectral Normalization for GANs".
    """
    weight, dim = _parameter("spectral_norm", module, name), check_spectral(module, n_power_iterations, dim)
    u, v = random_vectors(as_matrix(weight, dim))
    return NamedSpectralNorm(name, n_power_iterations, eps, dim).apply(module, _orig=weight, _u=u, _v=v)


def _remove(function: str, norm_class: type[NamedNorm], module: Module, name: str) -> Module:
    norm = module._derived_tensors.get(name)
    if isinstance(norm, norm_class):
        return norm.remove(module)
    raise ArgumentError(
        f"{function}: {name!r} of {module} has no such norm; a parametrization is removed by "
        "nn.utils.parametrize.remove_parametrizations"
    )


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight of the same value. `torch.nn.utils.remove_weight_norm`."""
    return _remove("remove_weight_norm", NamedWeightNorm, module, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight of the same value. `torch.nn.utils.remove_spectral_norm`."""
    return _remove("remove_spectral_norm", NamedSpectralNorm, module, name)
