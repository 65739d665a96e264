// Row sums from the tensor cores: beside V stand eight columns of ones, so that the product with the
// probabilities, as they were rounded, has their sums in four more accumulators.
#pragma once
#include "hopper.cuh"

#ifdef BF16
constexpr unsigned kOnes = 0x3F803F80u;  // a pair
#else
constexpr unsigned kOnes = 0x3C003C00u;
#endif
#define NAMES_36 NAMES_32 ", %32, %33, %34, %35"
#define OUT_36 OUT_32, OUT_4(32)

// d = a b (+ d): a in registers, 64 x 16; b in shared memory, 16 rows along the summed dimension. The
// first eight columns of its second panel follow the 64 of its first.
__device__ __forceinline__ void wgmma(float (&d)[36], const unsigned (&a)[4], unsigned b,
                                      int accumulate) {
    asm volatile("{.reg .pred p; .reg .b64 b; setp.ne.s32 p, %41, 0;\n"
                 "mov.b64 b, {%40, " DESCRIPTOR_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n72k16." OPERANDS
                 "{" NAMES_36 "}, {%36, %37, %38, %39}, b, p, 1, 1, 1;}"
                 : OUT_36 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));
}
