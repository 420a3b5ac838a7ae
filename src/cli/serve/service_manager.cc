#include "cli/serve/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/files/file_descriptor.h"

namespace weft::cli {

void TellServiceManager(std::string_view lines) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, length);
  // An abstract socket name.
  if (path[0] == '@') address.sun_path[0] = '\0';
  const FileDescriptor socket_fd(socket(AF_UNIX, SOCK_DGRAM, 0));
  if (!socket_fd.ok()) return;
  (void)fcntl(socket_fd.get(), F_SETFD, FD_CLOEXEC);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  [[maybe_unused]] const ssize_t sent = sendto(socket_fd.get(), lines.data(), lines.size(), 0,
                                               reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace weft::cli
