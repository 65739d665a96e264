// Dense rates of the tensor cores, accumulating in FP32: wgmma on Hopper, mma.sync elsewhere.
// The operands are random bits of both signs between 0.25 and 1: with zeros the card would draw
// less power and keep a clock that no real product runs at.
#include "meter.cuh"

// From the host: TYPE, one of these, TURNS of the loop's body, and THREADS of a block.
#define FP16 0
#define BF16 1
#define TF32 2
#define FP8 3
#if TYPE == FP16
#define TYPES "f32.f16.f16"
#define DEPTH "k16"
constexpr unsigned kLow = 0x34003400, kSpread = 0x07ff07ff, kSigns = 0x80008000;
#elif TYPE == BF16
#define TYPES "f32.bf16.bf16"
#define DEPTH "k16"
constexpr unsigned kLow = 0x3e803e80, kSpread = 0x00ff00ff, kSigns = 0x80008000;
#elif TYPE == TF32
#define TYPES "f32.tf32.tf32"
#define DEPTH "k8"
constexpr unsigned kLow = 0x3e800000, kSpread = 0x00ffe000, kSigns = 0x80000000;
#else
#define TYPES "f32.e4m3.e4m3"
#define DEPTH "k32"
constexpr unsigned kLow = 0x28282828, kSpread = 0x0f0f0f0f, kSigns = 0x80808080;
#endif

__device__ __forceinline__ unsigned operand(unsigned seed) {
    return (hash(seed) & kSpread) + kLow | hash(~seed) & kSigns;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Every warpgroup has 64 rows of A, and all share 256 columns of B; both are 128 bytes deep, in
// shared memory under the 128-byte swizzle. Random numbers need no swizzling when written.
constexpr int kThreads = THREADS, kGroups = kThreads / 128, kTurns = TURNS;
constexpr int kSteps = 4;  // instructions along 128 bytes, 32 each
constexpr int kRowBytes = 128, kRowsA = 64, kRowsB = 256, kSums = 128;

// PTX ISA, "Matrix Descriptor": groups of eight rows 1024 bytes apart, 128-byte swizzle.
__device__ __forceinline__ unsigned long long descriptor(const void* matrix) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(matrix));
    return 0x4000004000010000ull | (address & 0x3ffff) >> 4;
}

#define SUM_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUM_16(i) SUM_4(i), SUM_4(i + 4), SUM_4(i + 8), SUM_4(i + 12)
#define SUM_64(i) SUM_16(i), SUM_16(i + 16), SUM_16(i + 32), SUM_16(i + 48)
#if TYPE == FP16 || TYPE == BF16
#define NOT_TRANSPOSED ", 0, 0"
#else
#define NOT_TRANSPOSED ""
#endif

// d += a b^T
__device__ __forceinline__ void multiply(float (&d)[kSums], unsigned long long a,
                                         unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256" DEPTH "." TYPES " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
        "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
        "%124, %125, %126, %127}, %128, %129, 1, 1, 1" NOT_TRANSPOSED ";"
        : SUM_64(0), SUM_64(64) : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(int repeat, float* sink, long long* clocks) {
    __shared__ __align__(1024) unsigned a[kGroups * kRowsA * kRowBytes / 4];
    __shared__ __align__(1024) unsigned b[kRowsB * kRowBytes / 4];
    for (int i = threadIdx.x; i < sizeof(a) / 4; i += kThreads) a[i] = operand(i);
    for (int i = threadIdx.x; i < sizeof(b) / 4; i += kThreads) b[i] = operand(i + 0x10000);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const Meter meter;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const unsigned long long from = descriptor(a + group * kRowsA * kRowBytes / 4);
    const unsigned long long to = descriptor(b);
    float sum[kSums] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll 1
    for (int n = 0; n < repeat; ++n) {
#pragma unroll
        for (int i = 0; i < kTurns * kSteps; ++i)
            multiply(sum, from + i % kSteps * 2, to + i % kSteps * 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sum[i])::"memory");
    meter.stop(clocks);
    float all = 0.f;
#pragma unroll
    for (int i = 0; i < kSums; ++i) all += sum[i];
    keep(all, 1.2345e30f, sink);
}
#else
// Every warp has ROWS x COLUMNS products of its own in registers.
constexpr int kThreads = THREADS, kRows = ROWS, kColumns = COLUMNS, kTurns = TURNS;
#if TYPE == FP16 || TYPE == BF16
#define SHAPE "m16n8k16"
#elif TYPE == TF32
#define SHAPE "m16n8k8"
#else
#define SHAPE "m16n8k32"
#endif

extern "C" __global__ void __launch_bounds__(kThreads)
products(int repeat, float* sink, long long* clocks) {
    unsigned a[kRows][4], b[kColumns][2];
    const unsigned seed = threadIdx.x * 64;
#pragma unroll
    for (int i = 0; i < kRows * 4; ++i) a[i / 4][i % 4] = operand(seed + i);
#pragma unroll
    for (int i = 0; i < kColumns * 2; ++i) b[i / 2][i % 2] = operand(seed + 32 + i);
    float sum[kRows][kColumns][4] = {};
    const Meter meter;
#pragma unroll 1
    for (int n = 0; n < repeat; ++n) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    float(&d)[4] = sum[r][c];
                    asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES ".f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                 : "r"(a[r][0]), "r"(a[r][1]), "r"(a[r][2]), "r"(a[r][3]),
                                   "r"(b[c][0]), "r"(b[c][1]));
                }
            }
        }
    }
    float all = 0.f;
#pragma unroll
    for (int i = 0; i < kRows * kColumns * 4; ++i)
        all += sum[i / 4 / kColumns][i / 4 % kColumns][i % 4];
    meter.stop(clocks);
    keep(all, 1.2345e30f, sink);
}
#endif
