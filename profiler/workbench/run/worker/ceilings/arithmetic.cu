// Rates of FFMA, DFMA and HFMA2: chains that do not wait for each other, and nothing else.
#include "meter.cuh"

// From the host: THREADS of a block, CHAINS of a thread, STEPS of every chain in a turn of the loop.
constexpr int kThreads = THREADS, kChains = CHAINS, kSteps = STEPS;

// With a factor just over -1 the numbers stay normal and keep changing.
__device__ __forceinline__ void advance(float& x, float factor, float add) {
    asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(factor), "f"(add));
}

__device__ __forceinline__ void advance(double& x, double factor, double add) {
    asm volatile("fma.rn.f64 %0, %0, %1, %2;" : "+d"(x) : "d"(factor), "d"(add));
}

// Two lanes of half precision.
__device__ __forceinline__ void advance(unsigned& x, unsigned factor, unsigned add) {
    asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(factor), "r"(add));
}

template <typename Value>
__device__ __forceinline__ void run(Value (&x)[kChains], Value factor, Value add, int repeat,
                                    Value never, Value* sink, long long* clocks) {
    const Meter meter;
#pragma unroll 1
    for (int n = 0; n < repeat; ++n) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int i = 0; i < kChains; ++i) advance(x[i], factor, add);
        }
    }
    meter.stop(clocks);
#pragma unroll
    for (int i = 0; i < kChains; ++i) keep(x[i], never, sink);
}

extern "C" __global__ void __launch_bounds__(kThreads)
chains_fp32(float factor, float add, int repeat, float* sink, long long* clocks) {
    float x[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = (hash(threadIdx.x * kChains + i) & 0xffff) * 1e-4f;
    run(x, factor, add, repeat, -1.f, sink, clocks);
}

extern "C" __global__ void __launch_bounds__(kThreads)
chains_fp64(double factor, double add, int repeat, double* sink, long long* clocks) {
    double x[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = (hash(threadIdx.x * kChains + i) & 0xffff) * 1e-4;
    run(x, factor, add, repeat, -1.0, sink, clocks);
}

// ``factor`` and ``add`` are two halves each, as bits.
extern "C" __global__ void __launch_bounds__(kThreads)
chains_half(unsigned factor, unsigned add, int repeat, unsigned* sink, long long* clocks) {
    unsigned x[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i)
        x[i] = (hash(threadIdx.x * kChains + i) & 0x07ff07ff) + 0x34003400;  // 0.25 to 1
    run(x, factor, add, repeat, 0xffffffffu, sink, clocks);
}
