// Launches the kernels of this package by the CUDA runtime. A kernel is found by the key that its
// Python source computes; a launch has the grid, block and arguments that the Python source gives.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// Hidden, so that two packages in one process have a table each.
namespace workbench_package __attribute__((visibility("hidden"))) {

// kinds has a letter for each parameter: i integer or pointer, f float, d double, s struct.
struct Entry {
  const void* function;
  std::string kinds;
  bool early_start = false, cooperative = false;
  int carveout = -1;
  std::map<int, int64_t> shared = {};  // dynamic bytes that a device allows so far
};

inline std::map<std::string, int64_t>& indices() {
  static std::map<std::string, int64_t> all;
  return all;
}

inline std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

void add(const char* key, const void* function, const char* kinds, bool early_start,
         bool cooperative, int carveout) {
  indices()[key] = static_cast<int64_t>(entries().size());
  entries().push_back({function, kinds, early_start, cooperative, carveout});
}

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// where: device, stream, grid, block, bytes of shared memory. words: the arguments, 64 bits each. A
// floating-point one is the bits of a double, a struct the address of its bytes on the host.
inline void launch(int64_t index, const int64_t* where, const int64_t* words, size_t count) {
  Entry& entry = entries().at(index);
  if (count != entry.kinds.size()) throw std::runtime_error("wrong number of kernel arguments");
  const int device = static_cast<int>(where[0]);
  const int64_t bytes = where[8];
  std::vector<int64_t> values(words, words + count);
  std::vector<void*> arguments(count);
  for (size_t i = 0; i < count; ++i) {
    arguments[i] = entry.kinds[i] == 's' ? reinterpret_cast<void*>(values[i]) : &values[i];
    if (entry.kinds[i] == 'f') {
      double wide;
      static_assert(sizeof wide == sizeof(int64_t));
      __builtin_memcpy(&wide, &values[i], sizeof wide);
      const float narrow = static_cast<float>(wide);
      __builtin_memcpy(&values[i], &narrow, sizeof narrow);
    }
  }
  check(cudaSetDevice(device));
  auto [allowed, is_first] = entry.shared.try_emplace(device, 0);
  if (is_first && entry.carveout >= 0)
    check(cudaFuncSetAttribute(entry.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                               entry.carveout));
  if (bytes > allowed->second) {
    check(cudaFuncSetAttribute(entry.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)));
    allowed->second = bytes;
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(where[2], where[3], where[4]);
  config.blockDim = dim3(where[5], where[6], where[7]);
  config.dynamicSmemBytes = bytes;
  config.stream = reinterpret_cast<cudaStream_t>(where[1]);
  config.attrs = attributes;
  if (entry.early_start) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (entry.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  check(cudaLaunchKernelExC(&config, entry.function, arguments.data()));
}

// Writes a TMA descriptor to 128 bytes at target. Extents, strides in bytes and box are in the order
// of the tensor, its last dimension last.
inline void encode(int64_t target, int64_t address, int64_t type, const int64_t* extents,
                   const int64_t* strides, const int64_t* box, int rank, bool swizzled) {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                           cudaEnableDefault, &status));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  cuuint64_t sizes[5], steps[5];
  cuuint32_t boxes[5], ones[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < rank; ++i) {
    sizes[i] = extents[rank - 1 - i];
    boxes[i] = static_cast<cuuint32_t>(box[rank - 1 - i]);
    steps[i] = strides[rank - 1 - i];
  }
  const CUresult status =
      function(reinterpret_cast<CUtensorMap*>(target), static_cast<CUtensorMapDataType>(type), rank,
               reinterpret_cast<void*>(address), sizes, steps + 1, boxes, ones,
               CU_TENSOR_MAP_INTERLEAVE_NONE,
               swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw std::runtime_error("the TMA descriptor is not valid");
}

}  // namespace workbench_package
