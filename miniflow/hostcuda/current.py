"""The CUDA device on which a thread works."""

from __future__ import annotations

import functools
import os
from typing import Any


def local_rank() -> int | None:
    """The rank among those of the MPI world that run on this machine; None without MPI."""
    names = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), None)


def current_device() -> int:
    """The number of the device. In an MPI rank, that of the rank on its machine is selected first, in turns."""
    return own_cuda().get_current_device().id


@functools.cache
def own_cuda() -> Any:
    """`numba.cuda` or what takes its place, after the device of this process was selected."""
    from miniflow.hostcuda import cuda

    rank = local_rank()
    if rank:
        cuda.select_device(rank % len(cuda.gpus))
    return cuda
