"""Shuffles down: only lane 0 has the sum.

rejected by: test_butterfly
message: warp_sum of 4 warps, element [warp, lane]: expected
"""


@cuda.jit(device=True)
def warp_sum(value):
    lane = cuda.threadIdx.x
    for k in range(5):
        other = cuda.shfl_sync(EVERYONE, value, (lane + (16 >> k)) % 32)
        if lane < 16 >> k:
            value += other
    return value
