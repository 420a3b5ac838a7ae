#include "cli/terminal/pull_meter.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/clock.h"
#include "base/strings.h"
#include "base/terminal.h"

namespace weft::cli {
namespace {

using Stage = hub::Progress::Stage;

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kSilentUs = 2 * kSecond;
constexpr int64_t kLineEveryUs = 5 * kSecond;
constexpr int64_t kRedrawEveryUs = kSecond / 5;
constexpr int64_t kRateOverUs = kSecond;
// Weight of the previous rate in the moving average, per second.
constexpr double kMemory = 0.7;
// A narrow window shortens a name to this many characters, then leaves out the rate and the bytes.
constexpr size_t kMinName = 16;
constexpr size_t kMaxName = 60;
// What Printable may add to a text that it cuts.
constexpr size_t kCutMark = 6;

std::string StageText(Stage stage) {
  switch (stage) {
    case Stage::kWaiting:
      return ": another program is downloading it, ";
    case Stage::kChecking:
      return ": checking the partial download, ";
    case Stage::kUnpacking:
      return ": unpacking, ";
    default:
      return ": ";
  }
}

std::string ShareText(const hub::Progress& progress) {
  if (progress.total_bytes <= 0) return {};
  return StrCat(progress.done_bytes * 100 / progress.total_bytes, " %");
}

std::string AmountText(const hub::Progress& progress) {
  const std::string done =
      HumanBytes(static_cast<uint64_t>(std::max<int64_t>(0, progress.done_bytes)));
  if (progress.total_bytes <= 0) return done;
  return StrCat(", ", done, " of ", HumanBytes(static_cast<uint64_t>(progress.total_bytes)));
}

std::string RateText(const hub::Progress& progress, double bytes_per_s) {
  if (bytes_per_s < 1 || progress.total_bytes <= 0) return {};
  const auto left = static_cast<double>(progress.total_bytes - progress.done_bytes);
  return StrCat(", ", HumanBytes(static_cast<uint64_t>(bytes_per_s)), "/s, ",
                HumanSeconds(std::llround(left / bytes_per_s)), " left");
}

}  // namespace

std::string HumanSeconds(int64_t seconds) {
  if (seconds < 60) return StrCat(seconds, " s");
  if (seconds < 3600) return StrCat(seconds / 60, " min ", seconds % 60, " s");
  return StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
}

std::string ProgressLine(const hub::Progress& progress, double bytes_per_s, size_t columns) {
  if (progress.stage == Stage::kPackages) return StrCat("pip loads ", Printable(progress.name, 60));
  const std::string stage = StageText(progress.stage), share = ShareText(progress);
  std::string rest = StrCat(stage, share, AmountText(progress), RateText(progress, bytes_per_s));
  if (kMinName + rest.size() > columns) rest = StrCat(stage, share, AmountText(progress));
  if (kMinName + rest.size() > columns && !share.empty()) rest = StrCat(stage, share);
  const size_t room = std::max(kMinName, columns - std::min(columns, rest.size()));
  std::string name = Printable(progress.name, std::min(kMaxName, room));
  if (name.size() > room) name = Printable(progress.name, room - kCutMark);
  return name + rest;
}

void PullMeter::Begin(const hub::Progress& progress, int64_t now_us) {
  End();
  name_ = progress.name;
  stage_ = progress.stage;
  began_us_ = rated_us_ = now_us;
  rated_bytes_ = progress.done_bytes;
  bytes_per_s_ = 0;
  // While pip draws its own line, show ours only once.
  shown_us_ = terminal_ && stage_ == Stage::kPackages ? 0 : now_us;
}

void PullMeter::Show(const hub::Progress& progress) {
  const int64_t now_us = NowMicros();
  if (progress.name != name_ || progress.stage != stage_) Begin(progress, now_us);
  if (now_us - rated_us_ >= kRateOverUs) {
    const double rate = static_cast<double>(progress.done_bytes - rated_bytes_) * kSecond /
                        static_cast<double>(now_us - rated_us_);
    bytes_per_s_ = bytes_per_s_ == 0 ? rate : kMemory * bytes_per_s_ + (1 - kMemory) * rate;
    rated_us_ = now_us;
    rated_bytes_ = progress.done_bytes;
  }
  if (terminal_ && stage_ == Stage::kPackages) {
    if (shown_us_ == 0) std::fprintf(stderr, "%s\n", ProgressLine(progress, 0).c_str());
    shown_us_ = now_us;
    return;
  }
  if (now_us - shown_us_ < (terminal_ ? kRedrawEveryUs : kLineEveryUs)) {
    const bool is_first = !terminal_ && shown_us_ == began_us_ && now_us - began_us_ >= kSilentUs;
    if (!is_first) return;
  }
  shown_us_ = now_us;
  // A line that fills the window would wrap, and could not be redrawn.
  const auto window = terminal_ ? WindowOf(STDERR_FILENO) : std::nullopt;
  const std::string line =
      ProgressLine(progress, bytes_per_s_, window ? window->columns - 1 : SIZE_MAX);
  if (terminal_) {
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    line_is_open_ = true;
  } else {
    std::fprintf(stderr, "weft: %s\n", line.c_str());
  }
}

void PullMeter::End() {
  if (line_is_open_) std::fputs("\r\033[K", stderr);
  line_is_open_ = false;
}

}  // namespace weft::cli
