// Replies of gpt-oss: messages, each with a header that states its channel and, for calls, its
// recipient.
//
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary
//   to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//
// The prompt ends with "<|start|>assistant", so the first header lacks that.
#include <string>
#include <utility>

#include "answer/reply/call_syntax.h"
#include "answer/reply/syntax.h"

namespace weft {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kEnd = "<|end|>";
// Message ends. The last two begin the next one's header.
constexpr std::string_view kEnds[] = {kEnd, "<|call|>", "<|return|>", kStart, kChannel};
constexpr size_t kMaxHeaderBytes = 512;
constexpr std::string_view kFunctions = "functions.";

struct Header {
  std::string_view channel;
  std::string_view recipient;  // empty: the user
};

std::string_view WordAfter(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view word = header.substr(at + mark.size());
  return word.substr(0, word.find_first_of(" <\n"));
}

Header ParseHeader(std::string_view header) {
  return {.channel = WordAfter(header, kChannel), .recipient = WordAfter(header, "to=")};
}

class HarmonyParser final : public ReplyParser {
 public:
  explicit HarmonyParser(const ReplyOptions& options) : options_(options), task_(ReadReply()) {
    io_.Start(&task_);
  }
  std::vector<ReplyDelta> Push(std::string_view text) override { return io_.Run(text, false); }
  std::vector<ReplyDelta> Finish(ReplyEnd end) override { return io_.Finish(end); }

 private:
  // How a message ended.
  enum class End { kText, kMessage, kHeader };

  ReplyTask<bool> ReadReply();
  ReplyTask<bool> TakeHeader();
  ReplyTask<bool> TakeHeaderStart();
  ReplyTask<End> ReadMessage();
  ReplyTask<bool> ReadCall();
  ReplyTask<End> ReadBody(ReplyDelta::Kind kind, bool shows_end);

  const ReplyOptions options_;
  Header header_;  // points into the held text
  ReplyIo io_;
  ReplyTask<bool> task_;
};

ReplyTask<bool> HarmonyParser::ReadReply() {
  End end = End::kMessage;
  while (end != End::kText) {
    // The held text begins a header, if the last message ended there.
    const bool has_header = co_await TakeHeader();
    if (has_header) {
      end = co_await ReadMessage();
    } else if (io_.is_cut() && !io_.held().empty()) {
      co_return true;  // a part of a header
    } else {
      io_.ShowHeld();
      end = co_await ReadBody(ReplyDelta::Kind::kContent, /*shows_end=*/false);
    }
  }
  co_return true;
}

// A header begins with a marker, a recipient or a role; anything else is text.
ReplyTask<bool> HarmonyParser::TakeHeaderStart() {
  constexpr std::string_view kBegins[] = {kStart, kChannel, kMessage, " to=", "assistant"};
  while (true) {
    bool may_be = false;
    for (const std::string_view begin : kBegins) {
      if (io_.held().starts_with(begin)) co_return true;
      may_be = may_be || begin.starts_with(io_.held());
    }
    if (!may_be) co_return false;
    const int c = co_await io_.Peek();
    if (c < 0) co_return false;
    io_.Take();
  }
}

ReplyTask<bool> HarmonyParser::TakeHeader() {
  const bool begins = co_await TakeHeaderStart();
  if (!begins) co_return false;
  while (!io_.held().ends_with(kMessage)) {
    const int c = co_await io_.Peek();
    if (c < 0 || io_.held().size() >= kMaxHeaderBytes) co_return false;
    io_.Take();
  }
  header_ = ParseHeader(io_.held());
  co_return true;
}

// Reads the message whose header is held.
ReplyTask<HarmonyParser::End> HarmonyParser::ReadMessage() {
  bool visible = false;  // shown as text, with its markers
  if (!header_.recipient.empty()) {
    if (options_.tools) {
      const bool ok = co_await ReadCall();
      if (ok) {
        io_.Forget();
        const End after = co_await ReadBody(ReplyDelta::Kind::kContent, /*shows_end=*/false);
        co_return after;
      }
      if (io_.is_cut()) co_return End::kText;
    }
    visible = true;
  }
  const bool reasoning = !visible && header_.channel == "analysis";
  if (visible || (reasoning && !options_.separate_reasoning)) {
    visible = true;
    io_.ShowHeld();
  }
  io_.Forget();
  const End end = co_await ReadBody(
      reasoning && !visible ? ReplyDelta::Kind::kReasoning : ReplyDelta::Kind::kContent, visible);
  co_return end;
}

ReplyTask<bool> HarmonyParser::ReadCall() {
  std::string_view name = header_.recipient;
  if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
  CallWriter call(&io_);
  if (!call.SetName(name)) co_return false;
  co_await TakeSpace(io_);
  const bool ok = co_await CopyJsonObject(io_, call);
  if (!ok) call.Complete();
  if (ok) co_await TakeSpace(io_);
  co_return ok;
}

// Text up to an end marker, which is shown too if `shows_end`.
ReplyTask<HarmonyParser::End> HarmonyParser::ReadBody(ReplyDelta::Kind kind, bool shows_end) {
  std::string open;  // a partial marker
  const auto give_out = [&](std::string_view text) {
    if (kind == ReplyDelta::Kind::kReasoning) {
      io_.Reasoning(text);
    } else {
      io_.Content(text);
    }
  };
  const auto may_end = [&](std::string_view text) {
    for (const std::string_view end : kEnds) {
      if (end.starts_with(text)) return true;
    }
    return false;
  };
  while (true) {
    const int c = co_await io_.Peek();
    if (c < 0) break;
    io_.Skip();
    open += static_cast<char>(c);
    size_t released = 0;
    while (!may_end(std::string_view(open).substr(released))) ++released;
    give_out(std::string_view(open).substr(0, released));
    open.erase(0, released);
    if (open == kStart || open == kChannel) {
      io_.HoldAgain(open);
      co_return End::kHeader;
    }
    for (const std::string_view end : kEnds) {
      if (open != end) continue;
      if (shows_end) give_out(open);
      co_return End::kMessage;
    }
  }
  if (!io_.is_cut() || open.size() < 2) give_out(open);  // else a part of a marker
  co_return End::kText;
}

}  // namespace

std::unique_ptr<ReplyParser> MakeHarmonyParser(const ReplyOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace weft
