"""Ranks as processes: how many there are, their collectives, and how to start them.

The names are those of `torch.distributed`, without process groups: every function concerns all ranks. `launch` starts a
script as MPI ranks, and with `checkpoint` all ranks save a state together.
"""

from miniflow.distributed import checkpoint as checkpoint
from miniflow.parallel.collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from miniflow.parallel.env import get_local_rank, get_rank, get_world_size


def is_available() -> bool:
    """Whether there are collectives: always."""
    return True


def is_initialized() -> bool:
    """Whether ranks can talk to each other: always, they need no `init_process_group`."""
    return True
