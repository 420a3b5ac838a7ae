#include "doors/http/client_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/strings.h"

namespace weft::serve {

std::string ClientNetwork(std::string_view address) {
  constexpr size_t kNetworkBytes = 8, kMappedBytes = 12;
  const std::string text(address.substr(0, address.find('%')));
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return std::string(address);
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    in_addr v4 = {};
    std::memcpy(&v4, v6.s6_addr + kMappedBytes, sizeof(v4));
    inet_ntop(AF_INET, &v4, name.data(), name.size());
    return name.data();
  }
  std::fill(std::begin(v6.s6_addr) + kNetworkBytes, std::end(v6.s6_addr), uint8_t{0});
  inet_ntop(AF_INET6, &v6, name.data(), name.size());
  return StrCat(name.data(), "/64");
}

}  // namespace weft::serve
