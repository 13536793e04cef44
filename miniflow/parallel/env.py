"""This process among the ranks. As `oneflow.env`."""

from __future__ import annotations

import os

from miniflow.hostcuda.choice import local_rank
from miniflow.parallel import world
from miniflow.parallel.placement import placement


def get_rank() -> int:
    """The rank of this process; 0 where ranks are simulated."""
    return world.rank()


def get_world_size() -> int:
    """The number of ranks: of MPI processes, or of simulated devices."""
    return world.size()


def get_local_rank() -> int:
    """The rank among the processes on this machine."""
    rank = local_rank()
    return world.rank() if rank is None else rank


def all_device_placement(type: str) -> placement:
    """The name of `placement.all` in OneFlow 0.6."""
    return placement.all(type)


def get_node_size() -> int:
    """The number of machines."""
    names = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
    local = next((int(os.environ[name]) for name in names if name in os.environ), world.size())
    return -(-world.size() // local)
