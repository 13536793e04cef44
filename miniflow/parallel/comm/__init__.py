"""Collectives between ranks, each of which counts the bytes that it sends.

simulated   all ranks are in this process
mpi         one rank is, the others are MPI processes

Both have the same methods: an all-reduce, and an exchange of messages, of which all other collectives are made. A group
names the ranks that take part, in order. Arrays come and go in dicts by rank, or by sender and receiver, which hold
those of the ranks that this process owns. See `simulated.SimulatedCommunicator`.
"""
