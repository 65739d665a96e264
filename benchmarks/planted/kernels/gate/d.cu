__device__ __forceinline__ float gated(float x) { return __fdividef(x, 1.0f + __expf(-1.702f * x)); }

extern "C" __global__ void __launch_bounds__(256)
gate(const float* __restrict__ x, float* __restrict__ out, long long columns, long long stride, long long out_stride) {
    const long long i = blockIdx.x * 256LL + threadIdx.x;
    const long long row = i / columns, column = i % columns;
    out[row * out_stride + column] = gated(x[row * stride + column]);
}
