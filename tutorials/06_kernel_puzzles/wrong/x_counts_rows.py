"""Neighbouring threads have neighbouring rows: right, but eight times as many sectors on a GPU.

rejected by: test_blocks_in_two_dims
message: x counts columns, y counts rows
"""


@cuda.jit
def add_bias(x, bias, out):
    columns = out.shape[1]
    number = cuda.blockIdx.x + cuda.gridDim.x * cuda.blockIdx.y
    number = number * TILE * TILE + cuda.threadIdx.x * TILE + cuda.threadIdx.y
    for k in range(number, out.size, cuda.gridDim.x * cuda.gridDim.y * TILE * TILE):
        out[k // columns, k % columns] = x[k // columns, k % columns] + bias[k % columns]
