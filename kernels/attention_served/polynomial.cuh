// Exponentials on the FMA units, in pairs of halves.
#pragma once

// 2^x of a pair, times 2^6, for a part of the exponentials: the special function units give 16 a
// cycle and SM, the tensor cores use twice as many at head dimension 64. x is split into a whole
// number k and a fraction in [-1/2, 1/2] by adding a number so large that halves have no fraction
// bits left there; its lowest bits are k + 21 then, the exponent of 2^(k + 6). The polynomial is the
// minimax one of degree 3 with the constant 1: relative error 1e-4, under half a unit of fp16.
// Below x = -20.5 the result is zero.
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

// sum + pair / 2^8: pairs of up to 2^14 add up without overflow.
__device__ __forceinline__ unsigned add_pair(unsigned sum, unsigned pair) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0x1C001C00u));
    return sum;
}

__device__ __forceinline__ float total_of_pairs(unsigned sum) {
    float low, high;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(low), "=f"(high) : "r"(sum));
    return (low + high) * 256.0f;
}
