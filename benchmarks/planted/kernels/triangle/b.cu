extern "C" __global__ void __launch_bounds__(256)
products(const float4* __restrict__ matrix, const float4* __restrict__ x, float* __restrict__ out, int n) {
    const int pair = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        const int row = half ? n - 1 - pair : pair;
        const float4* values = matrix + static_cast<size_t>(row) * (n / 4);
        float sum = 0.0f;
#pragma unroll 4
        for (int i = lane; i < n / 4; i += 32) {
            const float4 v = values[i], w = x[i];
            const int j = i * 4;
            sum += (j <= row ? v.x * w.x : 0.0f) + (j + 1 <= row ? v.y * w.y : 0.0f) +
                   (j + 2 <= row ? v.z * w.z : 0.0f) + (j + 3 <= row ? v.w * w.w : 0.0f);
        }
        for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
        if (lane == 0) out[row] = sum;
    }
}
