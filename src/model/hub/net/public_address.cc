#include "model/hub/net/public_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::hub {
namespace {

struct Range {
  uint32_t first;
  int n_bits;
  bool Has(uint32_t address) const { return (address ^ first) >> (32 - n_bits) == 0; }
};

constexpr uint32_t Of(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

// IANA's special-purpose addresses, multicast and the reserved rest.
constexpr Range kSpecial[] = {
    {Of(0, 0, 0, 0), 8},      {Of(10, 0, 0, 0), 8},     {Of(100, 64, 0, 0), 10},
    {Of(127, 0, 0, 0), 8},    {Of(169, 254, 0, 0), 16}, {Of(172, 16, 0, 0), 12},
    {Of(192, 0, 0, 0), 24},   {Of(192, 0, 2, 0), 24},   {Of(192, 88, 99, 0), 24},
    {Of(192, 168, 0, 0), 16}, {Of(198, 18, 0, 0), 15},  {Of(198, 51, 100, 0), 24},
    {Of(203, 0, 113, 0), 24}, {Of(224, 0, 0, 0), 4},    {Of(240, 0, 0, 0), 4},
};

bool IsPublic4(uint32_t address) {
  return std::ranges::none_of(kSpecial, [&](const Range& range) { return range.Has(address); });
}

uint32_t Number(std::span<const uint8_t> bytes) {
  return Of(bytes[0], bytes[1], bytes[2], bytes[3]);
}

bool IsPublic6(std::span<const uint8_t, 16> bytes) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::ranges::equal(bytes.first(12), kMapped)) return IsPublic4(Number(bytes.subspan(12)));
  // Everything else that is global begins with the bits 001.
  if (bytes[0] >> 5 != 1) return false;
  const uint32_t head = Number(bytes);
  if (head >> 16 == 0x2002) return IsPublic4(Number(bytes.subspan(2)));  // 6to4
  const bool is_protocols = head >> 9 == 0x20010000u >> 9;               // 2001::/23, with Teredo
  const bool is_documentation = head == 0x20010db8 || head >> 12 == 0x3fff0;
  return !is_protocols && !is_documentation;
}

}  // namespace

bool IsPublicAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in own;
    std::memcpy(&own, address, sizeof(own));
    return IsPublic4(ntohl(own.sin_addr.s_addr));
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 own;
  std::memcpy(&own, address, sizeof(own));
  return IsPublic6(std::span<const uint8_t, 16>(own.sin6_addr.s6_addr));
}

}  // namespace weft::hub
