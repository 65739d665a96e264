constexpr int kColumns = 8192, kThreads = 256, kWarps = kThreads / 32, kValues = kColumns / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads) scan(const float* __restrict__ x, float* __restrict__ out) {
    __shared__ float parts[kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += static_cast<size_t>(blockIdx.x) * kColumns + threadIdx.x * kValues;
    out += static_cast<size_t>(blockIdx.x) * kColumns + threadIdx.x * kValues;
    float values[kValues], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        sum += x[i];
        values[i] = sum;
    }
#pragma unroll
    for (int far = 1; far < 32; far *= 2) {
        const float other = __shfl_up_sync(0xffffffff, sum, far);
        if (lane >= far) sum += other;
    }
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    float before = __shfl_up_sync(0xffffffff, sum, 1);
    if (lane == 0) before = 0.0f;
    for (int w = 0; w < warp; ++w) before += parts[w];
#pragma unroll
    for (int i = 0; i < kValues; ++i) out[i] = values[i] + before;
}
