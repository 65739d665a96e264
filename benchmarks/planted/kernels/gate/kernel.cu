__device__ __forceinline__ float gated(float x) { return __fdividef(x, 1.0f + __expf(-1.702f * x)); }

extern "C" __global__ void __launch_bounds__(256) gate(const float4* __restrict__ x, float4* __restrict__ out) {
    const size_t i = blockIdx.x * 256 + threadIdx.x;
    const float4 v = x[i];
    out[i] = make_float4(gated(v.x), gated(v.y), gated(v.z), gated(v.w));
}
