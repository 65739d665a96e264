// What a kernel's source exports, and how cuda.py launches it: by ctypes, in a quarter of the host
// time of an operator of torch.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <vector>

// kinds has a letter for each parameter: i integer or pointer, f float, d double, s struct.
struct WorkbenchKernel {
  const char* kinds;  // first: cuda.py reads it
  const void* function;
  int shared[64];  // by device, the most bytes of a block that were allowed
};

#define WORKBENCH_EXPORTED __attribute__((visibility("default"), used))
#define WORKBENCH_KERNEL(symbol, ...) \
  extern "C" { WORKBENCH_EXPORTED WorkbenchKernel symbol = workbench_package::described(&__VA_ARGS__); }

namespace workbench_package __attribute__((visibility("hidden"))) {

template <class T>
constexpr char kind() {
  static_assert(!std::is_class_v<T> || sizeof(T) >= 16, "small structs are not supported");
  if (std::is_same_v<T, float>) return 'f';
  return std::is_same_v<T, double> ? 'd' : std::is_class_v<T> ? 's' : 'i';
}

template <class... Parameters>
WorkbenchKernel described(void (*function)(Parameters...)) {
  static const char kinds[] = {kind<Parameters>()..., '\0'};
  return {kinds, reinterpret_cast<const void*>(function)};
}

}  // namespace workbench_package

// where: grid, block, bytes of shared memory, early start, cooperative, carveout. words has eight
// bytes for each argument, of a struct its address on the host. Returns what failed, null for nothing.
extern "C" WORKBENCH_EXPORTED inline const char* workbench_launch(
    WorkbenchKernel* kernel, int device, cudaStream_t stream, const int* where,
    const int64_t* words) {
  std::vector<void*> arguments(strlen(kernel->kinds));
  for (size_t i = 0; i < arguments.size(); ++i)
    arguments[i] = reinterpret_cast<void*>(kernel->kinds[i] == 's' ? words[i] : int64_t(words + i));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = where[7];
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = where[8];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(where[0], where[1], where[2]);
  config.blockDim = dim3(where[3], where[4], where[5]);
  config.dynamicSmemBytes = where[6];
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  static std::mutex mutex;  // what is allowed only grows: another thread may launch with less
  auto status = cudaSetDevice(device);
  if (const std::lock_guard<std::mutex> lock(mutex); !status && where[6] > kernel->shared[device]) {
    status = cudaFuncSetAttribute(
        kernel->function, cudaFuncAttributeMaxDynamicSharedMemorySize, where[6]);
    if (!status) kernel->shared[device] = where[6];
  }
  if (!status && where[9] >= 0)
    status = cudaFuncSetAttribute(
        kernel->function, cudaFuncAttributePreferredSharedMemoryCarveout, where[9]);
  if (!status) status = cudaLaunchKernelExC(&config, kernel->function, arguments.data());
  return status ? cudaGetErrorString(status) : nullptr;
}
