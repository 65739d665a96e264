__device__ __forceinline__ float dot(const float* __restrict__ row, const float* __restrict__ x, int count) {
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = lane; i < count / 4; i += 32) {
        const float4 v = reinterpret_cast<const float4*>(row)[i], w = reinterpret_cast<const float4*>(x)[i];
        sum += v.x * w.x + v.y * w.y + v.z * w.z + v.w * w.w;
    }
    if (const int last = count / 4 * 4 + lane; last < count) sum += row[last] * x[last];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256)
products(const float* __restrict__ matrix, const float* __restrict__ x, float* __restrict__ out, int n) {
    const int first = blockIdx.x * 32 + threadIdx.x / 32 * 4;
#pragma unroll 1
    for (int row = first; row < first + 4; ++row) {
        const float sum = dot(matrix + static_cast<size_t>(row) * n, x, row + 1);
        if (threadIdx.x % 32 == 0) out[row] = sum;
    }
}
