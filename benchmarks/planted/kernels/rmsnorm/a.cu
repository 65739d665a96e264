constexpr int kColumns = 2048, kThreads = 256, kVectors = kColumns / 4 / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads)
scales(const float4* __restrict__ x, float* __restrict__ scale) {
    __shared__ float parts[kThreads / 32];
    x += static_cast<size_t>(blockIdx.x) * (kColumns / 4);
    float4 v[kVectors];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i] = x[threadIdx.x + i * kThreads];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    for (int far = 16; far > 0; far /= 2) sum += __shfl_xor_sync(0xffffffff, sum, far);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0f;
        for (int w = 0; w < kThreads / 32; ++w) sum += parts[w];
        scale[blockIdx.x] = rsqrtf(sum / kColumns + 1e-6f);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
rms_norm(const float4* __restrict__ x, const float4* __restrict__ weight, const float* __restrict__ scales,
     float4* __restrict__ out) {
    x += static_cast<size_t>(blockIdx.x) * (kColumns / 4);
    out += static_cast<size_t>(blockIdx.x) * (kColumns / 4);
    const float scale = scales[blockIdx.x];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const float4 v = x[threadIdx.x + i * kThreads], w = weight[threadIdx.x + i * kThreads];
        out[threadIdx.x + i * kThreads] = make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
    }
}
