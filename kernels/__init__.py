"""The `numba.cuda` kernels, one family a file; `backends/cuda` launches them.

To learn how such kernels come about, read `ladders` first: one result in several kernels, from naive to fast.
"""
