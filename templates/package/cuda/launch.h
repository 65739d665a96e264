// Registers the kernels of this package by the key that their Python source computes, and launches
// them. Hidden, so that two packages in one process have a table each.
#pragma once
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace workbench_package __attribute__((visibility("hidden"))) {

// kinds has a letter for each parameter: i integer or pointer, f float, d double, s struct.
struct Entry {
  const void* function;
  std::string kinds;
};

// An argument as both. A pointer is an integer, and a struct the address of its bytes on the host.
struct Word {
  int64_t integer;
  double number;
};

inline std::map<std::string, Entry>& entries() {
  static std::map<std::string, Entry> all;
  return all;
}

template <class T>
constexpr char kind() {
  static_assert(!std::is_class_v<T> || sizeof(T) >= 16, "small structs are not supported");
  if (std::is_same_v<T, float>) return 'f';
  return std::is_same_v<T, double> ? 'd' : std::is_class_v<T> ? 's' : 'i';
}

template <class... Parameters>
int registered(const char* key, void (*function)(Parameters...)) {
  entries()[key] = {reinterpret_cast<const void*>(function), {kind<Parameters>()...}};
  return 0;
}

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// where: device, stream, grid, block, bytes of shared memory, early start, cooperative, carveout.
template <class Where>
void launch(const std::string& key, const Where& where, std::vector<Word> words) {
  const auto place = entries().find(key);
  if (place == entries().end() || place->second.kinds.size() != words.size())
    throw std::invalid_argument("no kernel '" + key + "' of " + std::to_string(words.size()) +
                                " arguments");
  const auto& [function, kinds] = place->second;
  std::vector<float> narrow(words.size());
  std::vector<void*> arguments(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    arguments[i] = &words[i].integer;
    if (kinds[i] == 's') arguments[i] = reinterpret_cast<void*>(words[i].integer);
    if (kinds[i] == 'd') arguments[i] = &words[i].number;
    narrow[i] = static_cast<float>(words[i].number);
    if (kinds[i] == 'f') arguments[i] = &narrow[i];
  }
  static std::mutex attributes_of_functions;  // another thread may launch it with less memory
  const std::lock_guard<std::mutex> lock(attributes_of_functions);
  check(cudaSetDevice(where[0]));
  if (where[8] > 0)
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, where[8]));
  if (where[11] >= 0)
    check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, where[11]));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = where[9] != 0;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = where[10] != 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(where[2], where[3], where[4]);
  config.blockDim = dim3(where[5], where[6], where[7]);
  config.dynamicSmemBytes = where[8];
  config.stream = reinterpret_cast<cudaStream_t>(int64_t(where[1]));
  config.attrs = attributes;
  config.numAttrs = 2;
  check(cudaLaunchKernelExC(&config, function, arguments.data()));
}

}  // namespace workbench_package
