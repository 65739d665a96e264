extern "C" __global__ void __launch_bounds__(256)
products(const float* __restrict__ matrix, const float* __restrict__ x, float* __restrict__ out, int n) {
    const int pair = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        const int row = half ? n - 1 - pair : pair;
        const float* values = matrix + static_cast<size_t>(row) * n;
        float sum = 0.0f;
#pragma unroll 1
        for (int j = lane; j <= row; j += 32) sum += values[j] * x[j];
        for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
        if (lane == 0) out[row] = sum;
    }
}
