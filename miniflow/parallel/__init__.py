"""Global tensors: one tensor whose parts lie on several ranks, used like one tensor.

world        the ranks that there are: simulated in this process, or MPI processes
comm         collectives between them
partition    which part of a tensor each of them holds
boxing       the same tensor in another layout
signature    which layouts an operator computes in
dispatch     the kernel of every operator on global arrays
global_array the array behind a global tensor
placement    which ranks hold a tensor
tensors      what users call
group        some of the ranks, and collectives that go on meanwhile
messages     local tensors from one rank to another
collectives  of local tensors: `flow.comm`
explain      what is sent, and why
check        whether all ranks do the same

How a placement divides a tensor is said by `miniflow.sbp`, at each operator too.
"""

from miniflow.parallel.world import simulate as simulate


def stats() -> dict[str, int]:
    """The bytes that the ranks of this process have sent, by collective."""
    from miniflow.parallel import world

    return dict(world.communicator().counted.bytes)
