extern "C" __global__ void silu(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float v = x[i];
        out[i] = v / (1.0f + expf(-v));
    }
}
