"""All threads add to one element of global memory at the same time.

rejected by: test_dot
message: race:
"""


@cuda.jit
def dot(a, b, out):
    i = cuda.threadIdx.x
    if i == 0:
        out[0] = 0
    cuda.syncthreads()
    if i < a.size:
        out[0] += a[i] * b[i]
