#include "base/new_id.h"

#include <cstddef>
#include <random>

namespace weft {

std::string NewId(std::string_view prefix, int n_random) {
  static constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < n_random; ++i) id.push_back(kLetters[letter(device)]);
  return id;
}

}  // namespace weft
