// Bandwidths of DRAM, L2 and L1. All loads and stores are of 16 bytes a thread.
#include "meter.cuh"

// From the host: THREADS of a block, and UNROLL loads that a thread has in flight.
constexpr int kTile = THREADS * UNROLL;  // 16-byte pieces that a block moves at a time

#define LOAD(NAME, HOW)                                                                       \
    __device__ __forceinline__ uint4 NAME(const uint4* from) {                                \
        uint4 v;                                                                              \
        asm volatile("ld.global" HOW ".v4.u32 {%0, %1, %2, %3}, [%4];"                       \
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");    \
        return v;                                                                             \
    }
LOAD(load_once, ".L1::no_allocate")
LOAD(load_l2, ".cg")  // not from L1
LOAD(load_l1, "")     // from L1 where it hits; .ca would also order the load

__device__ __forceinline__ void fold(uint4& sum, const uint4& v) {
    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
}

__device__ __forceinline__ void keep(const uint4& sum, unsigned* sink) {
    keep(sum.x ^ sum.y ^ sum.z ^ sum.w, 0x9e3779b9u, sink);
}

// DRAM, reading only. ``pieces`` is a multiple of kTile, in this and all that follow.
extern "C" __global__ void __launch_bounds__(THREADS)
stream_read(const uint4* __restrict__ from, long long pieces, unsigned* sink, long long* clocks) {
    const Meter meter;
    uint4 sum = {};
    for (long long at = static_cast<long long>(blockIdx.x) * kTile + threadIdx.x; at < pieces;
         at += static_cast<long long>(gridDim.x) * kTile) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) v[i] = load_once(from + at + i * THREADS);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) fold(sum, v[i]);
    }
    keep(sum, sink);
    meter.stop(clocks);
}

// DRAM, as many bytes written as read.
extern "C" __global__ void __launch_bounds__(THREADS)
stream_copy(const uint4* __restrict__ from, uint4* __restrict__ to, long long pieces,
            long long* clocks) {
    const Meter meter;
    for (long long at = static_cast<long long>(blockIdx.x) * kTile + threadIdx.x; at < pieces;
         at += static_cast<long long>(gridDim.x) * kTile) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) v[i] = load_once(from + at + i * THREADS);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) to[at + i * THREADS] = v[i];
    }
    meter.stop(clocks);
}

// DRAM, two bytes read for one written.
extern "C" __global__ void __launch_bounds__(THREADS)
stream_triad(const uint4* __restrict__ a, const uint4* __restrict__ b, uint4* __restrict__ to,
             long long pieces, long long* clocks) {
    const Meter meter;
    for (long long at = static_cast<long long>(blockIdx.x) * kTile + threadIdx.x; at < pieces;
         at += static_cast<long long>(gridDim.x) * kTile) {
        uint4 v[UNROLL], w[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            v[i] = load_once(a + at + i * THREADS);
            w[i] = load_once(b + at + i * THREADS);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            fold(v[i], w[i]);
            to[at + i * THREADS] = v[i];
        }
    }
    meter.stop(clocks);
}

// L2: each block reads its own ``tiles`` tiles in turn. Were they the same for several SMs, requests
// that meet on the way would be answered together, and more bytes would arrive than L2 has given.
extern "C" __global__ void __launch_bounds__(THREADS)
l2_read(const uint4* __restrict__ from, int tiles, int repeat, unsigned* sink, long long* clocks) {
    const Meter meter;
    uint4 sum = {};
    int tile = 0;
#pragma unroll 1
    for (int n = 0; n < repeat; ++n) {
        const uint4* at = from + (static_cast<long long>(tile) * gridDim.x + blockIdx.x) * kTile
            + threadIdx.x;
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) v[i] = load_l2(at + i * THREADS);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) fold(sum, v[i]);
        if (++tile == tiles) tile = 0;
    }
    keep(sum, sink);
    meter.stop(clocks);
}

// L1: a block reads its own tile again and again. The compiler does not see that it is the same.
extern "C" __global__ void __launch_bounds__(THREADS)
l1_read(const uint4* __restrict__ from, int repeat, int zero, unsigned* sink, long long* clocks) {
    const Meter meter;
    uint4 sum = {};
    const uint4* at = from + static_cast<long long>(blockIdx.x) * kTile + threadIdx.x;
#pragma unroll 4
    for (int n = 0; n < repeat; ++n) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) v[i] = load_l1(at + i * THREADS);
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) fold(sum, v[i]);
        at += zero;
    }
    keep(sum, sink);
    meter.stop(clocks);
}
