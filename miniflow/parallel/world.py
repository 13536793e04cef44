"""The ranks that there are, and those whose shards this process holds: one under MPI, all where they are simulated."""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any

from miniflow.backends import memory
from miniflow.device import CPU, cuda_device
from miniflow.errors import ArgumentError
from miniflow.hostcuda.choice import local_rank
from miniflow.parallel.comm.simulated import SimulatedCommunicator


def first_communicator() -> Any:
    """MPI's if `mpiexec` started this process together with others, else a world of one rank."""
    sizes = [os.environ.get(name, "1") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")]
    if sizes == ["1", "1"]:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            warnings.warn(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but this process is alone: ranks are started by "
                "python -m miniflow.distributed.launch or mpiexec",
                stacklevel=2,
            )
        return SimulatedCommunicator(1)
    from miniflow.parallel.comm.mpi import MpiCommunicator

    return MpiCommunicator()


_communicator: Any = first_communicator()


def communicator() -> Any:
    """What moves arrays between ranks."""
    return _communicator


def size() -> int:
    """The number of ranks."""
    return _communicator.size


def ranks_of_a_machine() -> int:
    """The number of ranks on each machine: all, where they are simulated."""
    names = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return next((int(os.environ[name]) for name in names if name in os.environ), size())


def owned() -> range:
    """The ranks whose shards this process holds."""
    return _communicator.owned


def rank() -> int:
    """The rank of this process; 0 where all are simulated: the point of view of local tensors."""
    return _communicator.owned[0]


def sendable(array: Any) -> Any:
    """What the communicator takes for an array: in the memory of the CPU, unless MPI reads that of devices."""
    return array if _communicator.cuda_aware else memory.to_host(array)


def receiving(device: Any) -> Any:
    """Where the communicator puts what is for a device: there, or on the CPU."""
    return device if _communicator.cuda_aware else CPU


def device(type: str, rank: int) -> Any:
    """The device on which a rank of this process computes: CUDA devices are shared out in turns on each machine."""
    if type == "cpu":
        return CPU
    from miniflow.hostcuda import cuda

    number = local_rank() if len(owned()) == 1 else None  # simulated ranks are on one machine
    return cuda_device((rank if number is None else number) % len(cuda.gpus))


def simulate(world_size: int) -> None:
    """Let this process be `world_size` ranks: it holds the shards of all of them, and collectives copy in memory.

    Local tensors are those of rank 0: where a local tensor becomes a part of a global one, every rank is taken to hold
    the same values, as ranks that run one script do. Global tensors made before belong to the world before.

    >>> simulate(1)

    Raises:
        ArgumentError: for a number that is not positive, or other than that of the MPI ranks that there are.
    """
    global _communicator
    if not hasattr(world_size, "__index__") or world_size < 1:
        raise ArgumentError(f"simulate: got world_size={world_size!r}; expected a positive int")
    if len(owned()) < size():
        raise ArgumentError(f"simulate: this is one of {size()} MPI ranks; start the script without mpiexec")
    _communicator = SimulatedCommunicator(operator.index(world_size))
