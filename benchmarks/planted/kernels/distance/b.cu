constexpr int kDepth = 128, kTile = 64, kChunk = 16, kEach = 4, kThreads = 256;

extern "C" __global__ void __launch_bounds__(kThreads)
distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
    __shared__ __align__(16) float tile_a[kTile][kChunk], tile_b[kTile][kChunk];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
    const int x = threadIdx.x % 16 * kEach, y = threadIdx.x / 16 * kEach;
    float sum[kEach][kEach] = {};
    for (int first = 0; first < kDepth; first += kChunk) {
        const int from = threadIdx.x / 4, k = threadIdx.x % 4 * 4;
        const float4 in_a = *reinterpret_cast<const float4*>(a + (row + from) * kDepth + first + k);
        const float4 in_b = *reinterpret_cast<const float4*>(b + (column + from) * kDepth + first + k);
        __syncthreads();
        *reinterpret_cast<float4*>(&tile_a[from][k]) = in_a;
        *reinterpret_cast<float4*>(&tile_b[from][k]) = in_b;
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kChunk; ++d) {
            float p[kEach], q[kEach];
#pragma unroll
            for (int i = 0; i < kEach; ++i) p[i] = tile_a[y + i][d], q[i] = tile_b[x + i][d];
#pragma unroll
            for (int i = 0; i < kEach * kEach; ++i) sum[i / kEach][i % kEach] += fabsf(p[i / kEach] - q[i % kEach]);
        }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<float4*>(out + static_cast<size_t>(row + y + i) * n + column + x) =
            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
