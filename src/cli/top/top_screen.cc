#include "cli/top/top_screen.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/strings.h"
#include "cli/terminal/pull_meter.h"

namespace weft::cli {
namespace {

constexpr int64_t kHistoryUs = 300'000'000;
constexpr size_t kMinColumns = 20;
constexpr size_t kNameColumns = 24;
constexpr size_t kModelColumns = 16;  // of a conversation, where there are several

constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kPlainBars[] = {" ", ".", ".", ":", ":", "+", "+", "#", "#"};
constexpr int kMaxBar = 8;

std::string Bytes(int64_t bytes) {
  return HumanBytes(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

// `text` in a field of that many bytes, cut if it is longer.
std::string Field(std::string_view text, size_t width) {
  std::string field(text.substr(0, width));
  field.resize(width, ' ');
  return field;
}

std::string RightField(std::string_view text, size_t width) {
  if (text.size() >= width) return std::string(text);
  return StrCat(std::string(width - text.size(), ' '), text);
}

std::string StateWord(const ConversationView& view) {
  if (view.state == "parked") return "on disk";
  if (view.state == "poisoned") return "failed";
  if (view.state == "ready" || view.state == "running") return "idle";
  return view.state;
}

std::string Doing(const ConversationView& view) {
  if (view.waits_behind_tokens > 0) {
    return StrCat("waits for ", view.waits_behind_tokens, " tokens of other prompts");
  }
  if (view.state == "writing") {
    return StrCat(view.written_tokens, " tokens written; ", view.found_tokens, " of ",
                  view.prompt_tokens, " found");
  }
  if (view.is_running()) {
    const int64_t percent = view.done_tokens * 100 / std::max<int64_t>(1, view.prompt_tokens);
    std::string text = StrCat(percent, " % of ", view.prompt_tokens, " tokens");
    if (view.seconds_left > 0) {
      StrAppend(&text, ", ", HumanSeconds(std::llround(view.seconds_left)), " left");
    }
    return text;
  }
  return StrCat("last used ", HumanSeconds(view.idle_ms / 1000), " ago");
}

std::string ConversationLine(const ConversationView& view) {
  return StrCat(Field(view.name.empty() ? "(no name)" : view.name, kNameColumns), "  ",
                view.model.empty() ? "" : StrCat(Field(view.model, kModelColumns), "  "),
                Field(StateWord(view), 8), RightField(StrCat(view.tokens), 8), "  ", Doing(view));
}

std::string ModelLine(const ModelView& model) {
  return StrCat(Field(model.name, kNameColumns), "  ", Field(model.state, 9),
                RightField(model.memory_bytes > 0 ? Bytes(model.memory_bytes) : "-", 12),
                RightField(StrCat(model.requests), 10), "  ", StrJoin(model.adapters, ", "));
}

}  // namespace

void TopScreen::Add(const ServerView& view, int64_t now_us) {
  if (view.figures) {
    Reading reading = {.at_us = now_us,
                       .running = view.figures->turns_running,
                       .waiting = view.figures->turns_queued};
    if (view_.figures && !history_.empty()) {
      const double seconds = static_cast<double>(now_us - history_.back().at_us) / 1e6;
      reading.rates = RatesBetween(*view_.figures, *view.figures, seconds);
    }
    history_.push_back(reading);
    while (now_us - history_.front().at_us > kHistoryUs) history_.pop_front();
  }
  view_ = view;
}

std::string TopScreen::Chart(double (*value)(const Reading&), size_t columns, double* max) const {
  std::vector<double> sums(columns, 0), counts(columns, 0);
  const int64_t end_us = history_.back().at_us;
  for (const Reading& reading : history_) {
    const int64_t ago = end_us - reading.at_us;
    const auto column = static_cast<size_t>(ago * static_cast<int64_t>(columns) / (kHistoryUs + 1));
    sums[columns - 1 - column] += value(reading);
    counts[columns - 1 - column] += 1;
  }
  *max = 0;
  for (size_t i = 0; i < columns; ++i) {
    sums[i] /= std::max(1.0, counts[i]);
    *max = std::max(*max, sums[i]);
  }
  std::string chart;
  for (const double mean : sums) {
    // Whatever is not zero shows.
    const int bar =
        mean <= 0 ? 0
                  : std::clamp(static_cast<int>(std::lround(mean / *max * kMaxBar)), 1, kMaxBar);
    chart += (plain_ ? kPlainBars : kBars)[bar];
  }
  return chart;
}

void TopScreen::AddFigures(std::vector<std::string>* lines, size_t columns) const {
  if (!view_.figures) {
    lines->push_back("This key sees its own conversations only; the operator's key sees the rest.");
    return;
  }
  const ServerFigures& now = *view_.figures;
  const ServerRates rates = history_.empty() ? ServerRates{} : history_.back().rates;
  lines->push_back(LiveLine(now, rates, columns));
  lines->push_back(StrCat("memory: weights ", Bytes(now.weight_bytes), ", conversations ",
                          Bytes(now.state_bytes), ", working space ", Bytes(now.other_bytes)));
  if (now.disk_budget_bytes > 0) {
    lines->push_back(StrCat("disk: ", Bytes(now.disk_bytes), " of ", Bytes(now.disk_budget_bytes)));
  }
}

void TopScreen::AddModels(std::vector<std::string>* lines, size_t columns) const {
  if (view_.models.empty()) return;
  lines->push_back("");
  lines->push_back(StrCat(Field("MODEL", kNameColumns), "  ", Field("STATE", 9),
                          RightField("MAX MEMORY", 12), RightField("REQUESTS", 10), "  ADAPTERS"));
  for (const ModelView& model : view_.models) {
    lines->push_back(ModelLine(model).substr(0, columns));
  }
}

void TopScreen::AddCharts(std::vector<std::string>* lines, size_t columns) const {
  if (history_.empty()) return;
  struct Row {
    const char* name;
    double (*value)(const Reading&);
  };
  constexpr Row kRows[] = {
      {"written/s", [](const Reading& r) { return r.rates.written; }},
      {"read/s", [](const Reading& r) { return r.rates.computed; }},
      {"running", [](const Reading& r) { return static_cast<double>(r.running); }},
      {"waiting", [](const Reading& r) { return static_cast<double>(r.waiting); }}};
  constexpr size_t kLabel = 11, kMax = 8;
  lines->push_back("");
  lines->push_back(StrCat(Field("5 minutes", kLabel), std::string(columns - kLabel - kMax, ' '),
                          RightField("max", kMax)));
  for (const Row& row : kRows) {
    double max = 0;
    const std::string chart = Chart(row.value, columns - kLabel - kMax, &max);
    lines->push_back(
        StrCat(Field(row.name, kLabel), chart, RightField(StrCat(std::llround(max)), kMax)));
  }
}

std::vector<std::string> TopScreen::Lines(size_t columns, size_t rows) const {
  columns = std::max(columns, kMinColumns + 20);
  std::vector<std::string> lines = {title_};
  AddFigures(&lines, columns);
  AddModels(&lines, columns);
  AddCharts(&lines, columns);
  lines.push_back("");
  lines.push_back(StrCat(Field("CONVERSATION", kNameColumns), "  ",
                         view_.models.empty() ? "" : StrCat(Field("MODEL", kModelColumns), "  "),
                         Field("STATE", 8), RightField("TOKENS", 8), "  DOING"));
  const size_t n_free = rows > lines.size() + 2 ? rows - lines.size() - 2 : 1;
  const size_t n_shown = std::min(n_free, view_.conversations.size());
  for (size_t i = 0; i < n_shown; ++i) lines.push_back(ConversationLine(view_.conversations[i]));
  if (view_.conversations.empty()) lines.push_back("none");
  std::string rest;
  if (n_shown < view_.conversations.size()) {
    rest = StrCat(view_.conversations.size() - n_shown, " more");
  }
  if (view_.others_running > 0) {
    StrAppend(&rest, rest.empty() ? "" : "; ", view_.others_running, " running for other keys");
  }
  if (!rest.empty()) lines.push_back(rest);
  return lines;
}

}  // namespace weft::cli
