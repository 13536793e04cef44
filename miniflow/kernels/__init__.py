"""The `numba.cuda` kernels, one family a file; `backends/cuda` launches them."""
