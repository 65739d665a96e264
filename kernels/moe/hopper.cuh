// Wrappers for PTX instructions: mbarrier, clusters, TMA, cp.async, setmaxnreg, wgmma, stmatrix.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier: a phase completes after all arrivals and all expected bytes --------------------
using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to TMA.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Arrives, and keeps the phase incomplete until TMA has copied this many bytes.
__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Waits until the phase of this parity completes: 0 for the first, third, ...
__device__ __forceinline__ void barrier_wait(Barrier* barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    } while (!done);
}

__device__ __forceinline__ void named_barrier_sync(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// ---- clusters ---------------------------------------------------------------------------------
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Arrives at the same barrier in the shared memory of this block of the cluster.
__device__ __forceinline__ void barrier_arrive_remote(Barrier* barrier, unsigned block) {
    asm volatile("{.reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];}"
                 ::"r"(shared_address(barrier)), "r"(block) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- TMA and cp.async -------------------------------------------------------------------------
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads a box into shared memory, swizzled as the tensor map says. Elements out of bounds are
// filled with zeros and count as copied bytes.
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, int column, int row,
                                         Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, int column, int row,
                                         int part, int expert, Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(part),
                   "r"(expert), "r"(shared_address(barrier)) : "memory");
}

// Loads the same box into every block of the cluster whose bit is set in ``blocks``. It arrives at
// the same offset in each block, and at the same barrier of each block.
__device__ __forceinline__ void tma_load_multicast(void* to, const TensorMap& map, int column,
                                                   int row, int part, int expert,
                                                   Barrier* barrier, unsigned short blocks) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(part),
                   "r"(expert), "r"(shared_address(barrier)), "h"(blocks) : "memory");
}

// Copies 16 bytes asynchronously, bypassing L1.
__device__ __forceinline__ void cp_async(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Arrives once this thread's earlier cp.async copies are complete. The barrier must be initialised
// with one arrival per such call.
__device__ __forceinline__ void cp_async_arrive(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}

// Waits until at most this many of the thread's newest groups are incomplete.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- counters in global memory, for synchronisation between blocks ----------------------------
// Call after a barrier of the threads whose writes the counter announces.
__device__ __forceinline__ void increment_counter(int* counter) {
    __threadfence();
    atomicAdd(counter, 1);
}

__device__ __forceinline__ void wait_for_counter(const int* counter, int count) {
    int value;
    while (true) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
        if (value >= count) return;
        __nanosleep(64);
    }
}

// ---- registers per thread of a warpgroup; needs launch bounds of one block per SM -------------
template <int kCount>
__device__ __forceinline__ void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <int kCount>
__device__ __forceinline__ void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- wgmma: a warpgroup (four warps) computes a 64 x N tile -----------------------------------
// Low word of a shared memory matrix descriptor (PTX ISA, "Matrix Descriptor"): the address in
// 16-byte units. The high word is the same for all tiles: groups of eight rows 1024 bytes apart,
// 128-byte swizzle. Tiles are aligned to 1024 bytes.
__device__ __forceinline__ unsigned descriptor(const void* matrix) {
    return (shared_address(matrix) & 0x3ffff) >> 4 | 1 << 16;
}
#define DESCRIPTOR_HIGH "0x40000040"

// Makes ordinary writes to shared memory visible to wgmma and TMA.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for shared and global memory.
__device__ __forceinline__ void async_proxy_fence_all() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most this many of the newest groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma writes its accumulators asynchronously, which the compiler does not know. This stops it
// from moving accesses to these registers across this point.
template <int kCount>
__device__ __forceinline__ void fence_operand(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define OUT_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OUT_8 OUT_4(0), OUT_4(4)
#define OUT_16 OUT_8, OUT_4(8), OUT_4(12)
#define OUT_24 OUT_16, OUT_4(16), OUT_4(20)
#define OUT_32 OUT_24, OUT_4(24), OUT_4(28)
#define OUT_40 OUT_32, OUT_4(32), OUT_4(36)
#define OUT_48 OUT_40, OUT_4(40), OUT_4(44)
#define OUT_56 OUT_48, OUT_4(48), OUT_4(52)
#define OUT_64 OUT_56, OUT_4(56), OUT_4(60)
#define NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_24 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_32 NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_40 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_48 NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_56 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_64 NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"

// d = a b^T (+ d): a is 64 x 16, b is N x 16, both in shared memory. Uses the first N / 2 elements
// of d as accumulators. I0 to I2: indices of the asm operands after the COUNT accumulators.
template <int kN>
struct Wgmma;
#define WGMMA(N, COUNT, I0, I1, I2)                                                              \
    template <>                                                                                  \
    struct Wgmma<N> {                                                                            \
        static __device__ __forceinline__ void run(float* d, unsigned a, unsigned b,             \
                                                   int accumulate) {                             \
            asm volatile("{.reg .pred p; .reg .b64 a, b; setp.ne.s32 p, %" I2 ", 0;\n"           \
                         "mov.b64 a, {%" I0 ", " DESCRIPTOR_HIGH "};\n"                          \
                         "mov.b64 b, {%" I1 ", " DESCRIPTOR_HIGH "};\n"                          \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "             \
                         "{" NAMES_##COUNT "}, a, b, p, 1, 1, 0, 0;}"                            \
                         : OUT_##COUNT : "r"(a), "r"(b), "r"(accumulate));                       \
        }                                                                                        \
    };
WGMMA(16, 8, "8", "9", "10")
WGMMA(32, 16, "16", "17", "18")
WGMMA(48, 24, "24", "25", "26")
WGMMA(64, 32, "32", "33", "34")
WGMMA(80, 40, "40", "41", "42")
WGMMA(96, 48, "48", "49", "50")
WGMMA(112, 56, "56", "57", "58")
WGMMA(128, 64, "64", "65", "66")

// Stores four 8 x 8 matrices of 16-bit elements, transposed. Lane i has the address of row i % 8 of
// the transposed matrix i / 8.
__device__ __forceinline__ void stmatrix_transposed(unsigned to, unsigned a, unsigned b, unsigned c,
                                                    unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
