"""`miniflow.kernels`: the place of the `numba.cuda` kernels, one family a file.

It holds none yet: ops run on the CPU, with the kernels in `miniflow/backends/cpu/`.
"""
