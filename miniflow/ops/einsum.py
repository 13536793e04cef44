"""Sums of products over named dims: `einsum`, `tensordot` for two tensors, and `kron`, which sums over none.

Two operands at a time are combined by a batch of matrix products, and the result with the next operand:

    x: batch, left, summed  ->  (B, L, K)          y: batch, summed, right  ->  (B, K, R)
    x @ y  ->  (B, L, R)  ->  batch, left, right

Source: Smith and Gray, "opt_einsum", 2018; the order of the operands is that in which they are given.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from math import prod

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.errors import ArgumentError, ArgumentTypeError, ShapeError
from miniflow.ops.views import sizes_of
from miniflow.tensor import Tensor


@composite
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """The sum of products that an equation names: "ij,jk->ik" is a matrix product.

    Args:
        equation: a letter for each dim of each operand, and after "->" those of the result; "..." stands for further
            dims, which are broadcast. A letter that is not in the result is summed over; a letter that comes twice in
            one operand takes its diagonal. Without "->", the result has the letters that come once, in the order of
            the alphabet.
        operands: tensors, one by one or as a list.

    Raises:
        ArgumentError: for an equation that does not fit the operands.
        ShapeError: for sizes of one letter that differ.

    >>> import miniflow as flow
    >>> flow.einsum("ij,j->i", flow.tensor([[1, 2], [3, 4]]), flow.tensor([10, 1])).tolist()
    [12, 34]

    Source: `torch.einsum`.
    """
    tensors = sizes_of(operands)
    terms, result = _parsed(equation, tensors)
    sizes: dict[str, int] = {}
    results = []
    for term, x in zip(terms, tensors, strict=True):
        term, x = _without_repeats(term, x)
        for letter, size in zip(term, x.shape, strict=True):
            if size != sizes.setdefault(letter, size) and 1 not in (size, sizes[letter]):
                raise ShapeError(f"einsum: got sizes {sizes[letter]} and {size} of {letter!r} in {equation!r}")
            sizes[letter] = max(size, sizes[letter])
        results.append((term, x))
    term, x = results[0]
    for i, (other, y) in enumerate(results[1:], 1):
        needed = set(result).union(*[t for t, _ in results[i + 1 :]])
        term, x = _product(term, x, other, y, needed, sizes)
    x = _summed(term, x, set(result))
    term = [letter for letter in term if letter in result]
    return x.permute([term.index(letter) for letter in result]) if term else x


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with capital letters for the dims of the ellipsis."""
    if not isinstance(equation, str):
        raise ArgumentTypeError(
            f"einsum: got an equation of type {type(equation).__name__}; expected a str, as 'ij,jk->ik'"
        )
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ArgumentError(f"einsum: got {len(tensors)} tensors for {equation!r}; expected {len(terms)}")
    spare = [letter for letter in reversed(string.ascii_letters) if letter not in equation]
    widths = [x.ndim - len(term.replace("...", "")) for term, x in zip(terms, tensors, strict=True)]
    for term, width, x in zip(terms, widths, tensors, strict=True):
        if width < 0 or width and "..." not in term or set(term.replace("...", "")) - set(string.ascii_letters):
            raise ArgumentError(f"einsum: got {term!r} for shape {tuple(x.shape)}; expected a letter for each dim")
    dots = "".join(spare[: max(widths)])
    terms = [t.replace("...", dots[len(dots) - w :]) for t, w in zip(terms, widths, strict=True)]
    if not arrow:
        all_letters = "".join(terms)
        return terms, dots + "".join(sorted(c for c in set(all_letters) - set(dots) if all_letters.count(c) == 1))
    result = right.replace("...", dots)
    if len(set(result)) < len(result) or set(result) - set("".join(terms)):
        raise ArgumentError(f"einsum: got the result {right!r}; expected letters of the operands, each once")
    return terms, result


def _without_repeats(term: str, x: Tensor) -> tuple[str, Tensor]:
    """The diagonals of dims that have one letter."""
    for letter in set(term):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"einsum: got shape {tuple(x.shape)} for {term!r}; expected equal sizes of {letter!r}")
            x = x.diagonal(0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, x


def _summed(term: str, x: Tensor, needed: set[str]) -> Tensor:
    """Sum over the dims whose letters are not needed."""
    dims = [d for d, letter in enumerate(term) if letter not in needed]
    return x.sum(dims) if dims else x


def _product(
    term: str, x: Tensor, other: str, y: Tensor, needed: set[str], sizes: dict[str, int]
) -> tuple[str, Tensor]:
    """The product of two operands, with the letters that are needed."""
    x, y = _summed(term, x, needed | set(other)), _summed(other, y, needed | set(term))
    term = "".join(c for c in term if c in needed or c in other)
    other = "".join(c for c in other if c in needed or c in term)
    common = [c for c in term if c in other]
    batch, summed = [c for c in common if c in needed], [c for c in common if c not in needed]
    left, right = [c for c in term if c not in common], [c for c in other if c not in common]
    x, y = (v.expand([n if c not in common else sizes[c] for c, n in zip(t, v.shape, strict=True)])
            for t, v in ((term, x), (other, y)))  # fmt: skip
    b, k = (prod(sizes[c] for c in letters) for letters in (batch, summed))
    rows, columns = (prod(sizes[c] for c in letters) for letters in (left, right))
    x = x.permute([term.index(c) for c in batch + left + summed]).reshape((b, rows, k))
    y = y.permute([other.index(c) for c in batch + summed + right]).reshape((b, k, columns))
    z = x * y if k == 1 else x @ y
    return "".join(batch + left + right), z.reshape([sizes[c] for c in batch + left + right])


@takes_tensors
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sums of products over some dims of `a` and as many of `b`.

    Args:
        a, b: any shapes.
        dims: how many, the last of `a` and the first of `b`; or two lists of dims.

    Raises:
        ArgumentError: for a negative number of dims.
        ShapeError: for dims of different sizes.

    Source: `torch.tensordot`.
    """
    if isinstance(dims, int):
        if dims < 0:
            raise ArgumentError(f"tensordot: got dims={dims}; expected at least 0")
        dims = [range(a.ndim - dims, a.ndim), range(dims)]
    first, second = ([d % x.ndim for d in ([group] if isinstance(group, int) else group)]
                     for group, x in zip(dims, (a, b), strict=True))  # fmt: skip
    letters = string.ascii_letters[: a.ndim + b.ndim]
    term, other = letters[: a.ndim], list(letters[a.ndim :])
    for i, j in zip(first, second, strict=True):
        other[j] = term[i]
    result = [c for c in term if c not in other] + [c for c in other if c not in term]
    return einsum(f"{term},{''.join(other)}->{''.join(result)}", a, b)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of `input` times the whole of `other`. `torch.kron`."""
    ndim = max(input.ndim, other.ndim)
    outer, inner = ([1] * (ndim - x.ndim) + list(x.shape) for x in (input, other))
    x = input.reshape([n for size in outer for n in (size, 1)])
    y = other.reshape([n for size in inner for n in (1, size)])
    return (x * y).reshape([n * m for n, m in zip(outer, inner, strict=True)])
