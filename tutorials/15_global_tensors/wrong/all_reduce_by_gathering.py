"""Gathers all arrays and adds them up on every rank: right, but n / 2 times the bytes.

rejected by: test_all_reduce
message: cut each array into n blocks
"""


def all_reduce(shards, network):
    return [sum(row) for row in all_gather(shards, network)]
