constexpr int kDepth = 128, kTile = 16, kThreads = 256;

extern "C" __global__ void __launch_bounds__(kThreads)
distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
    __shared__ float tile_a[kTile][kTile + 1], tile_b[kTile][kTile + 1];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, x = threadIdx.x % kTile, y = threadIdx.x / kTile;
    float sum = 0.0f;
    for (int first = 0; first < kDepth; first += kTile) {
        const float in_a = a[(row + y) * kDepth + first + x], in_b = b[(column + y) * kDepth + first + x];
        __syncthreads();
        tile_a[y][x] = in_a;
        tile_b[y][x] = in_b;
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kTile; ++d) sum += fabsf(tile_a[y][d] - tile_b[x][d]);
    }
    out[static_cast<size_t>(row + y) * n + column + x] = sum;
}
