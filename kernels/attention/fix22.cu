// As fix17.cu, but all warps have the same reference of a row: its largest score of the first eight
// keys, which each of them multiplies for itself while its own products are on their way. Partial sums
// and outputs are then only added up. A score that is too far above the reference for its exponential
// has the block go through it once more, with the largest score of each warp as its reference.
#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif
constexpr int kWarps = WARPS;
constexpr int kKeys = KEYS;  // of a warp
// So far above the first scores (log2) that halves hold what is 2^24 times as much as those, and of a row
// where those are the largest what is 2^-16 of them.
constexpr float kAbove = 8.0f;
#ifdef BF16
constexpr float kMost = 1e18f;  // of a lane's exponentials of a row, added up
#else
constexpr float kMost = 32768.0f;  // a half holds no 65536
#endif

// d = a b + d: a 16 x 16, b 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned pair;
#ifdef BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// The four lanes of a row hold its columns between them.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// 16 bytes, or zeros where there are none.
__device__ __forceinline__ uint4 load(const uint4* from, bool there) {
    uint4 to;
    if (MASKED)
        asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0;\n"
                     "mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
                     "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];}"
                     : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                     : "l"(from), "r"(int(there)) : "memory");
    else
        asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(from) : "memory");
    return to;
}

// A row of 64 elements is eight pieces of 16 bytes. Of Q and K a lane takes pieces 2t and 2t + 1 of
// its rows, and a product sums over the elements in that order, the same for both. Of V it takes
// piece g of rows 2t, 2t + 1, 2t + 8 and 2t + 9: so column c of product n is column 8c + n of V.
extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
attention_forward(const uint4* __restrict__ q, const uint4* __restrict__ k,
                  const uint4* __restrict__ v, uint4* __restrict__ out, int seq_len,
                  float to_log2) {
    __shared__ float4 parts[kWarps][8][32];   // [warp][product][lane]
    __shared__ float2 softmax[kWarps][16];    // reference (log2) and sum of each row
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = blockIdx.x * 16 + g, first_key = warp * kKeys;  // and row + 8
    const long long head = static_cast<long long>(blockIdx.y) * seq_len * 8;

    const uint4* own_q = q + (head + row * 8 + 2 * t);
    const uint4* first_k = k + (head + g * 8 + 2 * t);
    const uint4* own_k = first_k + first_key * 8;
    const uint4* own_v = v + (head + (first_key + 2 * t) * 8 + g);
    uint4 qa[2][2], kr[2], ka[kKeys / 8][2], va[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        qa[i / 2][i % 2] = load(own_q + (i / 2 * 64 + i % 2), row + i / 2 * 8 < seq_len);
#pragma unroll
    for (int i = 0; i < 2; ++i) kr[i] = load(first_k + i, g < seq_len);
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i)
        ka[i / 2][i % 2] = load(own_k + (i / 2 * 64 + i % 2), first_key + i / 2 * 8 + g < seq_len);
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
        const int key = i / 2 * 8 + i % 2;
        va[i / 4][i % 4] = load(own_v + key * 8, first_key + 2 * t + key < seq_len);
    }
    // A zero that only a barrier knows. The first products begin with it, and no load is moved past a
    // barrier: otherwise the assembler puts V behind the wait for K, to save registers.
    unsigned zero;
    asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 0; bar.red.popc.u32 %0, 1, %2, p;}"
                 : "=r"(zero) : "r"(seq_len), "n"(32 * kWarps) : "memory");

    auto multiply = [&](float (&score)[4], const uint4 (&keys)[2], int j) {
        mma(score, qa[0][j].x, qa[1][j].x, qa[0][j].y, qa[1][j].y, keys[j].x, keys[j].y);
        mma(score, qa[0][j].z, qa[1][j].z, qa[0][j].w, qa[1][j].w, keys[j].z, keys[j].w);
    };
    auto hide = [&](float (&score)[4], int first) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int key = first + 2 * t + i % 2;
            if (MASKED && (key >= seq_len || CAUSAL && key > row + i / 2 * 8))
                score[i] = __int_as_float(0xff800000);  // -infinity
        }
    };
    float reference[2];  // log2
    bool again = false;
    unsigned none = zero;  // always, which the assembler does not know: else it waits for V ahead of the loop
    while (true) {
        float start[2][4], score[kKeys / 8][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)  // the first eight keys, summed over half of the elements each
#pragma unroll
            for (int i = 0; i < 4; ++i) start[j][i] = __uint_as_float(zero);
#pragma unroll
        for (int j = 0; j < 2; ++j) multiply(start[j], kr, j);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) score[n][i] = __uint_as_float(zero);
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) multiply(score[n], ka[n], j);
#pragma unroll
        for (int i = 0; i < 4; ++i) start[0][i] += start[1][i];
        hide(start[0], 0);  // not key 0, so that no reference is -infinity
        reference[0] = fmaf(quad_max(fmaxf(start[0][0], start[0][1])), to_log2, kAbove);
        reference[1] = fmaf(quad_max(fmaxf(start[0][2], start[0][3])), to_log2, kAbove);
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) hide(score[n], first_key + 8 * n);
        if (again) {
            float largest[2] = {-1e30f, -1e30f};
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], score[n][i]);
            reference[0] = quad_max(largest[0]) * to_log2;
            reference[1] = quad_max(largest[1]) * to_log2;
        }
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                score[n][i] = exp2_fast(fmaf(score[n][i], to_log2, -reference[i / 2]));
                sum[i / 2] += score[n][i];
            }
        const bool too_large = !(fmaxf(sum[0], sum[1]) <= kMost);
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        if (t < 2)
            softmax[warp][g + 8 * t] =
                t ? make_float2(reference[1], sum[1]) : make_float2(reference[0], sum[0]);

        float acc[8][4] = {};
#pragma unroll
        for (int m = 0; m < kKeys / 16; ++m) {
            unsigned a[4], rows[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                a[i] = pack(score[2 * m + i / 2][i % 2 * 2], score[2 * m + i / 2][i % 2 * 2 + 1]);
                rows[i][0] = va[m][i].x;
                rows[i][1] = va[m][i].y;
                rows[i][2] = va[m][i].z;
                rows[i][3] = va[m][i].w;
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const unsigned half = (n % 2 ? 0x7632 : 0x5410) + none;  // the same element of two rows
                mma(acc[n], a[0], a[1], a[2], a[3], __byte_perm(rows[0][n / 2], rows[1][n / 2], half),
                    __byte_perm(rows[2][n / 2], rows[3][n / 2], half));
            }
        }
#pragma unroll
        for (int n = 0; n < 8; ++n)
            parts[warp][n][lane] = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
        if (!__syncthreads_or(too_large && !again)) break;
        again = true;
        none += none;
    }

    // Each of four warps has two of the products: columns 16t + 2 warp, 16t + 8 + 2 warp, and the
    // ones beside them.
    if (warp >= 4) return;
    float total[2] = {}, share[2][kWarps];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float2 part[kWarps];
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            part[w] = softmax[w][g + 8 * half];
            share[half][w] = 1.0f;
        }
        if (again) {
            float best = -1e38f;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) best = fmaxf(best, part[w].x);
#pragma unroll
            for (int w = 0; w < kWarps; ++w) share[half][w] = exp2_fast(part[w].x - best);
        }
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total[half] = fmaf(part[w].y, share[half][w], total[half]);
    }
    float4 whole[2] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 part = parts[w][2 * warp + i][lane];
            whole[i].x = fmaf(part.x, share[0][w], whole[i].x);
            whole[i].y = fmaf(part.y, share[0][w], whole[i].y);
            whole[i].z = fmaf(part.z, share[1][w], whole[i].z);
            whole[i].w = fmaf(part.w, share[1][w], whole[i].w);
        }
    const float a = reciprocal(total[0]), b = reciprocal(total[1]);
    unsigned* to = reinterpret_cast<unsigned*>(out + head) + row * 32 + 8 * t + warp;
    if (!MASKED || row < seq_len) {
        to[0] = pack(whole[0].x * a, whole[1].x * a);
        to[4] = pack(whole[0].y * a, whole[1].y * a);
    }
    if (!MASKED || row + 8 < seq_len) {
        to[256] = pack(whole[0].z * b, whole[1].z * b);
        to[260] = pack(whole[0].w * b, whole[1].w * b);
    }
}
