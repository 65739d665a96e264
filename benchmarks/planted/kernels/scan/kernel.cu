constexpr int kColumns = 8192, kThreads = 256, kWarps = kThreads / 32, kVectors = kColumns / 4 / kThreads;

extern "C" __global__ void __launch_bounds__(kThreads) scan(const float4* __restrict__ x, float4* __restrict__ out) {
    __shared__ float parts[2][kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x += static_cast<size_t>(blockIdx.x) * (kColumns / 4) + threadIdx.x;
    out += static_cast<size_t>(blockIdx.x) * (kColumns / 4) + threadIdx.x;
    float4 values[kVectors];
    float carry = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) values[i] = x[i * kThreads];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        float4 v = values[i];
        v.y += v.x, v.z += v.y, v.w += v.z;
        float sum = v.w;
#pragma unroll
        for (int far = 1; far < 32; far *= 2) {
            const float other = __shfl_up_sync(0xffffffff, sum, far);
            if (lane >= far) sum += other;
        }
        if (lane == 31) parts[i % 2][warp] = sum;
        __syncthreads();
        float before = __shfl_up_sync(0xffffffff, sum, 1);
        before = carry + (lane ? before : 0.0f);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            if (w < warp) before += parts[i % 2][w];
            carry += parts[i % 2][w];
        }
        out[i * kThreads] = make_float4(v.x + before, v.y + before, v.z + before, v.w + before);
    }
}
