"""Collectives between ranks, each of which counts the bytes that it sends.

simulated   all ranks are in this process
mpi         one rank is, the others are MPI processes

Both have the same methods, with MPI's meaning: a group names the ranks that take part, in order; what goes to several
ranks, or comes from several, lies one after the other in a flat array, and `counts` has the elements for each rank.
Arrays come and go in dicts by rank, which hold those of the ranks that this process owns. See
`simulated.SimulatedCommunicator`.
"""
