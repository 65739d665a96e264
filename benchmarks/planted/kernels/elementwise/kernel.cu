// out = sum of x^k / (k + 1), k below 16, of n values.
constexpr int kTerms = 16;

[[maybe_unused]] __device__ __forceinline__ float polynomial(float x) {
    float sum = 1.0f / kTerms;
#pragma unroll
    for (int k = kTerms - 1; k > 0; --k) sum = sum * x + 1.0f / k;
    return sum;
}

extern "C" __global__ void polynomials(const float* __restrict__ x, float* __restrict__ out, long long n,
                                       int first) {
    const long long thread = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
#if UNCOALESCED
    for (int i = 0; i < 32; ++i) {
        const float value = x[thread * 32 + i];  // fault: uncoalesced
        out[thread * 32 + i] = polynomial(value);  // fault: uncoalesced
    }
#elif DIVISION
    const float4 in = reinterpret_cast<const float4*>(x)[thread];
    float values[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
    for (float& value : values) {
        float sum = 0.0f, power = 1.0f;
#pragma unroll
        for (int k = 0; k < kTerms; ++k) {
            sum += power / static_cast<float>(first + k);  // fault: division
            power *= value;
        }
        value = sum;
    }
    reinterpret_cast<float4*>(out)[thread] = make_float4(values[0], values[1], values[2], values[3]);
#elif FEW_BYTES
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
#pragma unroll 1
    for (long long i = thread; i < n; i += threads) {
        out[i] = polynomial(x[i]);  // fault: few_bytes
    }
#elif FEW_WARPS
    out[thread] = polynomial(x[thread]);  // fault: few_warps
#else
    const float4 in = reinterpret_cast<const float4*>(x)[thread];
    reinterpret_cast<float4*>(out)[thread] =
        make_float4(polynomial(in.x), polynomial(in.y), polynomial(in.z),
                    polynomial(in.w));
#endif
}
