// Exponentials by a polynomial on the FMA units, in half2.
#pragma once

// 2^(x + 6) of two numbers. Relieves the special function units (MUFU), which compute 16
// exponentials per cycle and SM: all that the tensor cores can use at head dimension 64.
//
// Adding 1536 + 21 rounds x to an integer k, because fp16 has no fraction bits at that magnitude.
// The lowest five bits of the sum are k + 21: the exponent field of 2^(k + 6). The rest of x, in
// [-1/2, 1/2], goes through the minimax polynomial of degree 3 with constant term 1. Its relative
// error is 1e-4, below half an ulp of fp16. For x < -20.5 the result is zero.
__device__ __forceinline__ unsigned exp2_pair(float low, float high) {
    unsigned x, t, k, f, y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    asm("max.f16x2 %0, %0, %1;" : "+r"(x) : "r"(0xCD40CD40u));             // -21
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(t) : "r"(x), "r"(0x66156615u));  // 1536 + 21
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(k) : "r"(t), "r"(0xE615E615u));
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(f) : "r"(x), "r"(k));
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(f), "r"(0x2B0B2B0Bu), "r"(0x33C033C0u));
    asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(y) : "r"(f), "r"(0x398C398Cu));  // 0.0550, 0.242
    asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(y) : "r"(f), "r"(0x3C003C00u));  // 0.693, 1
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(y) : "r"((t & 0x001F001Fu) << 10));
    return y;
}
constexpr float kPairScaleLog2 = 6.0f;

// sum + pair / 2^8: the sum of 2^10 pairs of up to 2^14 does not overflow.
__device__ __forceinline__ unsigned add_pair(unsigned sum, unsigned pair) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0x1C001C00u));
    return sum;
}

__device__ __forceinline__ float pair_sum(unsigned sum) {
    float low, high;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(low), "=f"(high) : "r"(sum));
    return (low + high) * 256.0f;
}
