// Kernels that belong to the harness: they write a variant's inputs, read its output and note the
// clocks. None of them ever starts early. state[0]: number of the replay.

__device__ __forceinline__ unsigned mix(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

extern "C" __global__ void advance(unsigned* state) { state[0] += 1; }

// One tensor for each blockIdx.y, from another place of the pool in every call of every replay.
// With a stride, only every stride-th piece of 16 bytes.
extern "C" __global__ void write_inputs(const uint4* pool, int spare, uint4* q, uint4* k, uint4* v,
                                        int pieces, int stride, const unsigned* state, int call) {
    uint4* to = blockIdx.y == 0 ? q : blockIdx.y == 1 ? k : v;
    const uint4* from = pool + mix(state[0] * 256 + call * 4 + blockIdx.y) % spare;
    const int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i * stride < pieces; i += step)
        to[i * stride] = from[i * stride];
}

// Keeps (every stride-th piece of) the output, after so many cycles that are planted as a slowdown.
extern "C" __global__ void keep_output(const uint4* out, uint4* kept, int pieces, int stride,
                                       int planted) {
    if (planted)
        for (const long long from = clock64(); clock64() - from < planted;) {}
    const int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i * stride < pieces; i += step)
        kept[i * stride] = out[i * stride];
}

// Cycles and nanoseconds of every SM, at [replay % slots][which][SM]: launched with a block an SM.
extern "C" __global__ void stamp(longlong2* stamps, int slots, int which, int sms,
                                 const unsigned* state) {
    unsigned sm;
    unsigned long long now;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    stamps[(state[0] % slots * 2 + which) * sms + sm] =
        make_longlong2(clock64(), static_cast<long long>(now));
}
