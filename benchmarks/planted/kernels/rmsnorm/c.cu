constexpr int kThreads = 256, kMost = 32;

extern "C" __global__ void __launch_bounds__(kThreads)
rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int columns) {
    __shared__ float parts[kThreads / 32];
    x += static_cast<size_t>(blockIdx.x) * columns;
    out += static_cast<size_t>(blockIdx.x) * columns;
    float v[kMost], sum = 0.0f;
    int count = 0;
    for (int i = threadIdx.x; i < columns; i += kThreads) v[count++] = x[i];
    for (int i = 0; i < count; ++i) sum += v[i] * v[i];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) sum += parts[w];
    const float scale = rsqrtf(sum / columns + 1e-6f);
    for (int i = 0; i < count; ++i) out[threadIdx.x + i * kThreads] = v[i] * scale * weight[threadIdx.x + i * kThreads];
}
