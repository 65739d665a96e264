constexpr int kSize = 5, kTile = 32, kRows = 8, kSide = kTile + kSize - 1;

extern "C" __global__ void __launch_bounds__(kTile* kRows)
stencil(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int n, int size) {
    __shared__ float tile[kSide][kSide];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, pitch = n + size - 1;
    for (int r = threadIdx.y; r < kSide; r += kRows)
        for (int c = threadIdx.x; c < kSide; c += kTile)
            tile[r][c] = x[static_cast<size_t>(row + r) * pitch + column + c];
    __syncthreads();
    for (int y = threadIdx.y; y < kTile; y += kRows) {
        float sum = 0.0f;
        for (int tap = 0; tap < size * size; ++tap)
            sum += weight[tap] * tile[y + tap / size][threadIdx.x + tap % size];
        out[static_cast<size_t>(row + y) * n + column + threadIdx.x] = sum;
    }
}
