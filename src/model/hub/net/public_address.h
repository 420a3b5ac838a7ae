// Whether an address is one of the open internet, and not of this machine, of its network or of
// anything else that only those inside should reach.
#ifndef WEFT_MODEL_HUB_NET_PUBLIC_ADDRESS_H_
#define WEFT_MODEL_HUB_NET_PUBLIC_ADDRESS_H_

#include <sys/socket.h>

namespace weft::hub {

// False for all kinds of addresses but IPv4's and IPv6's. An IPv6 address that stands for one of
// IPv4 (mapped, 6to4) is as public as that one; NAT64 and Teredo are not.
bool IsPublicAddress(const sockaddr* address);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_PUBLIC_ADDRESS_H_
