#include "cli/chat/tables.h"

#include <algorithm>
#include <cmath>

#include "cli/chat/command.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

using Row = std::vector<std::string>;

std::string TableText(const std::vector<Row>& rows) {
  return StrCat(StrJoin(TableLines(rows, OutputColumns()), "\n"), "\n");
}

std::string MarkedName(const ChatRoom::Listed& item) {
  return StrCat(item.is_current ? "* " : "  ", Printable(item.name, 128));
}

std::string StateText(const ChatRoom::Listed& item) {
  return item.session ? std::string(NameOf(item.session->state)) : "saved";
}

// One decimal; "-" if there was nothing to measure.
std::string RateText(int64_t n, int64_t us) {
  if (n <= 0 || us <= 0) return "-";
  const int64_t tenths = std::llround(static_cast<double>(n) * 1e7 / static_cast<double>(us));
  return StrCat(tenths / 10, ".", tenths % 10);
}

std::string BytesText(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

Row StatsRow(const ChatRoom::Listed& item) {
  const SessionInfo info = item.session.value_or(SessionInfo());
  Row row = {MarkedName(item),
             StateText(item),
             StrCat(info.n_tokens),
             "-",
             StrCat(info.pages - info.shared_pages, "+", info.shared_pages),
             BytesText(info.state_bytes),
             "-",
             "-"};
  if (item.conversation == nullptr || !item.conversation->last_turn) return row;
  const TurnUsage& usage = *item.conversation->last_turn;
  row[3] = StrCat(usage.cached_tokens, "/", usage.prompt_tokens);
  row[6] = RateText(usage.prompt_tokens - usage.cached_tokens, usage.prompt_us);
  row[7] = RateText(usage.completion_tokens, usage.decode_us);
  return row;
}

}  // namespace

std::string ListText(const std::vector<ChatRoom::Listed>& list) {
  std::vector<Row> rows = {{"  name", "state", "tokens", "messages"}};
  for (const ChatRoom::Listed& item : list) {
    rows.push_back({MarkedName(item), StateText(item),
                    item.session ? StrCat(item.session->n_tokens) : "-",
                    item.conversation ? StrCat(item.conversation->messages.size()) : "-"});
  }
  return TableText(rows);
}

std::string StatsText(const std::vector<ChatRoom::Listed>& list, const EngineStats& stats) {
  // Cached tokens and speeds are for the last turn; pages are "own + shared".
  std::vector<Row> rows = {
      {"  name", "state", "tokens", "cached", "pages", "memory", "prompt tokens/s", "tokens/s"}};
  for (const ChatRoom::Listed& item : list) rows.push_back(StatsRow(item));
  std::string text = TableText(rows);
  StrAppend(&text, "sessions: ", stats.sessions_ready, " ready, ", stats.sessions_running,
            " running, ", stats.sessions_parked, " parked, ", stats.sessions_poisoned,
            " poisoned\n");
  StrAppend(&text, "memory: weights ", BytesText(stats.weight_bytes), ", pages ",
            BytesText(stats.page_bytes), ", slots ", BytesText(stats.slot_bytes), ", checkpoints ",
            BytesText(stats.checkpoint_bytes), ", scratch ", BytesText(stats.scratch_bytes), "\n");
  StrAppend(&text, "pages: ", stats.pages_used, " of ", stats.page_budget, " used, ",
            stats.pages_in_index, " in the prefix cache\n");
  StrAppend(&text, "tokens: ", stats.prompt_tokens, " of prompts computed, ", stats.cached_tokens,
            " found computed, ", stats.generated_tokens, " generated, in ", stats.steps,
            " steps\n");
  return text;
}

std::string HistoryText(const OpenChat& conversation) {
  std::string text;
  if (!conversation.system.empty()) StrAppend(&text, "system: ", conversation.system, "\n");
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    StrAppend(&text, i + 1, message.role == Role::kAssistant ? " model: " : " you: ",
              WithPictureNames(TextOf(message), conversation.pictures), "\n");
  }
  return text.empty() ? "no messages yet\n" : text;
}

std::string HelpText() {
  std::vector<Row> rows;
  for (const ChatHelp& help : ChatHelpLines()) rows.push_back({help.usage, help.summary});
  return TableText(rows);
}

}  // namespace weft::cli
