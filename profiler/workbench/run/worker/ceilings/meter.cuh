// What every benchmark does besides its work.
#pragma once

// The SM clock while a kernel ran: block 0 counts its own cycles and nanoseconds.
struct Meter {
    long long cycles;
    unsigned long long start;

    __device__ __forceinline__ static unsigned long long nanoseconds() {
        unsigned long long now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
        return now;
    }

    __device__ __forceinline__ Meter() : cycles(clock64()), start(nanoseconds()) {}

    __device__ __forceinline__ void stop(long long* clocks) const {
        if (blockIdx.x != 0 || threadIdx.x != 0) return;
        clocks[0] = clock64() - cycles;
        clocks[1] = static_cast<long long>(nanoseconds() - start);
    }
};

// Stores what the host never waits for, so that no work is removed.
template <typename Value>
__device__ __forceinline__ void keep(Value value, Value never, Value* sink) {
    if (value == never) sink[blockIdx.x] = value;
}

__device__ __forceinline__ unsigned hash(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
