"""Kernels as numba's documentation, CUDA by Example and Programming Massively Parallel Processors write them."""

import numpy as np
from expectations import Table, blank
from numba import float32, int32

from miniflow.hostcuda import cuda

CASES = Table()
TPB = 16
draw = np.random.default_rng(4)
X = draw.integers(0, 100, 1000).astype(np.float32)
Y = draw.integers(0, 100, 1000).astype(np.float32)
A = draw.integers(-5, 6, (37, 29)).astype(np.float32)
B = draw.integers(-5, 6, (29, 43)).astype(np.float32)
BYTES = draw.integers(0, 256, 1000).astype(np.uint8)


@CASES.launch(8, 128, X, gives=X + 1)
def increment_by_one(an_array):
    pos = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    if pos < an_array.size:
        an_array[pos] += 1


@CASES.launch((3, 3), (16, 16), A.copy(), gives=A + 1)
def increment_a_2d_array(an_array):
    x, y = cuda.grid(2)
    if x < an_array.shape[0] and y < an_array.shape[1]:
        an_array[x, y] += 1


@CASES.launch((3, 3), (16, 16), A, B, blank((37, 43), np.float32), gives=A @ B)
def matmul(A, B, C):
    i, j = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        tmp = 0.0
        for k in range(A.shape[1]):
            tmp += A[i, k] * B[k, j]
        C[i, j] = tmp


@CASES.launch((3, 3), (TPB, TPB), A, B, blank((37, 43), np.float32), gives=A @ B)
def fast_matmul(A, B, C):
    """numba's documentation, with its guards for any shape."""
    sA = cuda.shared.array(shape=(TPB, TPB), dtype=float32)
    sB = cuda.shared.array(shape=(TPB, TPB), dtype=float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    bpg = cuda.gridDim.x
    tmp = float32(0.0)
    for i in range(bpg):
        sA[ty, tx] = 0
        sB[ty, tx] = 0
        if y < A.shape[0] and (tx + i * TPB) < A.shape[1]:
            sA[ty, tx] = A[y, tx + i * TPB]
        if x < B.shape[1] and (ty + i * TPB) < B.shape[0]:
            sB[ty, tx] = B[ty + i * TPB, x]
        cuda.syncthreads()
        for j in range(TPB):
            tmp += sA[ty, j] * sB[j, tx]
        cuda.syncthreads()
    if y < C.shape[0] and x < C.shape[1]:
        C[y, x] = tmp


@CASES.launch(4, 256, X, Y, blank(1000, np.float32), gives=X + Y)
def grid_stride_add(a, b, c):
    start = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(start, a.shape[0], stride):
        c[i] = a[i] + b[i]


@CASES.launch(4, 100, X, Y, blank(1000, np.float32), gives=X + Y)
def add_by_example(a, b, c):
    tid = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    while tid < a.size:
        c[tid] = a[tid] + b[tid]
        tid += cuda.blockDim.x * cuda.gridDim.x


DOTS = [sum(float(X[i]) * float(Y[i]) for i in range(1000) if i // 256 % 2 == b) for b in range(2)]


@CASES.launch(2, 256, X, Y, blank(2, np.float32), gives=DOTS)
def dot_by_example(a, b, c):
    cache = cuda.shared.array(256, float32)
    tid = cuda.grid(1)
    cacheIndex = cuda.threadIdx.x
    temp = float32(0)
    while tid < a.size:
        temp += a[tid] * b[tid]
        tid += cuda.gridsize(1)
    cache[cacheIndex] = temp
    cuda.syncthreads()
    i = cuda.blockDim.x // 2
    while i != 0:
        if cacheIndex < i:
            cache[cacheIndex] += cache[cacheIndex + i]
        cuda.syncthreads()
        i //= 2
    if cacheIndex == 0:
        c[cuda.blockIdx.x] = cache[0]


@CASES.launch(4, 256, BYTES, np.zeros(256, np.int32), gives=np.bincount(BYTES, minlength=256))
def histogram_by_example(buffer, histo):
    temp = cuda.shared.array(256, int32)
    t = cuda.threadIdx.x
    temp[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    while i < buffer.size:
        cuda.atomic.add(temp, buffer[i], 1)
        i += cuda.gridsize(1)
    cuda.syncthreads()
    cuda.atomic.add(histo, t, temp[t])


@cuda.jit(device=True)
def mandel(x, y, max_iters):
    """numba's example: the number of steps until the point escapes."""
    c = complex(x, y)
    z = 0.0j
    for i in range(max_iters):
        z = z * z + c
        if (z.real * z.real + z.imag * z.imag) >= 4:
            return i
    return max_iters


def escape(x, y, most=20):
    c, z = complex(x, y), 0j
    for i in range(most):
        z = z * z + c
        if z.real**2 + z.imag**2 >= 4:
            return i
    return most


@CASES.launch((2, 2), (8, 8), -2.0, 1.0, -1.0, 1.0, blank((13, 15), np.uint8), 20, gives={4: [
    [escape(-2 + x * 0.2, -1 + y * (2 / 13)) for x in range(15)] for y in range(13)
]}, reference=False)  # fmt: skip
def mandelbrot(min_x, max_x, min_y, max_y, image, iters):
    height = image.shape[0]
    width = image.shape[1]
    pixel_size_x = (max_x - min_x) / width
    pixel_size_y = (max_y - min_y) / height
    startX, startY = cuda.grid(2)
    gridX = cuda.gridDim.x * cuda.blockDim.x
    gridY = cuda.gridDim.y * cuda.blockDim.y
    for x in range(startX, width, gridX):
        real = min_x + x * pixel_size_x
        for y in range(startY, height, gridY):
            imag = min_y + y * pixel_size_y
            image[y, x] = mandel(real, imag, iters)


HEAT = np.zeros(64, np.float32)
HEAT[31] = 64


def heat_steps(u, steps):
    for _ in range(steps):
        u = u + np.float32(0.25) * (np.roll(u, 1) - 2 * u + np.roll(u, -1)) * (np.arange(64) % 63 != 0)
    return u


@CASES.launch(1, 64, HEAT, np.zeros(64, np.float32), 4, 0.25, gives={0: heat_steps(HEAT, 4)})
def solve_heat_equation(buf_0, buf_1, timesteps, k):
    """numba's example of cooperative groups; the buffers change places."""
    i = cuda.grid(1)
    if i >= len(buf_0):
        return
    grid = cuda.cg.this_grid()
    for step in range(timesteps):
        if (step % 2) == 0:
            data = buf_0
            next_data = buf_1
        else:
            data = buf_1
            next_data = buf_0
        curr_temp = data[i]
        if i == 0 or i == len(data) - 1:
            next_temp = curr_temp
        else:
            next_temp = curr_temp + k * (data[i - 1] - 2 * curr_temp + data[i + 1])
        next_data[i] = next_temp
        grid.sync()


ROWS = np.cumsum(np.ones((32, 32), np.int64), 0) - 1


def rows_by_waves():
    m = np.zeros((8, 12), np.int64)
    for row in range(1, 8):
        m[row] = m[row - 1, ::-1] + 1
    return m


@CASES.launch(3, 4, np.zeros((8, 12), np.int64), gives=rows_by_waves())
def sequential_rows(M):
    col = cuda.grid(1)
    g = cuda.cg.this_grid()
    rows = M.shape[0]
    cols = M.shape[1]
    for row in range(1, rows):
        opposite = cols - col - 1
        M[row, col] = M[row - 1, opposite] + 1
        g.sync()


@CASES.launch(1, 1024, X[:1000].copy(), 1000, gives={0: np.concatenate([[X.sum()], X[1:]])}, reference=False)
def array_sum(data, size):
    """numba's documentation: a reduction in shared memory."""
    tid = cuda.threadIdx.x
    i = cuda.grid(1)
    shr = cuda.shared.array(1024, int32)
    shr[tid] = data[i] if i < size else 0
    cuda.syncthreads()
    s = 1
    while s < cuda.blockDim.x:
        if tid % (2 * s) == 0:
            shr[tid] += shr[tid + s]
        s *= 2
        cuda.syncthreads()
    if tid == 0:
        data[tid] = shr[tid]


@CASES.launch((3, 2), (16, 16), A, blank((29, 37), np.float32), gives=A.T)
def transpose(a, out):
    tile = cuda.shared.array((16, 17), float32)
    x = cuda.blockIdx.y * 16 + cuda.threadIdx.x
    y = cuda.blockIdx.x * 16 + cuda.threadIdx.y
    if y < a.shape[0] and x < a.shape[1]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[y, x]
    cuda.syncthreads()
    x = cuda.blockIdx.x * 16 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 16 + cuda.threadIdx.y
    if y < a.shape[1] and x < a.shape[0]:
        out[y, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


MASK = np.array([1, 2, 3, 2, 1], np.float32)


@CASES.launch(8, 128, X, MASK, blank(1000, np.float32), gives=np.convolve(X, MASK, "same"))
def convolution_1d(N, M, P):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i >= P.size:
        return
    value = float32(0)
    start = i - M.size // 2
    for j in range(M.size):
        if start + j >= 0 and start + j < N.size:
            value += N[start + j] * M[j]
    P[i] = value


@CASES.launch(8, 128, X, blank(1000, np.float32), gives=np.convolve(X, MASK, "same"))
def convolution_with_a_constant_mask_and_halo(N, P):
    tile = cuda.shared.array(132, float32)
    mask = cuda.const.array_like(MASK)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t + 2] = N[i] if i < N.size else 0
    if t < 2:
        tile[t] = N[i - 2] if i >= 2 else 0
        right = i + cuda.blockDim.x
        tile[t + 130] = N[right] if right < N.size else 0
    cuda.syncthreads()
    if i < P.size:
        value = float32(0)
        for j in range(5):
            value += tile[t + j] * mask[j]
        P[i] = value


@CASES.launch(1, 128, X[:128].copy(), gives=np.cumsum(X[:128]))
def kogge_stone_scan(x):
    section = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    section[t] = x[t]
    stride = 1
    while stride < cuda.blockDim.x:
        cuda.syncthreads()
        value = section[t]
        if t >= stride:
            value += section[t - stride]
        cuda.syncthreads()
        section[t] = value
        stride *= 2
    x[t] = section[t]


@CASES.launch(1, 64, X[:128].copy(), gives=np.cumsum(X[:128]))
def brent_kung_scan(x):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    s[t + 64] = x[t + 64]
    stride = 1
    while stride <= 64:
        cuda.syncthreads()
        index = (t + 1) * 2 * stride - 1
        if index < 128:
            s[index] += s[index - stride]
        stride *= 2
    stride = 32
    while stride > 0:
        cuda.syncthreads()
        index = (t + 1) * stride * 2 - 1
        if index + stride < 128:
            s[index + stride] += s[index]
        stride //= 2
    cuda.syncthreads()
    x[t] = s[t]
    x[t + 64] = s[t + 64]


test_compiled, test_checked, test_reference = CASES.tests(default=3)
