// Registers a kernel under the key that its Python source computes. See launch.h.
#pragma once
#include <type_traits>

namespace workbench_package __attribute__((visibility("hidden"))) {

void add(const char* key, const void* function, const char* kinds, bool early_start,
         bool cooperative, int carveout);

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
  add(key, reinterpret_cast<const void*>(function), kinds, early_start, cooperative, carveout);
  return 0;
}

}  // namespace workbench_package
