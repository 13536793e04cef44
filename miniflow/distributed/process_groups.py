"""What programs do before and after training on several ranks. MPI has connected them when the script begins."""

from __future__ import annotations

import os
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.parallel import world
from miniflow.parallel.group import ProcessGroup


def is_available() -> bool:
    """Whether there are collectives: always."""
    return True


def is_initialized() -> bool:
    """Whether ranks can talk to each other: always, before `init_process_group` too."""
    return True


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Check that there are as many ranks as a program expects; the launcher has started them.

    Args:
        world_size: how many; -1 for the environment variable WORLD_SIZE.
        rank: of this process; -1 for any.
        backend, init_method, timeout, store, group_name, pg_options, device_id: of PyTorch, without effect: MPI
            connects the ranks, and MINIFLOW_TIMEOUT_SECONDS limits how long they wait.

    Raises:
        ArgumentError: for other numbers.

    Source: `torch.distributed.init_process_group`.
    """
    expected = int(os.environ.get("WORLD_SIZE", world.size())) if world_size == -1 else world_size
    if expected != world.size():
        raise ArgumentError(
            f"init_process_group: got world_size={expected}; expected {world.size()}: start ranks with "
            "python -m miniflow.distributed.launch --nproc_per_node N SCRIPT, where SCRIPT is "
            "-m miniflow.mock_torch train.py if it imports torch"
        )
    if rank not in (-1, world.rank()):
        raise ArgumentError(f"init_process_group: got rank={rank}; expected {world.rank()}, that of this process")


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Nothing: a group holds what MPI needs until the process ends.

    Source: `torch.distributed.destroy_process_group`.
    """


def get_backend(group: ProcessGroup | None = None) -> str:
    """What moves the values: "mpi", as `torch.distributed` calls it, or "simulated"."""
    return "mpi" if len(world.owned()) < world.size() else "simulated"
