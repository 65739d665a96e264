constexpr int kColumns = 8192, kThreads = 256, kVectors = kColumns / 4 / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads) scan(const float4* __restrict__ x, float4* __restrict__ out) {
    __shared__ float parts[kThreads], carry;
    x += static_cast<size_t>(blockIdx.x) * (kColumns / 4) + threadIdx.x;
    out += static_cast<size_t>(blockIdx.x) * (kColumns / 4) + threadIdx.x;
    float4 values[kVectors];
    if (threadIdx.x == 0) carry = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) values[i] = x[i * kThreads];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        float4 v = values[i];
        v.y += v.x, v.z += v.y, v.w += v.z;
        __syncthreads();
        parts[threadIdx.x] = v.w;
        __syncthreads();
        if (threadIdx.x == 0) {
            float sum = carry;
            for (int t = 0; t < kThreads; ++t) {
                const float value = parts[t];
                parts[t] = sum;
                sum += value;
            }
            carry = sum;
        }
        __syncthreads();
        const float before = parts[threadIdx.x];
        out[i * kThreads] = make_float4(v.x + before, v.y + before, v.z + before, v.w + before);
    }
}
