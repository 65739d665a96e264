constexpr int kSize = 5, kTile = 32, kRows = 8, kEach = kTile / kRows, kSide = kTile + kSize - 1;

extern "C" __global__ void __launch_bounds__(kTile* kRows)
stencil(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int n) {
    __shared__ float tile[kSide][kSide];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, pitch = n + kSize - 1;
    for (int c = threadIdx.y; c < kSide; c += kRows)
        for (int r = threadIdx.x; r < kSide; r += kTile)
            tile[c][r] = x[static_cast<size_t>(row + r) * pitch + column + c];
    float w[kSize][kSize], sum[kEach] = {};
#pragma unroll
    for (int i = 0; i < kSize * kSize; ++i) w[i / kSize][i % kSize] = weight[i];
    __syncthreads();
    const int first = threadIdx.y * kEach;
#pragma unroll
    for (int c = 0; c < kEach + kSize - 1; ++c) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
            const float value = tile[first + c][threadIdx.x + i];
#pragma unroll
            for (int j = 0; j < kSize; ++j)
                if (c - j >= 0 && c - j < kEach) sum[c - j] += w[i][j] * value;
        }
    }
#pragma unroll
    for (int y = 0; y < kEach; ++y) out[static_cast<size_t>(row + threadIdx.x) * n + column + first + y] = sum[y];
}
