constexpr int kColumns = 2048, kThreads = 64;

extern "C" __global__ void __launch_bounds__(kThreads)
rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out) {
    const size_t row = blockIdx.x * kThreads + threadIdx.x;
    x += row * kColumns;
    out += row * kColumns;
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < kColumns; ++i) sum += x[i] * x[i];
    const float scale = rsqrtf(sum / kColumns + 1e-6f);
#pragma unroll 8
    for (int i = 0; i < kColumns; ++i) out[i] = x[i] * scale * weight[i];
}
