constexpr int kSize = 5, kTile = 32, kRows = 8, kEach = kTile / kRows, kSide = kTile + kSize - 1, kPitch = 40;

extern "C" __global__ void __launch_bounds__(kTile* kRows)
stencil(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int n) {
    __shared__ float tile[kSide][kPitch];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, pitch = n + kSize - 1;
    for (int r = threadIdx.y; r < kSide; r += kRows)
        for (int c = threadIdx.x; c < kSide; c += kTile)
            tile[c][r] = x[static_cast<size_t>(row + r) * pitch + column + c];
    float w[kSize][kSize], sum[kEach] = {};
#pragma unroll
    for (int i = 0; i < kSize * kSize; ++i) w[i / kSize][i % kSize] = weight[i];
    __syncthreads();
    const int first = threadIdx.y * kEach;
#pragma unroll
    for (int r = 0; r < kEach + kSize - 1; ++r) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
            const float value = tile[threadIdx.x + j][first + r];
#pragma unroll
            for (int i = 0; i < kSize; ++i)
                if (r - i >= 0 && r - i < kEach) sum[r - i] += w[i][j] * value;
        }
    }
#pragma unroll
    for (int y = 0; y < kEach; ++y) out[static_cast<size_t>(row + first + y) * n + column + threadIdx.x] = sum[y];
}
