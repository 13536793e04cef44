"""Two ranks that call collectives differently: each case is refused on the ranks that notice, and then they go on."""

import os
import sys

import miniflow as flow
from miniflow.errors import PlacementError

rank, comm, ops = flow.env.get_rank(), flow.comm, flow.distributed.ReduceOp
checked = os.environ.get("MINIFLOW_CHECK_RANKS") == "1"
N, F = flow.arange(6, dtype=flow.int32), flow.arange(6, dtype=flow.float32)


def z(n=6):
    return flow.zeros(n)


CASES = {  # name -> what rank 0 does, what rank 1 does, and which of them notice without the check
    "all_reduce dtype": (lambda: comm.all_reduce(F.clone()), lambda: comm.all_reduce(N.clone()), "both"),
    "all_reduce dims": (lambda: comm.all_reduce(F.view(2, 3)), lambda: comm.all_reduce(F.view(3, 2)), "both"),
    "all_reduce op": (lambda: comm.all_reduce(F.clone(), ops.SUM), lambda: comm.all_reduce(F.clone(), ops.MAX), "both"),
    "all_reduce avg": (lambda: comm.all_reduce(F.clone(), ops.AVG), lambda: comm.all_reduce(F.clone()), "both"),
    "all_reduce more": (lambda: comm.all_reduce(F.clone()), lambda: comm.all_reduce(flow.zeros(4)), "both"),
    "all_reduce less": (lambda: comm.all_reduce(F.clone()), lambda: comm.all_reduce(flow.zeros(9)), "both"),
    "all_gather dtype": (
        lambda: comm.all_gather([z(), z()], F),
        lambda: comm.all_gather([N.clone(), N.clone()], N),
        "both",
    ),
    "all_gather size": (
        lambda: comm.all_gather([z(), z()], F),
        lambda: comm.all_gather([F[:2].clone(), F[:2].clone()], F[:2]),
        "both",
    ),
    "into_tensor": (
        lambda: comm.all_gather_into_tensor(flow.zeros(12), F),
        lambda: comm.all_gather_into_tensor(flow.zeros(4), F[:2]),
        "both",
    ),
    "reduce_scatter": (
        lambda: comm.reduce_scatter(z(), [F, F]),
        lambda: comm.reduce_scatter(z(), [F, F], ops.MIN),
        "both",
    ),
    "reduce_scatter_tensor": (
        lambda: comm.reduce_scatter_tensor(flow.zeros(3), F),
        lambda: comm.reduce_scatter_tensor(flow.zeros(3, dtype=flow.int32), N),
        "both",
    ),
    "all_to_all": (
        lambda: comm.all_to_all([z(), z()], [F, F]),
        lambda: comm.all_to_all([N.clone(), N.clone()], [N, N]),
        "both",
    ),
    "all_to_all sizes": (
        lambda: comm.all_to_all([z(), flow.zeros(5)], [F, F]),
        lambda: comm.all_to_all([z(), z()], [F, F]),
        "0",
    ),
    "order": (lambda: comm.all_reduce(F.clone()), lambda: comm.all_gather([z(), z()], F), "both"),
    "broadcast dtype": (lambda: comm.broadcast(F.clone(), 0), lambda: comm.broadcast(N.clone(), 0), "1"),
    "broadcast dims": (lambda: comm.broadcast(F.view(2, 3), 0), lambda: comm.broadcast(F.view(3, 2), 0), "1"),
    "scatter size": (lambda: comm.scatter(z(), [F, F], 0), lambda: comm.scatter(flow.zeros(7), None, 0), "1"),
    "reduce op": (lambda: comm.reduce(F.clone(), 0, ops.SUM), lambda: comm.reduce(F.clone(), 0, ops.MAX), "0"),
    "gather size": (lambda: comm.gather(F, [z(), z()], 0), lambda: comm.gather(F[:2], None, 0), "0"),
    "roots": (lambda: comm.broadcast(F.clone(), 0), lambda: comm.broadcast(F.clone(), 1), ""),
}


def models():
    """Pairs that data parallel training refuses, and words of the message."""
    linear = flow.nn.Linear

    class Named(flow.nn.Module):
        def __init__(self, name):
            super().__init__()
            setattr(self, name, flow.nn.Parameter(flow.zeros(3)))

    yield linear(3, 2), linear(2, 3), "weight: float32[2, 3]", "weight: float32[3, 2]"
    yield linear(3, 2), linear(3, 2).double(), "weight: float32[2, 3]", "weight: float64[2, 3]"
    yield linear(3, 2), linear(3, 2, bias=False), "bias: float32[2]", "nothing more"
    yield Named("a"), Named("b"), "a: float32[3]", "b: float32[3]"
    frozen = linear(3, 2)
    frozen.weight.requires_grad_(False)
    yield linear(3, 2), frozen, "weight: float32[2, 3], requires_grad=True", "requires_grad=False"


def main():
    for name, (first, second, who) in CASES.items():
        error = ""
        try:
            (first, second)[rank]()
        except PlacementError as found:
            error = str(found)
        compared = checked and "sizes" not in name  # of an all_to_all they may differ
        assert bool(error) == (compared or who in ("both", str(rank))), (name, rank, error)
        if error:
            words = (
                "ranks have left the common path: rank 0 runs " if compared else f"rank {rank} of the ranks [0, 1] got"
            )
            assert words in error and "disagree.py" in error, (name, error)
    if not checked:  # what the two roots have sent is found now
        try:
            comm.all_reduce(F.clone())
            raise AssertionError("stray messages are not found")
        except PlacementError:
            pass
    for *both, one, other in models():
        try:
            flow.nn.parallel.DistributedDataParallel(both[rank])
            raise AssertionError(f"not refused: {one}")
        except PlacementError as found:
            assert f"rank 0 runs DistributedDataParallel with {one}" in str(found), found
            assert "rank 1 runs " in str(found) and other in str(found), found
    x = flow.ones(4, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
    try:
        flow.distributed.checkpoint.save({"a": x} if rank else {"a": x, "b": x}, sys.argv[1])
        raise AssertionError("a checkpoint of which a part is missing")
    except PlacementError as found:
        assert "rank 0 runs checkpoint.save with b: float32[4]" in str(found) and "rank 1 runs nothing more" in str(
            found
        )
    print("right")


if __name__ == "__main__":
    main()
