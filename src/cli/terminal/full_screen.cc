#include "cli/terminal/full_screen.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "base/unicode.h"

namespace weft::cli {
namespace {

// The other screen, without a cursor, and back.
constexpr char kEnter[] = "\033[?1049h\033[?25l";
constexpr char kLeave[] = "\033[?25h\033[?1049l";

volatile sig_atomic_t is_ended = 0;

void OnSignal(int) { is_ended = 1; }

// The first `columns` characters.
std::string_view Cut(std::string_view line, size_t columns) {
  size_t end = 0;
  for (size_t n = 0; end < line.size(); ++end) {
    if (!IsContinuationByte(line[end]) && n++ == columns) break;
  }
  return line.substr(0, end);
}

}  // namespace

bool FullScreen::IsPossible() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

FullScreen::FullScreen() {
  (void)tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  is_ended = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) (void)sigaction(signal, &action, nullptr);
  std::fputs(kEnter, stdout);
  std::fflush(stdout);
}

FullScreen::~FullScreen() {
  std::fputs(kLeave, stdout);
  std::fflush(stdout);
  (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) (void)::signal(signal, SIG_DFL);
}

WindowSize FullScreen::GetSize() { return WindowOf(STDOUT_FILENO).value_or(WindowSize()); }

void FullScreen::Draw(const std::vector<std::string>& lines) {
  const WindowSize size = GetSize();
  std::string text = "\033[H";
  const size_t n_lines = std::min(lines.size(), std::max<size_t>(size.rows, 1) - 1);
  for (size_t i = 0; i < n_lines; ++i) {
    text += Cut(lines[i], size.columns);
    text += "\033[K\n";
  }
  text += "\033[J";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool FullScreen::Wait(int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (is_ended == 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return true;
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ready == 0;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1) return false;
    constexpr std::string_view kEnding = "qQ\033\003\004";
    if (kEnding.find(key) != kEnding.npos) return false;
  }
  return false;
}

}  // namespace weft::cli
