constexpr int kChunk = 4096, kThreads = 64;

extern "C" __global__ void __launch_bounds__(kThreads)
products(const float* __restrict__ matrix, const float4* __restrict__ x, float* __restrict__ out, int n) {
    __shared__ float4 kept[kChunk / 4];
    const int pair = blockIdx.x * 2 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rows[2] = {pair, n - 1 - pair};
    float sums[2] = {};
    for (int first = 0; first < n; first += kChunk) {
        __syncthreads();
        for (int i = threadIdx.x; i < kChunk / 4; i += kThreads) kept[i] = x[first / 4 + i];
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float* values = matrix + static_cast<size_t>(rows[r]) * n + first;
            const int count = min(kChunk, rows[r] + 1 - first);
#pragma unroll 4
            for (int i = lane; i < count / 4; i += 32) {
                const float4 v = reinterpret_cast<const float4*>(values)[i], w = kept[i];
                sums[r] += v.x * w.x + v.y * w.y + v.z * w.z + v.w * w.w;
            }
            if (const int last = count / 4 * 4 + lane; count > 0 && last < count)
                sums[r] += values[last] * reinterpret_cast<const float*>(kept)[last];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        for (int far = 16; far > 0; far /= 2) sums[r] += __shfl_xor_sync(0xffffffff, sums[r], far);
        if (lane == 0) out[rows[r]] = sums[r];
    }
}
