"""With MINIFLOW_CHECK_RANKS=1, MPI ranks compare what they run before they run it.

All ranks of a placement have to call the same operators on global tensors of the same shapes and layouts, and all of a
group the same collectives of local ones: by name, operation, root, shape and dtype. One that does not is found here,
before anything is sent; without the check, it is found by what it sends, or the others wait for it until time runs out.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from miniflow.errors import PlacementError
from miniflow.parallel import boxing, dispatch, group, world
from miniflow.parallel.caller import line_of_caller
from miniflow.parallel.global_array import GlobalArray
from miniflow.sbp import NdSbp, show


def describe(x: Any) -> str:
    """An operand: dtype, shape and layout of a global array."""
    return f"{x.dtype}{list(x.shape)} {show(x.sbp)}" if isinstance(x, GlobalArray) else repr(x)


def compare_operators(op: Any, arrays: tuple, attrs: dict[str, Any]) -> None:
    """Before an operator runs."""
    where = next(x.placement for x in arrays if isinstance(x, GlobalArray))
    named = "".join(f", {key}={value!r}" for key, value in attrs.items())
    compare(f"{op.function_name}({', '.join(map(describe, arrays))}{named})", where.flat)


def compare_boxing(x: GlobalArray, where: Any, sbp: NdSbp) -> None:
    """Before a boxing."""
    compare(f"boxing of {describe(x)} to {show(sbp)} on {where}", sorted({*x.placement.flat, *where.flat}))


def compare(text: str, ranks: Any) -> None:
    """Ask the other ranks what they run, in one line or several.

    Raises:
        PlacementError: if it is something else, naming both, by the first line that differs.
    """
    if world.rank() not in ranks:
        return
    programs = world.communicator().all_gather_object((text, line_of_caller()), tuple(ranks))
    for rank, (other, line) in zip(ranks, programs, strict=True):
        pairs = itertools.zip_longest(programs[0][0].splitlines(), other.splitlines(), fillvalue="nothing more")
        for first_line, other_line in pairs:
            if first_line != other_line:
                raise PlacementError(
                    f"ranks have left the common path: rank {ranks[0]} runs {first_line} at {programs[0][1]}\n"
                    f"rank {rank} runs {other_line} at {line}"
                )


if os.environ.get("MINIFLOW_CHECK_RANKS", "0") != "0" and len(world.owned()) < world.size():
    dispatch.listeners.append(compare_operators)
    boxing.listeners.append(compare_boxing)
    group.listeners.append(compare)
