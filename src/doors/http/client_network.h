// Which addresses count as one client.
//
// A provider gives each customer at least a /64 of IPv6, so that one machine can send from 2^64
// addresses: all of a /64 are one client. An IPv4 address is one, also in its IPv6 form
// ("::ffff:192.0.2.1"), in which a socket for both kinds reports it.
//
// Any thread.
#ifndef WEFT_DOORS_HTTP_CLIENT_NETWORK_H_
#define WEFT_DOORS_HTTP_CLIENT_NETWORK_H_

#include <string>
#include <string_view>

namespace weft::serve {

// "192.0.2.1" or "2001:db8:0:1::/64", the same for each way to write an address, with or without a
// zone ("%eth0"). Returns other text as it is.
std::string ClientNetwork(std::string_view address);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_CLIENT_NETWORK_H_
