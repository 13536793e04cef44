"""Rounds the number of blocks down.

rejected by: test_reads
message: A block at the edge counts as one
"""


def reads(m, n, k, rows, columns):
    return m * k * (n // columns) + k * n * (m // rows)
