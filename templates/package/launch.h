// Registers the kernels of this package by the key that their Python source computes, and launches
// them. Hidden, so that two packages in one process have a table each.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>

namespace workbench_package __attribute__((visibility("hidden"))) {

// kinds has a letter for each parameter: i integer or pointer, f float, d double, s struct.
struct Entry {
  const void* function;
  std::string kinds;
  bool early_start, cooperative;
  int carveout;
  std::map<int, int64_t> shared = {};  // dynamic bytes that a device allows so far
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
int registered(const char* key, void (*function)(Parameters...), bool early_start, bool cooperative,
               int carveout) {
  const char kinds[] = {kind<Parameters>()..., 0};
  entries()[key] = {reinterpret_cast<const void*>(function), kinds, early_start, cooperative,
                    carveout};
  return 0;
}

}  // namespace workbench_package
