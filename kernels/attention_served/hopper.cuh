// Wrappers for Hopper's PTX instructions: mbarrier, TMA, setmaxnreg, wgmma, stmatrix.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier: a phase completes when all arrivals and all expected bytes are there -----------
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

__device__ __forceinline__ void named_barrier_arrive(int name, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// ---- TMA --------------------------------------------------------------------------------------
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads a box of [rows][64] of one head into shared memory, swizzled as the tensor map says. Rows
// out of bounds are filled with zeros and count as copied bytes.
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, int column, int row,
                                         int head, Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(head),
                   "r"(shared_address(barrier)) : "memory");
}

// ---- programmatic dependent launch ------------------------------------------------------------
__device__ __forceinline__ void wait_for_previous_grid() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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

// ---- wgmma: a 64 x N product by the four warps of a warpgroup ---------------------------------
// Low word of a shared memory matrix descriptor (PTX ISA, "Matrix Descriptor"): the start address
// and the leading dimension byte offset, both in 16-byte units. The offset is the distance between
// 64-column panels; wgmma reads it only for MN-major operands (V). The high word is a constant: a
// stride of 1024 bytes between groups of eight rows, and the 128-byte swizzle. Matrices have to be
// aligned to 1024 bytes.
__device__ __forceinline__ unsigned descriptor(const void* matrix, int panel_bytes = 16) {
    return shared_address(matrix) >> 4 | panel_bytes >> 4 << 16;
}
#define DESCRIPTOR_HIGH "0x40000040"

// Byte offset of a 16-byte chunk of a 64-column row in the 128-byte swizzle.
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * 128 + (chunk ^ row % 8) * 16;
}

// Makes ordinary writes to shared memory visible to wgmma and TMA.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the newest kPending groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma is asynchronous, but the compiler assumes that it reads and writes its registers at once.
// The compiler does not move accesses to these registers across a fence_operand.
template <int kCount>
__device__ __forceinline__ void fence_operand(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void fence_operand(unsigned (&a)[kCount][4]) {
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

#ifdef BF16
#define OPERANDS "f32.bf16.bf16 "
#else
#define OPERANDS "f32.f16.f16 "
#endif
#define OUT_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OUT_16(i) OUT_4(i), OUT_4(i + 4), OUT_4(i + 8), OUT_4(i + 12)
#define OUT_32 OUT_16(0), OUT_16(16)
#define OUT_64 OUT_32, OUT_16(32), OUT_16(48)
#define NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64 NAMES_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d = a b^T (+ d): a and b in shared memory, 64 x 16 and N x 16 (K-major).
// d = a b (+ d): a in registers, 64 x 16; b in shared memory, 16 x N (MN-major).
// I0 to I5 are the PTX operand numbers after the COUNT accumulators.
#define WGMMA(N, COUNT, I0, I1, I2, I3, I4, I5)                                                  \
    __device__ __forceinline__ void wgmma(float (&d)[COUNT], unsigned a, unsigned b,             \
                                          int accumulate) {                                      \
        asm volatile("{.reg .pred p; .reg .b64 a, b; setp.ne.s32 p, %" I2 ", 0;\n"               \
                     "mov.b64 a, {%" I0 ", " DESCRIPTOR_HIGH "};\n"                              \
                     "mov.b64 b, {%" I1 ", " DESCRIPTOR_HIGH "};\n"                              \
                     "wgmma.mma_async.sync.aligned.m64n" N "k16." OPERANDS                       \
                     "{" NAMES_##COUNT "}, a, b, p, 1, 1, 0, 0;}"                                \
                     : OUT_##COUNT : "r"(a), "r"(b), "r"(accumulate));                           \
    }                                                                                            \
    __device__ __forceinline__ void wgmma(float (&d)[COUNT], const unsigned (&a)[4],             \
                                          unsigned b, int accumulate) {                          \
        asm volatile("{.reg .pred p; .reg .b64 b; setp.ne.s32 p, %" I5 ", 0;\n"                  \
                     "mov.b64 b, {%" I4 ", " DESCRIPTOR_HIGH "};\n"                              \
                     "wgmma.mma_async.sync.aligned.m64n" N "k16." OPERANDS                       \
                     "{" NAMES_##COUNT "}, {%" I0 ", %" I1 ", %" I2 ", %" I3                     \
                     "}, b, p, 1, 1, 1;}"                                                        \
                     : OUT_##COUNT : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b),         \
                       "r"(accumulate));                                                         \
    }
WGMMA("64", 32, "32", "33", "34", "35", "36", "37")
WGMMA("128", 64, "64", "65", "66", "67", "68", "69")

// Stores four 8 x 8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix
// i / 8.
__device__ __forceinline__ void stmatrix(unsigned to, unsigned a, unsigned b, unsigned c,
                                         unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
