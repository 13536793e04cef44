"""The CUDA device on which a thread works."""

from __future__ import annotations

import functools
import os
from typing import Any


def current_device() -> int:
    """Its number. In MPI ranks it is at first that of the rank on its machine, modulo the devices there."""
    return own_cuda().get_current_device().id


@functools.cache
def own_cuda() -> Any:
    """`numba.cuda` or what takes its place, after the device of this process was selected."""
    from miniflow.hostcuda import cuda

    names = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")
    rank = int(next((os.environ[name] for name in names if name in os.environ), 0))
    if rank:
        cuda.select_device(rank % len(cuda.gpus))
    return cuda
