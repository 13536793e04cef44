"""Without the second barrier a fast thread overwrites keys that a slow one still needs.

rejected by: test_flash
message: race
"""


@cuda.jit
def flash(q, k, v, scale, causal, o, lse):
    k_tile = cuda.shared.array((TILE, WIDTH), np.float32)
    v_tile = cuda.shared.array((TILE, WIDTH), np.float32)
    query = cuda.local.array(WIDTH, np.float32)
    summed = cuda.local.array(WIDTH, np.float32)
    head, first, length = cuda.blockIdx.y, cuda.blockIdx.x * TILE, q.shape[1]
    row = first + cuda.threadIdx.x
    for e in range(WIDTH):
        query[e] = q[head, row, e] * scale if row < length else np.float32(0)
        summed[e] = 0
    total, largest = np.float32(0), np.float32(-math.inf)
    end = min(length, first + TILE) if causal else length
    for start in range(0, end, TILE):
        copy(k[head], start, end, k_tile)
        copy(v[head], start, end, v_tile)
        cuda.syncthreads()
        for j in range(min(TILE, end - start)):
            if not causal or start + j <= row:
                score = np.float32(0)
                for e in range(WIDTH):
                    score += query[e] * k_tile[j, e]
                new = max(largest, score)
                old, weight = math.exp(largest - new), math.exp(score - new)
                largest, total = new, total * old + weight
                for e in range(WIDTH):
                    summed[e] = summed[e] * old + weight * v_tile[j, e]
    if row < length:
        for e in range(WIDTH):
            o[head, row, e] = summed[e] / total
        lse[head, row] = largest + math.log(total)
