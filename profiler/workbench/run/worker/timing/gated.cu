// The first and the last kernel of an executor's graph. gated.py defines the macros: places in the
// page that referee, executor and GPU share.

__device__ __forceinline__ unsigned load(const unsigned* from) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void store(unsigned* to, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds)::"memory");
    return nanoseconds;
}

// Waits for the referee, whose secret stands in for the number of the replay, from which
// neighbours.cu draws the inputs; `advance` adds one to it. One thread.
extern "C" __global__ void gate(unsigned* page, unsigned* ticket, unsigned* state) {
    const unsigned number = ticket[0] + 1;
    ticket[0] = number;
    store(page + ARRIVED, number);
    const unsigned long long began = now();
    while (load(page + GO) < number)
        if (now() - began > LONGEST_NS) {
            store(page + EXPIRED, number);
            break;
        }
    state[0] = load(page + SECRETS + number % RING) - 1;
}

// Shows the referee the sums of all calls of the replay, before its clock stops. One block.
extern "C" __global__ void report(unsigned* page, const unsigned* ticket, const unsigned* state,
                                  const unsigned* sums, int slots) {
    const unsigned* replay = sums + static_cast<long long>(state[0] % slots) * WORDS;
    for (unsigned i = threadIdx.x; i < WORDS; i += blockDim.x) page[SUMS + i] = replay[i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) store(page + ENDED, ticket[0]);
}
