"""Every thread writes, even without an element.

rejected by: test_guard
message: guard it: `if index < x.shape[0]`
"""


@cuda.jit
def guarded(x, out):
    i = cuda.threadIdx.x
    out[i] = x[i] + 10
