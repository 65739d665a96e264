constexpr int kSize = 5, kTile = 32, kRows = 8;

extern "C" __global__ void __launch_bounds__(kTile* kRows)
stencil(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int n) {
    const int row = blockIdx.y * kRows + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x, pitch = n + kSize - 1;
    float w[kSize][kSize], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kSize * kSize; ++i) w[i / kSize][i % kSize] = weight[i];
#pragma unroll
    for (int i = 0; i < kSize; ++i)
#pragma unroll
        for (int j = 0; j < kSize; ++j) sum += w[i][j] * x[static_cast<size_t>(row + i) * pitch + column + j];
    out[static_cast<size_t>(row) * n + column] = sum;
}
