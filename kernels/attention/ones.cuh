// Row sums on the tensor cores: V has eight extra columns of ones, so the output product also sums
// the probabilities, after their rounding to 16 bits, into four more accumulators.
#pragma once
#include "hopper.cuh"

#ifdef BF16
constexpr unsigned kOnes = 0x3F803F80u;  // two elements
#else
constexpr unsigned kOnes = 0x3C003C00u;
#endif
#define NAMES_36 NAMES_32 ", %32, %33, %34, %35"
#define OUT_36 OUT_32, OUT_4(32)

// d = a b (+ d): a in registers, 64 x 16; b in shared memory, 16 x 72 (MN-major): a 64-column panel
// and the first eight columns of the next.
__device__ __forceinline__ void wgmma(float (&d)[36], const unsigned (&a)[4], unsigned b,
                                      int accumulate) {
    asm volatile("{.reg .pred p; .reg .b64 b; setp.ne.s32 p, %41, 0;\n"
                 "mov.b64 b, {%40, " DESCRIPTOR_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n72k16." OPERANDS
                 "{" NAMES_36 "}, {%36, %37, %38, %39}, b, p, 1, 1, 1;}"
                 : OUT_36 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));
}
