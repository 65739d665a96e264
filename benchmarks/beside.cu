// What a warp's instructions take while another warpgroup multiplies without an end, and what those
// products take. Warpgroup 0 multiplies until `others`, the warps that are waited for, have ended, and once
// where there are none of these; the others do WHAT, `rounds` times. Cycles: out[0] of the products of one
// round, out[1] of a round of the slowest of the others. It stands beside the headers of attention.
#define HEAD_DIM 64
#include "attention.cuh"
#include "ones.cuh"

#define EXPONENTIAL 1
#define MULTIPLICATION 2
#define SOFTMAX 3  // an exponential, the multiplication ahead of it, and half of a conversion behind it

constexpr int kEach = 32;  // numbers of a thread
// That a round goes through them: what a loop takes is little beside 32 exponentials, and not beside 32
// multiplications.
constexpr int kTimes = WHAT == MULTIPLICATION ? 4 : 1;

__device__ __forceinline__ unsigned clock_now() {
    unsigned now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now) :: "memory");
    return now;
}

extern "C" __global__ void __launch_bounds__(384, 1)
beside(unsigned* out, int rounds, int others, float scale) {
    extern __shared__ char raw[];
    __shared__ int running;
    char* tile = raw + (-shared_address(raw) & 1023);
    for (int i = threadIdx.x; i < 2 * 64 * 128 / 4; i += blockDim.x)
        reinterpret_cast<unsigned*>(tile)[i] = 0;
    if (threadIdx.x == 0) running = others;
    async_proxy_fence();
    __syncthreads();
    const unsigned began = clock_now();
    if (__shfl_sync(~0u, threadIdx.x / 128, 0) == 0) {
        float acc[36] = {};
        unsigned p[4][4] = {};
        int done = 0;
        do {
            pin(acc);
            pin(p);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) wgmma(acc, p[i], descriptor(tile, 64 * 128) + i * 128, 1);
            wgmma_commit();
            ++done;
        } while (*static_cast<volatile int*>(&running) > 0);
        wgmma_wait<0>();
        pin(acc);
        const unsigned took = clock_now() - began;
        if (threadIdx.x == 0) out[0] = took / done;
        if (acc[0] != 0.0f) out[2] = 1;
        return;
    }
    float x[kEach];
    unsigned pair[kEach / 2] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = -static_cast<float>((threadIdx.x * 7 + i) % 13);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int time = 0; time < kTimes; ++time) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                if (WHAT != EXPONENTIAL)
                    asm volatile("fma.rn.f32 %0, %0, %1, %2;"
                                 : "+f"(x[i]) : "f"(scale), "f"(-scale));
                if (WHAT != MULTIPLICATION)
                    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
            }
            if (WHAT == SOFTMAX)
#pragma unroll
                for (int i = 0; i < kEach; i += 2) pair[i / 2] = pack(x[i], x[i + 1]);
#pragma unroll
            for (int i = 0; i < kEach; ++i) asm volatile("" : "+f"(x[i]), "+r"(pair[i / 2]));
        }
    }
    const unsigned took = clock_now() - began;
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) all += x[i] + __uint_as_float(pair[i / 2]);
    if (threadIdx.x % 32 == 0) {
        atomicMax(out + 1, took / rounds);
        atomicSub(&running, 1);
    }
    if (all == 12345.0f) out[2] = 1;
}
