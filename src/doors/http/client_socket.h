// How a server sets up the connection to a client.
#ifndef WEFT_DOORS_HTTP_CLIENT_SOCKET_H_
#define WEFT_DOORS_HTTP_CLIENT_SOCKET_H_

#include <boost/asio/ip/tcp.hpp>

#include "base/system.h"

namespace weft::serve {

// Detects a vanished client in about a minute.
inline void SetUpClientSocket(boost::asio::ip::tcp::socket* socket) {
  boost::system::error_code ignored;
  socket->set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  WatchPeer(socket->native_handle(), /*idle_s=*/30, /*interval_s=*/10, /*n_probes=*/3);
  // Data in the kernel's buffer cannot be seen to be unread. (The kernel doubles the number.)
  socket->set_option(boost::asio::socket_base::send_buffer_size(16 << 10), ignored);
}

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_CLIENT_SOCKET_H_
