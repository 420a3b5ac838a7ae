// Reports our status to the service manager that started us, e.g. systemd: a datagram to the socket
// named in NOTIFY_SOCKET. Any thread.
#ifndef WEFT_CLI_SERVE_SERVICE_MANAGER_H_
#define WEFT_CLI_SERVE_SERVICE_MANAGER_H_

#include <string_view>

namespace weft::cli {

// Lines of NAME=VALUE as in sd_notify(3). Does nothing if no socket is set or nobody listens.
void TellServiceManager(std::string_view lines);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVICE_MANAGER_H_
