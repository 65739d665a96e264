constexpr int kColumns = 2048, kThreads = 256, kValues = kColumns / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads)
rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out) {
    __shared__ float parts[kThreads];
    x += static_cast<size_t>(blockIdx.x) * kColumns;
    out += static_cast<size_t>(blockIdx.x) * kColumns;
    float v[kValues], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) v[i] = x[threadIdx.x + i * kThreads];
#pragma unroll 1
    for (int i = 0; i < kValues; ++i) {
        float value = v[0];
#pragma unroll
        for (int j = 1; j < kValues; ++j) value = i == j ? v[j] : value;
        parts[threadIdx.x] = value * value;
        __syncthreads();
        for (int half = kThreads / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
            __syncthreads();
        }
        sum += parts[0];
        __syncthreads();
    }
    const float scale = rsqrtf(sum / kColumns + 1e-6f);
#pragma unroll
    for (int i = 0; i < kValues; ++i)
        out[threadIdx.x + i * kThreads] = v[i] * scale * weight[threadIdx.x + i * kThreads];
}
