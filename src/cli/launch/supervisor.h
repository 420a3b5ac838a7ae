// Runs an agent in the foreground, and the server that was started for it.
//
// The agent has the terminal: it stays in this process's group, so that Ctrl-C and Ctrl-Z reach it
// from there. Other signals are passed on to it. The server is in a group of its own, since Ctrl-C
// in an agent must not end it, and ends with this object. One thread, the program's only one.
#ifndef WEFT_CLI_LAUNCH_SUPERVISOR_H_
#define WEFT_CLI_LAUNCH_SUPERVISOR_H_

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/status.h"
#include "cli/launch/plan.h"

namespace weft::cli {

// The file of a program: `name` itself if it has a slash, else the first one on PATH; empty if
// there is none that may be run.
std::string FindProgram(const std::string& name);

class Supervisor {
 public:
  // Blocks the signals that it waits for.
  static StatusOr<std::unique_ptr<Supervisor>> Create();
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts `weft serve` on a free port and waits until it is ready: its address. Shows on stderr
  // how that goes. `log_path`: a file that its log is appended to; empty: none.
  StatusOr<std::string> StartServer(const std::string& weft,
                                    const std::vector<std::string>& arguments,
                                    const std::string& log_path);

  // Runs the program until it ends: its exit code, or 128 and the signal that ended it.
  StatusOr<int> RunAgent(const std::string& path, const LaunchPlan& plan);

 private:
  Supervisor(const sigset_t& former, FileDescriptor signal_fd)
      : former_signals_(former), signal_fd_(std::move(signal_fd)) {}

  // Waits a moment for a signal, which it returns, or for the server's output; otherwise 0.
  int Wait();
  // Whether there was some.
  bool TakeServerOutput();
  void TakeServerLine(std::string_view line);
  bool ServerHasEnded();
  void StopServer();
  std::string WhyServerEnded() const;
  StatusOr<pid_t> Spawn(const std::string& path, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, int output_fd) const;

  const sigset_t former_signals_;
  const FileDescriptor signal_fd_;
  pid_t server_ = -1;
  FileDescriptor server_output_;
  FileDescriptor server_log_;
  std::string unfinished_line_;
  std::string last_line_;
  std::string address_;  // once the server is ready
};

}  // namespace weft::cli

#endif  // WEFT_CLI_LAUNCH_SUPERVISOR_H_
