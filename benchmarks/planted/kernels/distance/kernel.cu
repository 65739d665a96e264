constexpr int kDepth = 128, kTile = 64, kChunk = 16, kEach = 4, kThreads = 256, kPitch = kTile + 4;

extern "C" __global__ void __launch_bounds__(kThreads)
distances(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
    __shared__ __align__(16) float tile_a[kChunk][kPitch], tile_b[kChunk][kPitch];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
    const int x = threadIdx.x % 16 * kEach, y = threadIdx.x / 16 * kEach;
    float sum[kEach][kEach] = {};
    for (int first = 0; first < kDepth; first += kChunk) {
        const int from = threadIdx.x / 4, k = threadIdx.x % 4 * 4;
        const float4 in_a = *reinterpret_cast<const float4*>(a + (row + from) * kDepth + first + k);
        const float4 in_b = *reinterpret_cast<const float4*>(b + (column + from) * kDepth + first + k);
        __syncthreads();
        tile_a[k][from] = in_a.x, tile_a[k + 1][from] = in_a.y, tile_a[k + 2][from] = in_a.z, tile_a[k + 3][from] = in_a.w;
        tile_b[k][from] = in_b.x, tile_b[k + 1][from] = in_b.y, tile_b[k + 2][from] = in_b.z, tile_b[k + 3][from] = in_b.w;
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kChunk; ++d) {
            const float4 left = *reinterpret_cast<const float4*>(&tile_a[d][y]);
            const float4 right = *reinterpret_cast<const float4*>(&tile_b[d][x]);
            const float p[kEach] = {left.x, left.y, left.z, left.w}, q[kEach] = {right.x, right.y, right.z, right.w};
#pragma unroll
            for (int i = 0; i < kEach * kEach; ++i) sum[i / kEach][i % kEach] += fabsf(p[i / kEach] - q[i % kEach]);
        }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<float4*>(out + static_cast<size_t>(row + y + i) * n + column + x) =
            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
