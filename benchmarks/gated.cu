// The first and the last kernel of an executor's graph, one thread each. gated.py defines the macros:
// places in the page that referee, executor and GPU share.

__device__ __forceinline__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds)::"memory");
    return nanoseconds;
}

__device__ __forceinline__ unsigned load(const unsigned* from) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void store(unsigned* to, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ void note(unsigned* page, int place) {
    reinterpret_cast<volatile unsigned long long*>(page)[place] = now();
}

// Waits for the referee. Its secret replaces the number of the replay, from which neighbours.cu draws
// the inputs; `advance` adds one to it.
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
    note(page, OPENED_AT + number % RING);
    state[0] = load(page + SECRETS + number % RING) - 1;
    store(page + OPENED, number);
}

extern "C" __global__ void report(unsigned* page, const unsigned* ticket) {
    const unsigned number = ticket[0];
    note(page, ENDED_AT + number % RING);
    store(page + ENDED, number);
}
