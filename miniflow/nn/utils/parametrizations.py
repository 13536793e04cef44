"""Weight norm, spectral norm and orthogonal matrices, as parametrizations."""

from __future__ import annotations

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from miniflow.nn.modules.module import Module
from miniflow.nn.utils.parametrize import register_parametrization
from miniflow.ops.arithmetic import add, div, mul, neg, sub
from miniflow.ops.creation import eye
from miniflow.ops.diagonal import diagonal, tril
from miniflow.ops.factorization import qr, solve
from miniflow.ops.joining import cat
from miniflow.ops.matmul import matmul
from miniflow.ops.matrix_functions import matrix_exp
from miniflow.ops.normalization import normalize
from miniflow.ops.padding import pad
from miniflow.ops.permute import movedim, transpose
from miniflow.ops.random import randn
from miniflow.ops.reduction import sum
from miniflow.ops.shape import reshape, unsqueeze
from miniflow.ops.statistics import norm
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

    A state with the names of `nn.utils.weight_norm` is read too.

    Source: `torch.nn.utils.parametrizations.weight_norm`; Salimans and Kingma 2016, "Weight Normalization".
    """
    register_parametrization(module, name, WeightNorm(dim))
    return _also_reads(module, f"parametrizations.{name}.", {"original0": f"{name}_g", "original1": f"{name}_v"})


def _also_reads(module: Module, prefix: str, names: dict[str, str]) -> Module:
    """Let `load_state_dict` know an older name of each of these."""
    module._other_names = {**module._other_names, **{prefix + key: old for key, old in names.items()}}
    return module


class SpectralNorm(Module):
    """weight / sigma, its largest singular value, which power iterations estimate in training."""

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, dim: int):
        super().__init__()
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim
        with no_grad():
            matrix = as_matrix(weight.detach(), dim)
            for name, vector in zip(("_u", "_v"), random_vectors(matrix), strict=True):
                self.register_buffer(name, vector)
            self._iterate(matrix, 15)

    @no_grad()
    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u.copy_(normalize(matmul(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(matmul(matrix.T, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            self._iterate(as_matrix(weight.detach(), self.dim), self.n_power_iterations)
        return over_sigma(weight, self.dim, self._u, self._v)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix, with a row for each index of a dim."""
    return reshape(movedim(weight, dim, 0), (weight.shape[dim], -1))


def random_vectors(matrix: Tensor) -> list[Tensor]:
    """Vectors of length 1, to begin the power iterations of a matrix with."""
    return [normalize(randn(size, dtype=matrix.dtype, device=matrix._device), dim=0) for size in matrix.shape]


def over_sigma(weight: Tensor, dim: int, u: Tensor, v: Tensor) -> Tensor:
    """weight / (u W v), W being its matrix."""
    return div(weight, matmul(u.clone(), matmul(as_matrix(weight, dim), v.clone())))


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

    A state with the names of `nn.utils.spectral_norm` is read too.

    Raises:
        ArgumentError: for less than one iteration.

    Source: `torch.nn.utils.parametrizations.spectral_norm`; Miyato et al. 2018, "Spectral Normalization for GANs".
    """
    dim = check_spectral(module, n_power_iterations, dim)
    parametrization = SpectralNorm(getattr(module, name), n_power_iterations, eps, dim)
    register_parametrization(module, name, parametrization.train(module.training))
    last = len(module.parametrizations[name]) - 1
    names = {"original": f"{name}_orig", f"{last}._u": f"{name}_u", f"{last}._v": f"{name}_v"}
    return _also_reads(module, f"parametrizations.{name}.", names)


def check_spectral(module: Module, n_power_iterations: int, dim: int | None) -> int:
    """The dim of a weight that counts the rows of its matrix."""
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: got n_power_iterations={n_power_iterations}; expected at least 1")
    if dim is None:
        return 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0
    return dim


class Orthogonal(Module):
    """base @ Q, where `orthogonal_map` makes the orthogonal matrix Q of X; base is square, and X = -I makes Q = I."""

    def __init__(self, orthogonal_map: str):
        super().__init__()
        self.orthogonal_map = orthogonal_map
        self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        if X.shape[-2] < X.shape[-1]:
            return transpose(self.forward(transpose(X, -2, -1)), -2, -1)
        n, k = X.shape[-2:]
        identity = eye(n, dtype=X.dtype, device=X._device)
        if self.orthogonal_map == "householder":
            V, Q = add(tril(X, -1), identity[:, :k]), identity[:, :k]
            for i in reversed(range(k)):  # Q = H_i Q, where H_i = I - 2 v v^T / |v|^2
                v = V[..., i : i + 1]
                Q = sub(Q, matmul(v, matmul(transpose(v, -2, -1), Q)) * (2 / sum(v * v, (-2, -1), True)))
            Q = mul(Q, unsqueeze(diagonal(X.detach(), 0, -2, -1).trunc(), -2))
        else:
            A = pad(tril(X), (0, n - k))
            A = sub(A, transpose(A, -2, -1))
            Q = matrix_exp(A) if self.orthogonal_map == "matrix_exp" else solve(identity - A / 2, identity + A / 2)
            Q = Q[..., :k]
        return matmul(self.base, Q)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """-I; base becomes an orthogonal matrix whose first columns span those of the weight."""
        tall = weight if weight.shape[-2] >= weight.shape[-1] else transpose(weight, -2, -1)
        n, k = tall.shape[-2:]
        Q, R = qr(cat([tall, randn(*tall.shape[:-1], n - k, dtype=tall.dtype, device=tall._device)], -1))
        self.base = mul(Q, unsqueeze(diagonal(R, 0, -2, -1).sign(), -2))
        return neg(eye(*weight.shape[-2:], dtype=weight.dtype, device=weight._device)).expand(weight.shape).clone()


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a weight orthogonal: its columns are orthonormal, or its rows if it has more columns than rows.

    At first it is the Q of the QR decomposition of the weight.

    Args:
        module: the layer.
        name: of the parameter, (..., rows, columns).
        orthogonal_map: from free numbers to rotations: "matrix_exp", which is the default of square matrices and
            is not for nn.Graph; "cayley"; or "householder".
        use_trivialization: must be True: rotations of the first value are learned, which is the buffer `base`.

    Raises:
        ArgumentError: for another map, or use_trivialization=False.
        ShapeError: for fewer than two dims.

    Source: `torch.nn.utils.parametrizations.orthogonal`; Lezcano-Casado 2019, "Trivializations for Gradient-Based
    Optimization on Manifolds".
    """
    shape = tuple(getattr(module, name).shape)
    if len(shape) < 2:
        raise ShapeError(f"orthogonal: got {name} of shape {shape}; expected two dims or more")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if shape[-2] == shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder") or not use_trivialization:
        raise ArgumentError(
            f"orthogonal: got orthogonal_map={orthogonal_map!r}, use_trivialization={use_trivialization}; "
            "expected 'matrix_exp', 'cayley' or 'householder', and True"
        )
    return register_parametrization(module, name, Orthogonal(orthogonal_map), unsafe=True)
