constexpr int kColumns = 8192;

extern "C" __global__ void __launch_bounds__(32) scan(const float* __restrict__ x, float* __restrict__ out) {
    const int lane = threadIdx.x;
    x += static_cast<size_t>(blockIdx.x) * kColumns + lane;
    out += static_cast<size_t>(blockIdx.x) * kColumns + lane;
    float carry = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kColumns; i += 32) {
        float sum = x[i];
#pragma unroll
        for (int far = 1; far < 32; far *= 2) {
            const float other = __shfl_up_sync(0xffffffff, sum, far);
            if (lane >= far) sum += other;
        }
        sum += carry;
        out[i] = sum;
        carry = __shfl_sync(0xffffffff, sum, 31);
    }
}
