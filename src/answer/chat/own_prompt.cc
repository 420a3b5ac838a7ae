#include "answer/chat/own_prompt.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

// A template that shows marks in odd places is not asked again and again.
constexpr int kMaxAttempts = 4;

// Letters and digits, which no template trims or escapes, and which no client can know.
std::string MarkFor(char kind, size_t i) {
  static const std::string salt = [] {
    std::random_device random;
    std::string digits;
    for (int n = 0; n < 16; ++n) digits += static_cast<char>('a' + random() % 26);
    return digits;
  }();
  return StrCat("Weft", std::string(1, kind), salt, i, "x");
}

// The earliest of `parts` in `text`, from `from` on.
size_t FindAny(std::string_view text, const std::vector<std::string>& parts, size_t from) {
  size_t found = text.npos;
  for (const std::string& part : parts) found = std::min(found, text.find(part, from));
  return found;
}

}  // namespace

OwnPrompt::OwnPrompt(const std::vector<const ChatMessage*>& messages,
                     const std::vector<OwnWords>& own, size_t n_fixed, OwnPromptRules rules)
    : rules_(std::move(rules)), messages_(messages), plain_(messages) {
  const size_t n = std::min(own.size(), messages.size() - std::min(n_fixed, messages.size()));
  for (size_t i = 0; i < n; ++i) {
    const OwnReply* const reply = own[i].reply.get();
    if (reply == nullptr) continue;
    plain_[i] = &made_.emplace_back(InOwnWords(*messages[i], *reply));
    messages_[i] = plain_[i];
    if (own[i].is_in_place && !reply->text.empty()) Mark(i, *reply);
  }
}

void OwnPrompt::Mark(size_t message, const OwnReply& reply) {
  Marked marked{.message = message, .reply = &reply, .mark = MarkFor('C', message)};
  ChatMessage& shown = made_.emplace_back(*plain_[message]);
  if (!reply.reasoning.empty()) {
    marked.reasoning_mark = MarkFor('R', message);
    shown.reasoning = marked.reasoning_mark;
  }
  // The reply has its content before its calls, but some templates write it elsewhere.
  shown.parts = {shown.calls.empty() ? marked.mark : ""};
  for (ToolCall& call : shown.calls) {
    call.arguments = nlohmann::ordered_json::object();
    call.arguments[marked.mark] = marked.mark;
  }
  messages_[message] = &shown;
  marked_.push_back(std::move(marked));
}

void OwnPrompt::Unmark(size_t i) {
  messages_[marked_[i].message] = plain_[marked_[i].message];
  marked_.erase(marked_.begin() + static_cast<std::ptrdiff_t>(i));
}

void OwnPrompt::DropMarks() {
  while (!marked_.empty()) Unmark(marked_.size() - 1);
}

bool OwnPrompt::Find(const Marked& marked, std::string_view text, size_t from,
                     Region* region) const {
  region->first = text.find(marked.mark, from);
  const size_t last = text.rfind(marked.mark);
  if (region->first == text.npos) return false;
  if (!marked.reasoning_mark.empty()) {
    const size_t reasoning = text.find(marked.reasoning_mark, from);
    if (reasoning == text.npos && !rules_.keep_hidden_reasoning) return false;
    region->first = std::min(region->first, reasoning);
  }
  // A message of several parts, e.g. one for each call, has other messages in between.
  if (FindAny(text, rules_.control_ends, region->first) < last) return false;
  region->end = FindAny(text, rules_.ends, last + marked.mark.size());
  return region->end != text.npos;
}

// Only white space and the marks around reasoning.
bool OwnPrompt::IsBare(std::string_view text) const {
  while (!(text = Trimmed(text)).empty()) {
    if (!rules_.open.empty() && text.starts_with(rules_.open)) {
      text.remove_prefix(rules_.open.size());
    } else if (!rules_.close.empty() && text.starts_with(rules_.close)) {
      text.remove_prefix(rules_.close.size());
    } else {
      return false;
    }
  }
  return true;
}

bool OwnPrompt::EndAtPrompt(const PromptEnd& prompt, std::string* out) const {
  const size_t base = prompt.bytes - prompt.tail.size();
  if (out->size() < base || HashOfPrompt(std::string_view(*out).substr(0, base)) != prompt.hash) {
    return false;
  }
  const std::string_view tail = prompt.tail;
  const auto differs = std::ranges::mismatch(std::string_view(*out).substr(base), tail);
  const size_t same = static_cast<size_t>(differs.in2 - tail.begin());
  // A reply's prompt may open reasoning, or say that there is none, where later ones show nothing,
  // or a call, whose mark may begin alike.
  const size_t longest = std::max(rules_.open.size(), rules_.close.size());
  size_t left_out = same - std::min(same, longest);
  while (left_out < same && !IsBare(tail.substr(left_out))) ++left_out;
  if (!IsBare(tail.substr(left_out))) return false;
  out->resize(base);
  *out += tail;
  return true;
}

bool OwnPrompt::Place(std::string* text, std::vector<TokenSpan>* spans) {
  std::string out;
  std::vector<TokenSpan> placed;
  size_t from = 0;
  for (size_t i = 0; i < marked_.size(); ++i) {
    const OwnReply& reply = *marked_[i].reply;
    Region region;
    bool fits = Find(marked_[i], *text, from, &region);
    if (fits) {
      out.append(*text, from, region.first - from);
      fits = EndAtPrompt(reply.prompt, &out);
    }
    if (!fits) {
      if (++attempts_ == kMaxAttempts) {
        DropMarks();
      } else {
        Unmark(i);
      }
      return false;
    }
    placed.push_back(
        {.begin = out.size(), .end = out.size() + reply.text.size(), .tokens = reply.tokens});
    out += reply.text;
    from = region.end;
  }
  out.append(*text, from);
  *text = std::move(out);
  *spans = std::move(placed);
  return true;
}

}  // namespace weft
