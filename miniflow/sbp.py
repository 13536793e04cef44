"""How a dimension of a placement divides a tensor: `split`, `broadcast` or `partial_sum` (SBP).

    split(d)      each rank holds a part of dim d
    broadcast     each rank holds all of it
    partial_sum   each rank holds an array of the whole shape, and the tensor is their sum

A tensor on a placement of n dimensions has n of them. Operators state which combinations they can compute without
communication: see `Op.sbp`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miniflow.errors import ArgumentError, ArgumentTypeError

MAX_DIMS = 6  # as in OneFlow


@dataclass(frozen=True)
class Sbp:
    """One of the three; use `split`, `broadcast` and `partial_sum`.

    Attributes:
        kind: "S", "B" or "P".
        dim: the dim that is split; None for the others.
    """

    kind: str
    dim: int | None = None

    def __call__(self) -> Sbp:
        """Itself: `broadcast()` and `partial_sum()` are spelled so in some programs."""
        if self.kind == "S":
            raise ArgumentTypeError("split(dim) is called already; expected it without a second pair of parentheses")
        return self

    def __str__(self) -> str:
        return self.kind if self.dim is None else f"S({self.dim})"

    def __repr__(self) -> str:
        name = {"S": f"split(dim={self.dim})", "B": "broadcast", "P": "partial_sum"}[self.kind]
        return f"miniflow.sbp.{name}"


@functools.cache
def S(dim: int) -> Sbp:
    """`split(dim)`, unchecked: one object for each dim."""
    return Sbp("S", dim)


sbp = Sbp  # OneFlow's name of the class
B = broadcast = Sbp("B")
P = partial_sum = Sbp("P")
NdSbp = tuple[Sbp, ...]


def split(dim: int | None = None, *, axis: int | None = None) -> Sbp:
    """Each rank holds a part of dim `dim`, of about the same size.

    Args:
        dim: 0 to 5; `axis` is another name for it.

    >>> split(0)
    miniflow.sbp.split(dim=0)

    Raises:
        ArgumentError: for a negative or too large dim.
        ArgumentTypeError: for no dim, or something else than an int.

    Source: `oneflow.sbp.split`.
    """
    dim = axis if dim is None else dim
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ArgumentTypeError(f"split: got dim={dim!r}; expected an int, as in split(0)")
    if dim < 0:
        raise ArgumentError(f"split: Split axis must not be negative, but got {dim}!")
    if dim >= MAX_DIMS:
        raise ArgumentError(
            f"split: Expected split axis to be less than the supported maximum axis ({MAX_DIMS}), but got {dim}!"
        )
    return S(dim)


def as_nd_sbp(sbp: Any, dims: int, name: str) -> NdSbp:
    """A tuple with one entry for each of `dims` placement dimensions, from one value, a tuple or a list.

    Raises:
        ArgumentTypeError: for something that is not an SBP.
        ArgumentError: for another number of entries.
    """
    nd_sbp = tuple(sbp) if isinstance(sbp, tuple | list) else (sbp,)
    for entry in nd_sbp:
        if not isinstance(entry, Sbp):
            raise ArgumentTypeError(
                f"{name}: got sbp={sbp!r}; expected flow.sbp.split(dim), flow.sbp.broadcast or flow.sbp.partial_sum, "
                "or a list of them"
            )
    if len(nd_sbp) != dims:
        raise ArgumentError(
            f"{name}: got {len(nd_sbp)} sbp for a placement of {dims} dimensions; expected one for each dimension"
        )
    return nd_sbp


def show(sbp: NdSbp) -> str:
    """Short, as in tables: `(S(0), B)`; of one entry without parentheses."""
    return str(sbp[0]) if len(sbp) == 1 else f"({', '.join(map(str, sbp))})"


# signatures: what an operator can compute on each rank by itself

# Of its operands, and of its results. A result may be a word, as "maximum": each rank has that of its own part, and an
# all-reduce by that operation, which follows at once, makes it broadcast.
Signature = tuple[tuple[Sbp, ...], tuple[Sbp | str, ...]]


def signatures(
    operands: Sequence[str | None],
    results: Sequence[str],
    *,
    fixed: str = "",
    linear: Sequence[Sequence[int]] = (),
    added: Sequence[int] = (),
    reduced_by: str | None = None,
) -> list[Signature]:
    """The signatures of an operation whose dims have letters, as in `einsum`.

    Each letter makes one signature: the dims with that letter are split, operands without it are broadcast, and results
    without it are partial sums. A letter of results alone says that a rank can compute its part of them.

    Args:
        operands, results: a letter for each dim; None for an operand that is absent, "." for a dim that is never split.
        fixed: letters that are never split, since the operation looks at all of their elements.
        linear: sets of positions of operands that it is linear in: if these are partial sums, so is the result.
        added: positions of operands that are added to the result: where it is a partial sum, they have to be one.
        reduced_by: what makes the result of those of the parts, if that is not their sum; see `Signature`.

    >>> for operands, result in signatures(["mk", "kn"], ["mn"], linear=[[0], [1]]):
    ...     print(show(operands), "->", show(result))
    (S(0), B) -> S(0)
    (S(1), S(0)) -> P
    (B, S(1)) -> S(1)
    (P, B) -> P
    (B, P) -> P
    """
    combinations = []
    letters = dict.fromkeys("".join([x for x in [*operands, *results] if x is not None]))
    for letter in letters:
        if letter in fixed or letter == ".":
            continue
        outs = tuple([S(y.index(letter)) if letter in y else reduced_by or P for y in results])
        added_sbp = P if P in outs else B
        ins = [B if x is None else S(x.index(letter)) if letter in x else added_sbp if i in added else B
               for i, x in enumerate(operands)]  # fmt: skip
        combinations.append((tuple(ins), outs))
    for positions in linear:
        ins = tuple([P if i in positions else B for i in range(len(operands))])
        combinations.append((ins, (P,) * len(results)))
    return combinations


def letters(ndim: int, start: int = 0) -> str:
    """Letters for so many dims."""
    return "abcdefghijklmnopqrstuvwxyz"[start : start + ndim]


def aligned(shape: tuple[int, ...], ndim: int) -> str:
    """Letters for the dims of an operand that is broadcast to `ndim` dims; "." for those of size 1."""
    return "".join([c if n != 1 else "." for c, n in zip(letters(len(shape), ndim - len(shape)), shape, strict=True)])


def letters_but(ndim: int, *fixed: int) -> str:
    """Letters for so many dims, "." for those that are never split."""
    wrapped = {d % ndim for d in fixed} if ndim else set()
    return "".join(["." if d in wrapped else c for d, c in enumerate(letters(ndim))])


def common_letters(dim: int, *shapes: tuple[int, ...]) -> str:
    """Letters for the dims in which all shapes agree; "." for the others and for `dim`."""
    return "".join(
        [c if d != dim and len({*sizes}) == 1 else "."
         for d, (c, *sizes) in enumerate(zip(letters(len(shapes[0])), *shapes, strict=True))]
    )  # fmt: skip


def elementwise(x: Any, linear: bool = True) -> list[Signature]:
    """The signatures of an elementwise operator."""
    return signatures([letters(x.ndim)], [letters(x.ndim)], linear=[[0]] if linear else [])


def each_element(x: Any, *, ranks: int, **attrs: Any) -> list[Signature]:
    """`Op.sbp` of elementwise operators that are linear."""
    return elementwise(x)


def each_element_alone(x: Any, *, ranks: int, **attrs: Any) -> list[Signature]:
    """`Op.sbp` of elementwise operators that are not linear."""
    return elementwise(x, linear=False)


def each_row(x: Any, *, ranks: int, dim: int = -1, **attrs: Any) -> list[Signature]:
    """`Op.sbp` of operators that compute each row along `dim` by itself."""
    row_letters = letters_but(x.ndim, dim)
    return signatures([row_letters], [row_letters])


def reshaped(old: tuple[int, ...], new: tuple[int, ...], ranks: int) -> tuple[list[str], list[str]]:
    """Letters for the dims before and after a reshape in row-major order. Where one dim becomes several, or several
    one, it shares its letter with the outermost of them if `ranks` divides both: then a rank has the same elements."""
    old_letters, new_letters = ["."] * len(old), ["."] * len(new)
    i = j = 0
    while i < len(old) and j < len(new):
        old_dim, new_dim, n, m = i, j, old[i], new[j]
        i, j = i + 1, j + 1
        while n != m and 0 not in (n, m) and (i < len(old) if n < m else j < len(new)):
            if n < m:
                n, i = n * old[i], i + 1
            else:
                m, j = m * new[j], j + 1
        while old_dim < i - 1 and old[old_dim] == 1:
            old_dim += 1
        while new_dim < j - 1 and new[new_dim] == 1:
            new_dim += 1
        divides = old[old_dim] == new[new_dim] or old[old_dim] % ranks == new[new_dim] % ranks == 0
        if n == m and divides and old[old_dim] != 1:
            old_letters[old_dim] = new_letters[new_dim] = letters(1, old_dim)
    return ["".join(old_letters)], ["".join(new_letters)]


def all_by_rows(operands: Sequence[Any], result: Sbp | str) -> list[Signature]:
    """Every operand is split along its first dim; the result is that of their parts, or is made of these by a word."""
    return [((S(0),) * len(operands), (result,))] if all([x.ndim for x in operands]) else []
