// What a kernel of one block at a time needs of a GPU, on the CPU: a thread for every lane, and barriers
// where lanes wait for each other or look at each other's registers. Slow, and blind for races between
// warps; what fragments hold is as the PTX ISA has it. `benchmarks.lanes` makes kernel.inc of the sources.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __restrict__
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
constexpr int kDim = HEAD_DIM;
using std::fmaf;
using std::max;
using std::min;

struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
struct float2 { float x, y; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
template <class To, class From> static To bits(From from) {
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned u) { return bits<float>(u); }
static float __int_as_float(int i) { return bits<float>(i); }
static unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned char from[8] = {
        (unsigned char)a, (unsigned char)(a >> 8), (unsigned char)(a >> 16), (unsigned char)(a >> 24),
        (unsigned char)b, (unsigned char)(b >> 8), (unsigned char)(b >> 16), (unsigned char)(b >> 24)};
    unsigned to = 0;
    for (int i = 0; i < 4; ++i) to |= unsigned(from[selector >> 4 * i & 7]) << 8 * i;
    return to;
}

// ---- 16-bit numbers ---------------------------------------------------------------------------
static float wide(unsigned short h) {
#ifdef BF16
    return bits<float>(unsigned(h) << 16);
#else
    return float(bits<_Float16>(h));
#endif
}
static unsigned short narrow(float f) {
#ifdef BF16
    const unsigned u = bits<unsigned>(f);
    return f != f ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
#else
    return bits<unsigned short>((_Float16)f);
#endif
}
static float one_of(unsigned two, int which) { return wide(which ? two >> 16 : two & 0xffff); }
static unsigned two_of(float low, float high) { return narrow(low) | unsigned(narrow(high)) << 16; }

// ---- threads ----------------------------------------------------------------------------------
struct Place { int x, y; };
static thread_local Place threadIdx, blockIdx;
static thread_local int own_lane, own_warp;
struct Warp {
    std::barrier<> barrier{32};
    float number[32];
    unsigned word[32][6];
};
static Warp warps[THREADS / 32];
static std::barrier<> block(THREADS);
static std::atomic<int> anybody;
static std::atomic<int> repeated;  // times that a block, or a warp of it, went through it again

static Warp& meet() {
    Warp& warp = warps[own_warp];
    warp.barrier.arrive_and_wait();
    return warp;
}
static void __syncwarp() { meet(); }
static void __syncthreads() { block.arrive_and_wait(); }
static int __syncthreads_or(int mine) {
    if (threadIdx.x == 0) anybody = 0;
    __syncthreads();
    if (mine) anybody = 1;
    __syncthreads();
    const int found = anybody;
    __syncthreads();
    if (found && threadIdx.x == 0) ++repeated;
    return found;
}
template <class T> static T __shfl_sync(unsigned, T value, int) { return value; }  // of what all have
static float __shfl_xor_sync(unsigned, float value, int apart) {
    Warp& warp = warps[own_warp];
    warp.number[own_lane] = value;
    meet();
    const float other = warp.number[own_lane ^ apart];
    meet();
    return other;
}
static bool __any_sync(unsigned, bool mine) {
    Warp& warp = warps[own_warp];
    warp.number[own_lane] = mine;
    meet();
    bool found = false;
    for (float one : warp.number) found |= one != 0.0f;
    meet();
    if (found && own_lane == 0) ++repeated;
    return found;
}
// All lanes' words, until ``meet``.
template <int kWords> static Warp& shown(const unsigned (&words)[kWords]) {
    memcpy(warps[own_warp].word[own_lane], words, sizeof words);
    return meet();
}

// ---- matrix instructions ----------------------------------------------------------------------
static void mma_16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                   unsigned b1) {
    Warp& warp = shown<6>({a0, a1, a2, a3, b0, b1});
    const int g = own_lane / 4, t = own_lane % 4;
    for (int i = 0; i < 4; ++i)
        for (int k = 0, row = g + i / 2 * 8, column = 2 * t + i % 2; k < 16; ++k)
            d[i] += one_of(warp.word[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2) *
                    one_of(warp.word[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
    meet();
}
static void mma_8(float* d, unsigned a0, unsigned a1, unsigned b) {
    Warp& warp = shown<3>({a0, a1, b});
    const int g = own_lane / 4, t = own_lane % 4;
    for (int i = 0; i < 4; ++i)
        for (int k = 0, row = g + i / 2 * 8, column = 2 * t + i % 2; k < 8; ++k)
            d[i] += one_of(warp.word[row % 8 * 4 + k / 2][row / 8], k % 2) *
                    one_of(warp.word[column * 4 + k / 2][2], k % 2);
    meet();
}
static unsigned move_transposed(unsigned two) {
    Warp& warp = shown<1>({two});
    const int g = own_lane / 4, t = own_lane % 4;
    auto at = [&](int row) { return one_of(warp.word[row * 4 + g / 2][0], g % 2); };
    const unsigned to = two_of(at(2 * t), at(2 * t + 1));
    meet();
    return to;
}

// ---- Hopper: copies arrive at once, and products are there when they are issued ---------------
alignas(1024) static char shared_memory[1 << 18];
using Barrier = unsigned long long;
static unsigned shared_address(const void* p) { return (const char*)p - shared_memory; }
static void barrier_init(Barrier*, int) {}
static void barrier_init_fence() {}
static void barrier_expect(Barrier*, int) {}
static void barrier_wait(Barrier*, int) {}
static void barrier_arrive(Barrier*) {}
static void async_proxy_fence() {}
static void named_barrier_sync(int, int) { __syncthreads(); }  // all warpgroups come to theirs once
static void wgmma_fence() {}
static void wgmma_commit() {}
template <int kPending> static void wgmma_wait() {}
template <int kCount> static void pin(float (&)[kCount]) {}
template <int kCount> static void pin(unsigned (&)[kCount][4]) {}
static unsigned descriptor(const void* matrix, int panel = 16) {
    return shared_address(matrix) >> 4 | panel >> 4 << 16;
}
static int swizzled(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }
struct TensorMap {
    const unsigned short* from;
    int rows;
};
static void copy_box(void* to, const TensorMap& map, int column, int first, int head, Barrier*) {
    for (int row = 0; row < 64; ++row)
        for (int chunk = 0; chunk < 8; ++chunk) {
            char* at = (char*)to + swizzled(row, chunk);
            if (first + row < map.rows)
                memcpy(at,
                       map.from + (size_t(head) * map.rows + first + row) * kDim + column + chunk * 8,
                       16);
            else
                memset(at, 0, 16);
        }
}
static float element(unsigned start, int row, int byte) {
    unsigned at = start + row / 8 * 1024 + row % 8 * 128 + byte;
    at ^= (at >> 7 & 7) << 4;
    unsigned short h;
    memcpy(&h, shared_memory + at, 2);
    return wide(h);
}
static void wgmma_scores(float (&d)[32], const unsigned (&a)[4], unsigned b, int accumulate) {
    Warp& warp = shown<4>({a[0], a[1], a[2], a[3]});
    const int g = own_lane / 4, t = own_lane % 4;
    for (int i = 0; i < 32; ++i) {
        const int row = g + i / 2 % 2 * 8, key = i / 4 * 8 + 2 * t + i % 2;
        float sum = accumulate ? d[i] : 0.0f;
        for (int k = 0; k < 16; ++k)
            sum += one_of(warp.word[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2) *
                   element((b & 0x3fff) << 4, key, 2 * k);
        d[i] = sum;
    }
    meet();
}
template <int kCount>
static void wgmma(float (&d)[kCount], const unsigned (&a)[4], unsigned b, int accumulate) {
    Warp& warp = shown<4>({a[0], a[1], a[2], a[3]});
    const int g = own_lane / 4, t = own_lane % 4;
    for (int i = 0; i < kCount; ++i) {
        const int row = g + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
        const unsigned start = ((b & 0x3fff) << 4) + column / 64 * (b >> 16 << 4);
        float sum = accumulate ? d[i] : 0.0f;
        for (int k = 0; k < 16; ++k)
            sum += one_of(warp.word[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2) *
                   element(start, k, column % 64 * 2);
        d[i] = sum;
    }
    meet();
}
static void matrices(unsigned* to, unsigned from, int count) {
    Warp& warp = shown<1>({from});
    for (int i = 0; i < count; ++i)
        memcpy(to + i, shared_memory + warp.word[i * 8 + own_lane / 4][0] + own_lane % 4 * 4, 4);
    meet();
}
static void matrix_transposed(unsigned& to, unsigned from) {
    Warp& warp = shown<1>({from});
    unsigned short two[2];
    for (int i = 0; i < 2; ++i)
        memcpy(two + i, shared_memory + warp.word[own_lane % 4 * 2 + i][0] + own_lane / 4 * 2, 2);
    to = two[0] | unsigned(two[1]) << 16;
    meet();
}
static void store_matrices(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
    Warp& warp = shown<1>({to});
    const unsigned words[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
        memcpy(shared_memory + warp.word[i * 8 + own_lane / 4][0] + own_lane % 4 * 4, words + i, 4);
    meet();
}

#include "kernel.inc"

// Two heads; arguments: keys, what queries are multiplied by, and how far the first key is above.
// Prints the largest error, the relative one, how often blocks went through it again, and how many
// blocks there are.
int main(int, char** arguments) {
    constexpr int kHeads = 2;
    const int keys = atoi(arguments[1]), blocks = (keys + ROWS - 1) / ROWS;
    const float scale = atof(arguments[2]), gap = atof(arguments[3]);
    const float to_log2 = 1.4426950408889634f / sqrtf(kDim);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<unsigned short> q(kHeads * keys * kDim), k(q), v(q), out(q);
    for (auto* x : {&q, &k, &v})
        for (auto& one : *x) one = narrow(normal(random) * (x == &q ? scale : 1.0f));
    if (gap > 0)  // the first key is so far above the others, which are equal, and has no value
        for (size_t at = 0; at < q.size(); ++at) {
            const bool one = at % kDim == 0, first = at / kDim % keys == 0;
            q[at] = narrow(one ? sqrtf(kDim) : 0.0f);
            k[at] = narrow(one && first ? gap : 0.0f);
            v[at] = narrow(first ? 0.0f : 1.0f);
        }
    for (int at = 0; at < kHeads * blocks; ++at) {
        memset(shared_memory, 0x7f, sizeof shared_memory);  // NaN
        std::vector<std::thread> threads;
        for (int thread = 0; thread < THREADS; ++thread)
            threads.emplace_back([&, thread] {
                threadIdx = {thread, 0};
                blockIdx = {at % blocks, at / blocks};
                own_lane = thread % 32;
                own_warp = thread / 32;
#if BULK
                attention_forward({k.data(), keys}, {v.data(), keys}, q.data(), k.data(),
                                  out.data(), keys, to_log2);
#else
                attention_forward((uint4*)q.data(), (uint4*)k.data(), (uint4*)v.data(),
                                  (uint4*)out.data(), keys, to_log2);
#endif
            });
        for (auto& thread : threads) thread.join();
    }
    double largest = 0, errors = 0, sizes = 0;
    for (int row = 0; row < kHeads * keys; ++row) {
        const int first = row / keys * keys, seen = CAUSAL ? row - first + 1 : keys;
        std::vector<double> p(seen);
        double most = -1e300, sum = 0;
        for (int key = 0; key < seen; ++key) {
            for (int i = 0; i < kDim; ++i)
                p[key] += double(wide(q[row * kDim + i])) * wide(k[(first + key) * kDim + i]);
            p[key] /= sqrt(kDim);
            most = max(most, p[key]);
        }
        for (double& one : p) sum += one = exp(one - most);
        for (int i = 0; i < kDim; ++i) {
            double right = 0;
            for (int key = 0; key < seen; ++key) right += p[key] * wide(v[(first + key) * kDim + i]);
            right /= sum;
            const double error = wide(out[row * kDim + i]) - right;
            largest = error == error ? max(largest, fabs(error)) : INFINITY;
            errors += error * error;
            sizes += right * right;
        }
    }
    printf("%.6g %.6g %d %d\n", largest, sqrt(errors / sizes), repeated.load(), kHeads * blocks);
}
