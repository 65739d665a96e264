// Registers the kernels of this package by the key that their Python source computes. Hidden, so
// that two packages in one process have a table each.
#pragma once
#include <cuda_runtime.h>

#include <map>
#include <string>
#include <type_traits>

namespace workbench_package __attribute__((visibility("hidden"))) {

// kinds has a letter for each parameter: i integer or pointer, f float, d double, s struct.
struct Entry {
  const void* function;
  std::string kinds;
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

}  // namespace workbench_package
