// Telling the service manager that started us, such as systemd, how we are: a datagram to the
// socket that it names in NOTIFY_SOCKET. Any thread.
#ifndef WEFT_CLI_SERVE_SERVICE_MANAGER_H_
#define WEFT_CLI_SERVE_SERVICE_MANAGER_H_

#include <string_view>

namespace weft::cli {

// Lines of NAME=VALUE as sd_notify(3) lists them. Nothing happens when nobody asked to be told,
// or does not listen.
void TellServiceManager(std::string_view lines);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVICE_MANAGER_H_
