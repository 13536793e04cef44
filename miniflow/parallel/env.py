"""This process among the ranks. As `oneflow.env`."""

from __future__ import annotations

from miniflow.hostcuda.choice import local_rank
from miniflow.parallel import world
from miniflow.parallel.group import ProcessGroup
from miniflow.parallel.placement import placement


def get_rank(group: ProcessGroup | None = None) -> int:
    """The rank of this process, 0 where ranks are simulated; in a group its position there, or -1."""
    return world.rank() if group is None else group.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks: of MPI processes, or of simulated devices; in a group if that is given."""
    return world.size() if group is None else group.size()


def get_local_rank() -> int:
    """The rank among the processes on this machine."""
    rank = local_rank()
    return world.rank() if rank is None else rank


def all_device_placement(type: str) -> placement:
    """The name of `placement.all` in OneFlow 0.6."""
    return placement.all(type)


def get_node_size() -> int:
    """The number of machines."""
    return -(-world.size() // world.ranks_of_a_machine())


def is_multi_client() -> bool:
    """True: each rank runs the program. OneFlow had another mode before 0.5."""
    return True


def init() -> bool:
    """True, and does nothing: the ranks are known when miniflow is imported. `oneflow.env.init` of OneFlow 0.6."""
    return True
