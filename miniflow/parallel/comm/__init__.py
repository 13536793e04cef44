"""Collectives between ranks, each of which counts the bytes that it moves.

simulated   all ranks are in this process
mpi         one rank is, the others are MPI processes

Both have the same methods. Arrays come and go in dicts by rank, which hold those of the ranks that this process owns;
`group` names the ranks that take part, in order. See `simulated.SimulatedCommunicator`.
"""
