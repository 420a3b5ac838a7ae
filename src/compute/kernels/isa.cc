#include "compute/kernels/isa.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include "base/system.h"
#endif

namespace weft {
namespace {

#if defined(__x86_64__)
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kF16cBit = 1u << 29;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16cBit) != 0;
}

// The builtins also ask the operating system whether it saves the registers.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnniBit = 1u << 4;
  const bool asks = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && eax >= 1 &&
                    __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  return HasAvx2() && asks && (eax & kAvxVnniBit) != 0;
}

#ifdef WEFT_EMULATE_VNNI
constexpr bool kEmulatesVnni = true;
#else
constexpr bool kEmulatesVnni = false;
#endif

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

std::vector<Isa> FindIsas() {
  std::vector<Isa> found = {Isa::kScalar};
#if defined(__x86_64__)
  if (HasAvx2()) {
    if (kEmulatesVnni) found.push_back(Isa::kAvxVnni);
    found.push_back(Isa::kAvx2);
  }
  if (HasAvxVnni() && !kEmulatesVnni) found.push_back(Isa::kAvxVnni);
  if (HasAvx512()) found.push_back(Isa::kAvx512);
#elif defined(__aarch64__)
  const ArmFeatures features = FindArmFeatures();
  if (features.dot_products) found.push_back(Isa::kNeon);
  if (features.dot_products && features.matrix_products) found.push_back(Isa::kI8mm);
#endif
  return found;
}

Isa ChooseIsa() {
  if (const char* wanted = std::getenv("WEFT_ISA")) {
    for (Isa isa : AvailableIsas()) {
      if (NameOf(isa) == wanted) return isa;
    }
    std::fprintf(stderr, "weft: WEFT_ISA=%s is not available here; using %s\n", wanted,
                 std::string(NameOf(AvailableIsas().back())).c_str());
  }
  return AvailableIsas().back();
}

}  // namespace

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kI8mm:
      return "i8mm";
  }
  return "?";
}

std::span<const Isa> AvailableIsas() {
  static const std::vector<Isa> isas = FindIsas();
  return isas;
}

Isa PreferredIsa() {
  static const Isa chosen = ChooseIsa();
  return chosen;
}

}  // namespace weft
