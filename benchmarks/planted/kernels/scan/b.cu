constexpr int kColumns = 8192, kThreads = 256, kValues = kColumns / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads) scan(const float* __restrict__ x, float* __restrict__ out) {
    __shared__ float parts[kThreads];
    x += static_cast<size_t>(blockIdx.x) * kColumns + threadIdx.x;
    out += static_cast<size_t>(blockIdx.x) * kColumns + threadIdx.x;
    float values[kValues], carry = 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = x[i * kThreads];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
        float sum = values[i];
        __syncthreads();
        parts[threadIdx.x] = sum;
        __syncthreads();
        for (int far = 1; far < kThreads; far *= 2) {
            const float other = threadIdx.x >= far ? parts[threadIdx.x - far] : 0.0f;
            __syncthreads();
            sum += other;
            parts[threadIdx.x] = sum;
            __syncthreads();
        }
        out[i * kThreads] = carry + sum;
        carry += parts[kThreads - 1];
    }
}
