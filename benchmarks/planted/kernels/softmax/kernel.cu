// Softmax of rows of 8192 values; a block of 256 threads a row, 32 values a thread.
#define kInfinity __int_as_float(0x7f800000)
constexpr int kColumns = 8192, kThreads = 256;
[[maybe_unused]] constexpr int kVectors = kColumns / 4 / kThreads;

template <bool kMaximum>
__device__ __forceinline__ float block_all(float value, float* parts) {
    for (int far = 16; far > 0; far /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, value, far);
        value = kMaximum ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int w = 1; w < kThreads / 32; ++w) value = kMaximum ? fmaxf(value, parts[w]) : value + parts[w];
    return value;
}

#if SPILL
extern "C" __global__ void __launch_bounds__(kThreads, 8)
#else
extern "C" __global__ void __launch_bounds__(kThreads)
#endif
softmax(const float4* __restrict__ x, float4* __restrict__ out) {
    __shared__ float parts[kThreads / 32];
    x += static_cast<size_t>(blockIdx.x) * (kColumns / 4);
    out += static_cast<size_t>(blockIdx.x) * (kColumns / 4);
    float largest = -kInfinity, sum = 0.0f;
#if REDUNDANT
    for (int i = threadIdx.x; i < kColumns / 4; i += kThreads) {
        const float4 v = __ldcg(x + i);
        largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    largest = block_all<true>(largest, parts);
    for (int i = threadIdx.x; i < kColumns / 4; i += kThreads) {
        const float4 v = __ldcg(x + i);  // fault: redundant
        sum += __expf(v.x - largest) + __expf(v.y - largest) + __expf(v.z - largest) + __expf(v.w - largest);
    }
    sum = 1.0f / block_all<false>(sum, parts);
    for (int i = threadIdx.x; i < kColumns / 4; i += kThreads) {
        const float4 v = __ldcg(x + i);  // fault: redundant
        out[i] = make_float4(__expf(v.x - largest) * sum, __expf(v.y - largest) * sum,
                             __expf(v.z - largest) * sum, __expf(v.w - largest) * sum);
    }
#else
    float4 v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i] = x[threadIdx.x + i * kThreads];  // fault: spill
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
        largest = fmaxf(largest, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    largest = block_all<true>(largest, parts);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        v[i] = make_float4(__expf(v[i].x - largest), __expf(v[i].y - largest),
                           __expf(v[i].z - largest), __expf(v[i].w - largest));  // fault: spill
        sum += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    sum = 1.0f / block_all<false>(sum, parts);
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
        out[threadIdx.x + i * kThreads] = make_float4(v[i].x * sum, v[i].y * sum, v[i].z * sum, v[i].w * sum);  // fault: spill
#endif
}
