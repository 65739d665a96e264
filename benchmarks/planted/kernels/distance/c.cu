constexpr int kDepth = 128, kTile = 64, kEach = 4, kThreads = 256;

extern "C" __global__ void __launch_bounds__(kThreads)
distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
    const int column = blockIdx.x * kTile + threadIdx.x % 16 * kEach;
    const int row = blockIdx.y * kTile + threadIdx.x / 16 * kEach;
    float sum[kEach][kEach] = {};
#pragma unroll 2
    for (int d = 0; d < kDepth; ++d) {
        float p[kEach], q[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) p[i] = a[(row + i) * kDepth + d], q[i] = b[(column + i) * kDepth + d];
#pragma unroll
        for (int i = 0; i < kEach * kEach; ++i) sum[i / kEach][i % kEach] += fabsf(p[i / kEach] - q[i % kEach]);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<float4*>(out + static_cast<size_t>(row + i) * n + column) =
            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
