// What Hopper adds, a function an instruction: mbarriers, bulk tensor copies (TMA), wgmma.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- mbarrier: counts arrivals and bytes; a phase ends when both are complete -----------------
using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and holds the phase open until this many bytes have been copied.
__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Waits for the end of the phase of this parity: 0 for the first, third, ...
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

// ---- bulk tensor copies -----------------------------------------------------------------------
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A box of [rows][64] of one head into shared memory, swizzled as the map says. Rows beyond the
// end arrive as zeros and count as bytes all the same.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
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

__device__ __forceinline__ void let_next_grid_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- registers of a warpgroup; only where the launch bounds say one block an SM ---------------
template <int kCount>
__device__ __forceinline__ void give_registers_down_to() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <int kCount>
__device__ __forceinline__ void take_registers_up_to() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- wgmma: products of 64 x N by the four warps of a warpgroup -------------------------------
// Low word of a shared memory matrix descriptor (PTX ISA, "Matrix Descriptor"): address and
// distance between panels of 64 columns, in 16-byte units. The latter is read only where columns
// are the summed dimension's neighbours, as for V. The high word is one for all matrices here:
// groups of eight rows 1024 bytes apart, 128-byte swizzle. A matrix starts at 1024 bytes.
__device__ __forceinline__ unsigned descriptor(const void* matrix, int panel_bytes = 16) {
    return shared_address(matrix) >> 4 | panel_bytes >> 4 << 16;
}
#define DESCRIPTOR_HIGH "0x40000040"

// Where 16-byte chunk ``chunk`` of a row of 64 columns lies under the 128-byte swizzle, in bytes.
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * 128 + (chunk ^ row % 8) * 16;
}

// Ordinary writes to shared memory become visible to wgmma and to the copy engine.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most this many of the newest groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma runs on while the compiler thinks its results are there, and reads its operands later
// than the compiler thinks: nothing that touches these registers may be moved across this.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void pin(unsigned (&a)[kCount][4]) {
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

// d = a b^T (+ d): a and b in shared memory, 16 columns of both along the summed dimension.
// d = a b (+ d): a in registers, 64 x 16; b in shared memory, 16 rows along the summed dimension.
// I0 to I5 are the numbers of the operands that follow the COUNT accumulators.
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

// Four 8 x 8 matrices of 16-bit numbers from the fragments of a warp; lane i names row i % 8 of
// matrix i / 8.
__device__ __forceinline__ void store_matrices(unsigned to, unsigned a, unsigned b, unsigned c,
                                               unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
