// Kernels of the harness: they write a variant's inputs, read its output and note the clocks.
// None of them ever starts early. state[0] is the number of the replay.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned mix(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ __forceinline__ unsigned secret(const unsigned* state, int call, int what) {
    return mix(state[0] * 4096 + call * 64 + what);
}

struct Tensor {
    uint4* to;
    const uint4* from;   // the first of its draws
    long long between;   // pieces from one draw to the next
    long long pieces;    // of 16 bytes
    long long kind;      // see Kind
};

enum Kind { RAW, HALF, BFLOAT, FLOAT, DOUBLE };

__device__ __forceinline__ uint4 scaled(uint4 piece, float factor, int kind) {
    if (kind == HALF) {
        __half* x = reinterpret_cast<__half*>(&piece);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = __float2half_rn(__fmul_rn(__half2float(x[i]), factor));
    } else if (kind == BFLOAT) {
        __nv_bfloat16* x = reinterpret_cast<__nv_bfloat16*>(&piece);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            x[i] = __float2bfloat16_rn(__fmul_rn(__bfloat162float(x[i]), factor));
    } else if (kind == FLOAT) {
        float* x = reinterpret_cast<float*>(&piece);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = __fmul_rn(x[i], factor);
    } else if (kind == DOUBLE) {
        double* x = reinterpret_cast<double*>(&piece);
#pragma unroll
        for (int i = 0; i < 2; ++i) x[i] = __dmul_rn(x[i], factor);
    }
    return piece;
}

extern "C" __global__ void advance(unsigned* state) { state[0] += 1; }

// One tensor for each blockIdx.y. All come from the same draw, floating-point ones times a factor
// of their own from 0.75 to 1: in every call of every replay another. Every stride-th piece.
extern "C" __global__ void write_inputs(const Tensor* tensors, int draws, long long stride,
                                        const unsigned* state, int call) {
    const Tensor t = tensors[blockIdx.y];
    const uint4* from = t.from + secret(state, call, 63) % draws * t.between;
    const float factor = 1.0f - (secret(state, call, blockIdx.y) & 255) / 1024.0f;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x * stride;
    long long i = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * stride;
    for (; i < t.pieces; i += step) t.to[i] = scaled(from[i], factor, t.kind);
}

// Reads (every stride-th piece of) the output of a call, and keeps that of one of the calls.
extern "C" __global__ void read_output(const uint4* out, uint4* kept, long long pieces, int tail,
                                       long long stride, const unsigned* state, int call,
                                       int calls) {
    const bool keeps = secret(state, 0, 62) % calls == call;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x * stride;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (long long i = first * stride; i < pieces; i += step) {
        const uint4 piece = out[i];
        if (keeps) kept[i] = piece;
        asm volatile("" ::"r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w));
    }
    if (keeps && stride == 1 && first < tail)
        reinterpret_cast<char*>(kept + pieces)[first] =
            reinterpret_cast<const char*>(out + pieces)[first];
}

// Cycles and nanoseconds of every SM, at [replay % slots][which][SM]: launched with a block an SM.
extern "C" __global__ void stamp(longlong2* stamps, int slots, int which, int sms,
                                 const unsigned* state) {
    unsigned sm;
    unsigned long long now;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    stamps[(state[0] % slots * 2 + which) * sms + sm] =
        make_longlong2(clock64(), static_cast<long long>(now));
}
