"""Ranks as processes: how many there are, their collectives, and how to start them.

The names are those of `torch.distributed`. `launch` starts a script as MPI ranks, which can talk to each other from the
beginning: `init_process_group` only checks what it is told. With `checkpoint` all ranks save a state together.
"""

from __future__ import annotations

from miniflow.distributed import checkpoint as checkpoint
from miniflow.distributed.objects import all_gather_object, broadcast_object_list, gather_object
from miniflow.distributed.process_groups import (
    destroy_process_group,
    get_backend,
    init_process_group,
    is_available,
    is_initialized,
)
from miniflow.parallel.collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    irecv,
    isend,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from miniflow.parallel.env import get_local_rank, get_rank, get_world_size
from miniflow.parallel.group import ProcessGroup, Work, group, new_group
from miniflow.parallel.messages import receive as recv
