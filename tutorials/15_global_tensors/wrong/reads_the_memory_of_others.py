"""Takes the blocks of others from the list, and sends something only to be counted.

rejected by: test_reduce_scatter
message: what others have must be sent
"""


def reduce_scatter(blocks, network):
    for step in range(network.ranks - 1):
        network.shift([row[rank - 1 - step] for rank, row in enumerate(blocks)])
    return [sum(row[rank] for row in blocks) for rank in range(network.ranks)]
