"""The last rank gets what is left over.

rejected by: test_parts
message: the first ranks have one more
"""


def parts(size, ranks):
    each = size // ranks
    return [(rank * each, size if rank == ranks - 1 else (rank + 1) * each) for rank in range(ranks)]
