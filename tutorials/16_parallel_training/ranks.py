"""Ranks for lesson 16: threads of this process, or MPI processes; both count the bytes that they send.

`run(function, 4)` calls function(comm) on four ranks, each in a thread of its own. `launch(2)` trains on two MPI ranks.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tutorials.implementation import Todo

LIMIT = 5  # seconds that a rank waits for the others
MPIEXEC = shutil.which("mpiexec") or Path(sys.executable).with_name("mpiexec").exists()
MPI = MPIEXEC and importlib.util.find_spec("mpi4py")  # whether `launch` can start MPI ranks


class Ranks:
    """One rank's connection to the others. All ranks have to call the same methods in the same order.

    Attributes:
        rank: its number, from 0.
        size: the number of ranks.
        calls: the names of the collectives so far: "all_reduce", "reduce_scatter", "all_gather".
        bytes: what this rank has sent to others.
    """

    def __init__(self, rank, size, exchange):
        """exchange(rank, blocks) sends block k to rank k, and returns the list of blocks that others sent to `rank`."""
        self.rank, self.size, self.exchange, self.calls, self.bytes = rank, size, exchange, [], 0

    def all_reduce(self, array):
        """The sum of the arrays of all ranks, which have one shape; 2 (n - 1) / n times its bytes are sent."""
        self.calls.append("all_reduce")
        mine = sum(self._all_to_all(np.array_split(array.reshape(-1), self.size)))
        return np.concatenate(self._all_to_all([mine] * self.size)).reshape(array.shape)

    def reduce_scatter(self, array):
        """This rank's part of the sum of flat arrays: `np.array_split(the sum, size)[rank]`."""
        self.calls.append("reduce_scatter")
        return sum(self._all_to_all(np.array_split(array, self.size)))

    def all_gather(self, array):
        """The flat arrays of all ranks one after the other; they may have different sizes."""
        self.calls.append("all_gather")
        return np.concatenate(self._all_to_all([array] * self.size))

    def _all_to_all(self, blocks):
        self.bytes += sum(x.nbytes for receiver, x in enumerate(blocks) if receiver != self.rank)
        try:
            return self.exchange(self.rank, blocks)
        except threading.BrokenBarrierError:
            text = f"rank {self.rank} waited for other ranks in {self.calls[-1]}; expected the same calls on all ranks"
            raise AssertionError(text) from None


def run(function, size):
    """The results of function(comm) on all ranks, and the comms: two lists. An error of a rank ends all."""
    barrier, board, errors = threading.Barrier(size), [None] * size, []

    def exchange(rank, blocks):
        board[rank] = [x.copy() for x in blocks]
        barrier.wait(LIMIT)
        arrived = [row[rank] for row in board]
        barrier.wait(LIMIT)
        return arrived

    def guarded(comm):
        try:
            return function(comm)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    comms = [Ranks(rank, size, exchange) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(guarded, comms))
    if errors:
        raise errors[0]
    return results, comms


def problem(seed, rows=60, inputs=6, hidden=9, classes=3):
    """Parameters of a network, and five batches of (inputs, labels); the last one has fewer rows."""
    rng = np.random.default_rng(seed)
    shapes = [(inputs, hidden), (hidden,), (hidden, classes), (classes,)]
    params = [rng.uniform(-0.7, 0.7, shape) for shape in shapes]
    x, center = rng.standard_normal((rows, inputs)), rng.standard_normal((inputs, classes))
    labels, step = (x @ center).argmax(1), -(-rows // 5) + 1
    return params, [(x[k : k + step], labels[k : k + step]) for k in range(0, rows, step)]


def launch(count, *arguments):
    """Run `main` with these arguments on `count` MPI ranks; returns what rank 0 says: a dict."""
    command = ["-m", "miniflow.distributed.launch", "--nproc_per_node", str(count), "-m", __name__, *arguments]
    clone, pipes = Path(__file__).parents[2], {"capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *command], cwd=clone, timeout=60, **pipes)
    if missing := re.search(r"Todo: (.*)", done.stderr):
        raise Todo(missing[1])
    if done.returncode:
        raise RuntimeError(f"training on {count} MPI ranks failed: {done.stderr[-600:]}")
    return json.loads(done.stdout)


def main(seed="0", path=None):
    """Train on MPI ranks; rank 0 prints the losses and the bytes that it sent, as JSON."""
    from mpi4py import MPI

    from tutorials.implementation import implementation

    world, (params, batches) = MPI.COMM_WORLD, problem(int(seed))
    comm = Ranks(world.Get_rank(), world.Get_size(), lambda rank, blocks: world.alltoall(blocks))
    losses, _ = implementation(16, path).train(comm, params, batches, lr=0.1, momentum=0.9)
    if comm.rank == 0:
        print(json.dumps({"ranks": comm.size, "losses": losses, "bytes": comm.bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
