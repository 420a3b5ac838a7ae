#include "cli/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "base/clock.h"
#include "base/strings.h"
#include "base/system.h"

extern char** environ;

namespace weft::cli {
namespace {

constexpr int kLookMs = 500;
constexpr char kReady[] = "listening on ";
constexpr char kFailed[] = "weft: ";

constexpr int kPassedOn[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};

bool MayRun(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Whether the terminal itself sends Ctrl-C to this process's group, and so to the agent.
bool TerminalSignalsUs() {
  const FileDescriptor terminal(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal.ok() && tcgetpgrp(terminal.get()) == getpgrp();
}

std::vector<std::string> EnvironmentOf(const LaunchPlan& plan) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool ours = std::any_of(plan.variables.begin(), plan.variables.end(),
                                  [name](const auto& variable) { return variable.first == name; });
    if (!ours) all.emplace_back(text);
  }
  for (const auto& [name, value] : plan.variables) {
    if (value) all.push_back(StrCat(name, "=", *value));
  }
  return all;
}

std::vector<std::string> OwnEnvironment() { return EnvironmentOf({}); }

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// How a child starts: with the signals that this process had, and for a server with its output
// into a pipe, in its own group.
class SpawnPlan {
 public:
  SpawnPlan(const sigset_t& signals, int output_fd) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);  // ignored here
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    int flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    if (output_fd >= 0) {
      flags |= POSIX_SPAWN_SETPGROUP;
      posix_spawnattr_setpgroup(&attributes_, 0);
      posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
      posix_spawn_file_actions_adddup2(&actions_, output_fd, STDOUT_FILENO);
      posix_spawn_file_actions_adddup2(&actions_, output_fd, STDERR_FILENO);
    }
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// On a terminal, one line that says how long the server has been starting.
void ShowWait(int64_t start_us) {
  if (isatty(STDERR_FILENO) != 1) return;
  std::fprintf(stderr, "\r\033[Kstarting the server: %lld s",
               static_cast<long long>((NowMicros() - start_us) / 1'000'000));
  std::fflush(stderr);
}

void ClearWait() {
  if (isatty(STDERR_FILENO) == 1) std::fputs("\r\033[K", stderr);
}

}  // namespace

std::string FindProgram(const std::string& name) {
  if (name.find('/') != name.npos) return MayRun(name) ? name : "";
  const char* const path = std::getenv("PATH");
  if (path == nullptr) return "";
  for (const std::string_view folder : StrSplit(path, ':')) {
    const std::string file = StrCat(folder.empty() ? "." : folder, "/", name);
    if (MayRun(file)) return file;
  }
  return "";
}

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create() {
  sigset_t signals, former;
  sigemptyset(&signals);
  for (const int signal : kPassedOn) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  if (pthread_sigmask(SIG_BLOCK, &signals, &former) != 0) return Internal("cannot block signals");
  FileDescriptor signal_fd(OpenSignals(signals));
  if (!signal_fd.ok()) return ErrnoStatus(errno, "cannot wait for signals");
  return std::unique_ptr<Supervisor>(new Supervisor(former, std::move(signal_fd)));
}

Supervisor::~Supervisor() { StopServer(); }

StatusOr<pid_t> Supervisor::Spawn(const std::string& path,
                                  const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& environment,
                                  int output_fd) const {
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const SpawnPlan how(former_signals_, output_fd);
  pid_t child = -1;
  const int error = posix_spawn(&child, path.c_str(), how.actions(), how.attributes(),
                                Pointers(words).data(), Pointers(environment).data());
  if (error != 0) return ErrnoStatus(error, StrCat("cannot start ", Printable(path, 200)));
  return child;
}

int Supervisor::Wait() {
  pollfd fds[] = {{.fd = signal_fd_.get(), .events = POLLIN},
                  {.fd = server_output_.get(), .events = POLLIN}};
  if (poll(fds, std::size(fds), kLookMs) <= 0) return 0;
  if (fds[1].revents != 0) TakeServerOutput();
  return (fds[0].revents & POLLIN) != 0 ? TakeSignal(signal_fd_.get()) : 0;
}

bool Supervisor::TakeServerOutput() {
  char bytes[4096];
  const ssize_t n = read(server_output_.get(), bytes, sizeof(bytes));
  if (n == 0) server_output_ = FileDescriptor();  // poll would return at once
  if (n <= 0) return false;
  const std::string_view text(bytes, static_cast<size_t>(n));
  if (server_log_.ok()) {
    [[maybe_unused]] const ssize_t written = write(server_log_.get(), text.data(), text.size());
  }
  unfinished_line_ += text;
  for (size_t end; (end = unfinished_line_.find('\n')) != unfinished_line_.npos;) {
    TakeServerLine(std::string_view(unfinished_line_).substr(0, end));
    unfinished_line_.erase(0, end + 1);
  }
  return true;
}

void Supervisor::TakeServerLine(std::string_view line) {
  if (line.find_first_not_of(" \r\t") == line.npos) return;
  last_line_ = line;
  if (!address_.empty()) return;
  if (line.starts_with(kReady)) {
    address_ = line.substr(sizeof(kReady) - 1);
  } else if (!line.starts_with(kFailed)) {
    ClearWait();
    std::fprintf(stderr, "%s\n", Printable(line, 500).c_str());
  }
}

bool Supervisor::ServerHasEnded() {
  if (server_ > 0 && waitpid(server_, nullptr, WNOHANG) == server_) {
    while (TakeServerOutput()) {
    }
    server_ = -1;
  }
  return server_ < 0;
}

std::string Supervisor::WhyServerEnded() const {
  std::string_view line = last_line_;
  if (line.starts_with(kFailed)) line.remove_prefix(sizeof(kFailed) - 1);
  return line.empty() ? "it said nothing" : Printable(line, 500);
}

void Supervisor::StopServer() {
  if (server_ < 0) return;
  kill(server_, SIGTERM);
  while (!ServerHasEnded()) {
    const int signal = Wait();
    // A second signal ends the server at once.
    if (signal != 0 && signal != SIGCHLD) kill(server_, SIGTERM);
  }
}

StatusOr<std::string> Supervisor::StartServer(const std::string& weft,
                                              const std::vector<std::string>& arguments,
                                              const std::string& log_path) {
  if (!log_path.empty()) {
    server_log_ =
        FileDescriptor(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!server_log_.ok()) return ErrnoStatus(errno, Printable(log_path, 300));
  }
  int ends[2];
  if (MakePipe(ends) != 0) return ErrnoStatus(errno, "cannot make a pipe");
  server_output_ = FileDescriptor(ends[0]);
  // A child of the server's may hold the other end for longer than the server lives.
  (void)fcntl(server_output_.get(), F_SETFL, O_NONBLOCK);
  const FileDescriptor output(ends[1]);
  WEFT_ASSIGN_OR_RETURN(server_, Spawn(weft, arguments, OwnEnvironment(), output.get()));
  const int64_t start_us = NowMicros();
  while (address_.empty()) {
    ShowWait(start_us);
    const int signal = Wait();
    if (signal == SIGCHLD || signal == 0) {
      if (address_.empty() && ServerHasEnded()) {
        ClearWait();
        return FailedPrecondition("the server did not start: ", WhyServerEnded());
      }
      continue;
    }
    ClearWait();
    StopServer();
    return FailedPrecondition("interrupted while the server was starting");
  }
  ClearWait();
  return address_;
}

StatusOr<int> Supervisor::RunAgent(const std::string& path, const LaunchPlan& plan) {
  WEFT_ASSIGN_OR_RETURN(const pid_t agent,
                        Spawn(path, plan.arguments, EnvironmentOf(plan), /*output_fd=*/-1));
  const bool has_server = server_ > 0;
  while (true) {
    const int signal = Wait();
    const bool from_terminal = signal == SIGINT || signal == SIGQUIT;
    if (signal != 0 && signal != SIGCHLD && !(from_terminal && TerminalSignalsUs())) {
      kill(agent, signal);
    }
    int status = 0;
    if (waitpid(agent, &status, WNOHANG | WUNTRACED) != agent) continue;
    if (WIFSTOPPED(status)) {
      // It stopped itself, as for Ctrl-Z: so do we, for the shell to see, until that continues us.
      kill(getpid(), SIGSTOP);
      kill(agent, SIGCONT);
      continue;
    }
    if (has_server && ServerHasEnded()) {
      std::fprintf(stderr, "weft: the server ended before the agent: %s\n",
                   WhyServerEnded().c_str());
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

}  // namespace weft::cli
