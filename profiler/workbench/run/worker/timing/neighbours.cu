// Kernels of the harness: they write a variant's inputs, read its output and note the clocks.
// None of them ever starts early. state[0] is the number of the replay, state[1] the key of the
// latest call, which nobody knew while it ran.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ __forceinline__ unsigned mix(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ __forceinline__ unsigned secret(const unsigned* state, unsigned chain, int call, int what) {
    return mix(mix(state[0] ^ chain) + call * 64 + what);
}

// Both halves of a number, hashed.
__device__ __forceinline__ unsigned fold(double x) {
    return mix(__double2loint(x) ^ mix(__double2hiint(x)));
}

struct Tensor {
    uint4* to;
    const uint4* from;   // the first of its draws
    long long between;   // pieces from one draw to the next
    long long pieces;    // of 16 bytes
    long long kind;      // see Kind; with WHOLE, one factor for all pieces
};

enum Kind { RAW, HALF, BFLOAT, FLOAT, DOUBLE, WHOLE = 8 };
enum Summed { INT8 = 5, UINT8, INT16, INT32, INT64, E4M3, E5M2 };  // besides those of Kind

__device__ __forceinline__ unsigned scaled(unsigned word, float factor, int kind) {
    if (kind == HALF) {
        const float2 x = __half22float2(*reinterpret_cast<__half2*>(&word));
        const __half2 y = __floats2half2_rn(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor));
        return *reinterpret_cast<const unsigned*>(&y);
    }
    if (kind == BFLOAT) {
        const float2 x = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&word));
        const __nv_bfloat162 y =
            __floats2bfloat162_rn(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor));
        return *reinterpret_cast<const unsigned*>(&y);
    }
    return kind == FLOAT ? __float_as_uint(__fmul_rn(__uint_as_float(word), factor)) : word;
}

__device__ __forceinline__ uint2 scaled(unsigned low, unsigned high, double factor) {
    const double y = __dmul_rn(__hiloint2double(high, low), factor);
    return make_uint2(__double2loint(y), __double2hiint(y));
}

__device__ __forceinline__ uint4 scaled(uint4 piece, float factor, int kind) {
    if (kind == DOUBLE) {
        const uint2 low = scaled(piece.x, piece.y, static_cast<double>(factor));
        const uint2 high = scaled(piece.z, piece.w, static_cast<double>(factor));
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    return make_uint4(scaled(piece.x, factor, kind), scaled(piece.y, factor, kind),
                      scaled(piece.z, factor, kind), scaled(piece.w, factor, kind));
}

// A thread for each sum of a replay.
extern "C" __global__ void advance(unsigned* state, double* sums, int slots) {
    const unsigned replay = state[0] + 1;
    __syncthreads();
    if (threadIdx.x == 0) state[0] = replay;
    sums[replay % slots * blockDim.x + threadIdx.x] = 0;
}

// One tensor for each blockIdx.y. All come from the same draw, floating-point ones times factors
// from 0.75 to 1: for every piece (or tensor, see WHOLE) of every call of every replay another. They
// depend on the result of the call before, its sum, so that no call can begin before that has ended.
extern "C" __global__ void write_inputs(const Tensor* tensors, int draws, const unsigned* state,
                                        int call, const double* before, int between, int slots) {
    const Tensor t = tensors[blockIdx.y];
    const unsigned chain = before ? fold(before[state[0] % slots * between]) : 0;
    const uint4* from = t.from + secret(state, chain, call, 63) % draws * t.between;
    const unsigned own = secret(state, chain, call, blockIdx.y);
    const unsigned apart = t.kind & WHOLE ? 0 : ~0u;
    const int kind = t.kind & ~WHOLE;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i < t.pieces; i += step) {
        const float factor = 1.0f - (mix(own ^ (static_cast<unsigned>(i) & apart)) & 255) / 1024.0f;
        t.to[i] = scaled(from[i], factor, kind);
    }
}

__device__ __forceinline__ double with_sign(double x, unsigned minus) { return minus & 1 ? -x : x; }

__device__ __forceinline__ float of_8_bits(unsigned byte, int kind) {
    if (kind == INT8) return static_cast<signed char>(byte);
    if (kind == UINT8) return byte;
    const __nv_fp8_interpretation_t format = kind == E4M3 ? __NV_E4M3 : __NV_E5M2;
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(byte), format)));
}

// The elements of a word, each with a sign: minus where its bit is set.
__device__ __forceinline__ double with_signs(unsigned word, unsigned signs, int kind) {
    if (kind == FLOAT) return with_sign(__uint_as_float(word), signs);
    if (kind == INT32) return with_sign(static_cast<int>(word), signs);
    float2 x;
    if (kind == HALF) x = __half22float2(*reinterpret_cast<__half2*>(&word));
    else if (kind == BFLOAT) x = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&word));
    else if (kind == INT16) x = make_float2(static_cast<short>(word), static_cast<int>(word) >> 16);
    else {
        double sum = 0;
        for (int i = 0; i < 4; ++i) sum += with_sign(of_8_bits(word >> 8 * i & 255, kind), signs >> i);
        return sum;
    }
    return with_sign(x.x, signs) + with_sign(x.y, signs >> 1);
}

__device__ __forceinline__ double with_signs(uint4 piece, unsigned signs, int kind) {
    if (kind == DOUBLE)
        return with_sign(__hiloint2double(piece.y, piece.x), signs) +
               with_sign(__hiloint2double(piece.w, piece.z), signs >> 1);
    if (kind == INT64)
        return with_sign(static_cast<long long>(piece.y) << 32 | piece.x, signs) +
               with_sign(static_cast<long long>(piece.w) << 32 | piece.z, signs >> 1);
    const int each = kind == FLOAT || kind == INT32 ? 1 : kind <= BFLOAT || kind == INT16 ? 2 : 4;
    return with_signs(piece.x, signs, kind) + with_signs(piece.y, signs >> each, kind) +
           with_signs(piece.z, signs >> 2 * each, kind) +
           with_signs(piece.w, signs >> 3 * each, kind);
}

// Reads an output of a call, by its number, and keeps that of one of the calls. Of every call the
// elements are added up, each with a sign that depends on the key: no call can know beforehand which
// sum it needs, or that nobody will look at what it gives. sums has a row for each call: those of its
// outputs, then the key.
extern "C" __global__ void read_output(const uint4* out, uint4* kept, long long pieces, int tail,
                                       const unsigned* state, int call, int calls, double* sums,
                                       int between, int slots, int kind, int number, int summed) {
    const bool keeps = secret(state, 0, 0, 62) % calls == call;
    const unsigned key = state[1];
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    double found = 0;
    for (long long i = first; i < pieces; i += step) {
        const uint4 piece = out[i];
        if (keeps) kept[i] = piece;
        if (kind != RAW) found += with_signs(piece, mix(static_cast<unsigned>(i) ^ key), kind);
        asm volatile("" ::"r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w));
    }
    if (kind != RAW) {
        sums += state[0] % slots * between;
        for (int lane = 16; lane; lane /= 2) found += __shfl_xor_sync(~0u, found, lane);
        if (threadIdx.x % 32 == 0) atomicAdd(sums + number, found);
        if (first == 0) sums[summed] = key;
    }
    if (keeps && first < tail)
        reinterpret_cast<char*>(kept + pieces)[first] =
            reinterpret_cast<const char*>(out + pieces)[first];
}

// Notes the clocks of every SM, as cycles and nanoseconds, with a block an SM. A replay has four
// rows of [SM]: START and END of its graph, and the sums of what is BETWEEN two stamps with nothing
// between, and of a CALL. Around a call three stamps follow each other: BEFORE, BETWEEN, then CALL
// behind it. The first two only store, so that neither waits for memory that is not in L2.
enum Row { START, END, BETWEEN, CALL, BEFORE };

extern "C" __global__ void stamp(longlong2* stamps, longlong2* last, int slots, int row, int sms,
                                 unsigned* state) {
    unsigned sm;
    unsigned long long nanoseconds;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds)::"memory");
    const longlong2 now = make_longlong2(clock64(), static_cast<long long>(nanoseconds));
    if (sm >= sms) return;
    if (row == BEFORE || row == BETWEEN) {
        last[(row == BETWEEN) * sms + sm] = now;
        return;
    }
    longlong2* own = stamps + state[0] % slots * 4 * sms + sm;
    if (row == CALL) {
        if (blockIdx.x == 0) state[1] = mix(static_cast<unsigned>(now.x) ^ mix(static_cast<unsigned>(now.y)));
        const longlong2 before = last[sm], between = last[sms + sm];
        longlong2 &gap = own[BETWEEN * sms], &call = own[CALL * sms];
        gap = make_longlong2(gap.x + between.x - before.x, gap.y + between.y - before.y);
        call = make_longlong2(call.x + now.x - between.x, call.y + now.y - between.y);
        return;
    }
    own[row * sms] = now;
    if (row == START) own[BETWEEN * sms] = own[CALL * sms] = make_longlong2(0, 0);
}
