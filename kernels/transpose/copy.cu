// As in `workbench calibrate`: 16-byte accesses, LOADS of them in flight per thread.
extern "C" __global__ void __launch_bounds__(THREADS)
copy(const uint4* __restrict__ in, uint4* __restrict__ out, long long vectors) {
    const long long first = static_cast<long long>(blockIdx.x) * THREADS * LOADS + threadIdx.x;
    uint4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
        if (first + i * THREADS < vectors) values[i] = in[first + i * THREADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
        if (first + i * THREADS < vectors) out[first + i * THREADS] = values[i];
}
