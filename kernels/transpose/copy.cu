// As workbench calibrate copies: pieces of 16 bytes, LOADS of a thread in flight.
extern "C" __global__ void __launch_bounds__(THREADS)
copy(const uint4* __restrict__ in, uint4* __restrict__ out, long long pieces) {
    const long long first = static_cast<long long>(blockIdx.x) * THREADS * LOADS + threadIdx.x;
    uint4 piece[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
        if (first + i * THREADS < pieces) piece[i] = in[first + i * THREADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
        if (first + i * THREADS < pieces) out[first + i * THREADS] = piece[i];
}
