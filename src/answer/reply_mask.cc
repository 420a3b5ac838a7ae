#include "answer/reply_mask.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "answer/ask.h"
#include "answer/error_details.h"
#include "base/strings.h"
#include "base/unicode.h"
#include "constraint/constraint_cache.h"
#include "json/json_text.h"
#include "model/tokenizer/tokens_behind.h"

namespace weft::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// A mark in the middle of a character would leave half of it. But do not wait long for models that
// write no complete characters.
constexpr int64_t kMaxOver = 3;
bool EndsWithinCharacter(std::string_view text) {
  size_t behind = 0;  // bytes after the last one that begins a character
  while (behind < text.size() && behind < 4 && IsContinuationByte(text[text.size() - 1 - behind])) {
    ++behind;
  }
  return behind < text.size() && behind + 1 < AnnouncedLength(text[text.size() - 1 - behind]);
}

void Allow(TokenId token, std::span<uint32_t> allowed) {
  const auto at = static_cast<size_t>(token);
  allowed[at / 32] |= uint32_t{1} << (at % 32);
}

// Calls are written in their format's way, except where the answer's options insist.
constraint::ConstraintOptions Both(constraint::ConstraintOptions calls,
                                   const constraint::ConstraintOptions& answer) {
  if (answer.white_space == constraint::WhiteSpace::kCompact) {
    calls.white_space = answer.white_space;
  }
  return calls;
}

}  // namespace

StatusOr<std::shared_ptr<const constraint::Constraint>> CompileReply(
    const Model& model, const ChatFormat& chat, const ToolList& tools, CallPolicy policy,
    const ConstraintSpec* answer, std::string_view tenant) {
  constraint::ConstraintOptions options;
  std::string key = StrCat("reply ", chat.reply_format(), " ");
  if (answer != nullptr) {
    key += KeyOf(*answer);
    policy.answer = StructureOf(*answer);
    options = OptionsOf(*answer);
  }
  const bool must_call = policy.choice == CallPolicy::Choice::kRequired;
  for (const bool is_so : {must_call, policy.parallel, policy.may_think, policy.thinks_already}) {
    key += is_so ? '1' : '0';
  }
  for (const auto& tool : tools) key += CompactJson(tool->definition);
  for (const auto& [name, grammar] : policy.grammars) {
    StrAppend(&key, "\n", name, " ", grammar.size(), " ", grammar);
  }
  const auto make = [&](std::shared_ptr<const constraint::TokenTable> table)
      -> constraint::ConstraintCache::Made {
    WEFT_ASSIGN_OR_RETURN(const CallStructure reply, chat.CallsOf(tools, policy));
    return constraint::Constraint::Structured(
        reply.structure, tools.empty() ? options : Both(reply.options, options), std::move(table));
  };
  return model.constraints().Get(tenant, key, make);
}

StatusOr<constraint::ConstraintState> BeginAnswer(const Model& model, const AnswerRule& rule,
                                                  std::string_view begun, std::string_view tenant) {
  auto compiled = CompileConstraint(model, rule.spec, tenant);
  if (!compiled.ok()) {
    // Sending it again would fail again.
    return WithCode(
        WithParam(InvalidArgument(rule.field, ": ", Message(compiled.status())), rule.field),
        "invalid_value");
  }
  constraint::ConstraintState state = (*compiled)->Begin();
  if (!begun.empty() && !state.AdvanceText(begun)) {
    return WithParam(
        InvalidArgument("the begun answer cannot be continued to match what ", rule.field,
                        " requires, from byte ", state.AllowedPrefix(begun), " on"),
        "messages");
  }
  return state;
}

TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules) {
  if (!rules.restricts()) return nullptr;
  return [tokenizer = std::move(tokenizer), rules = std::move(rules)](int) {
    return std::make_unique<ReplyMask>(tokenizer, rules);
  };
}

ReplyMask::ReplyMask(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules)
    : tokenizer_(std::move(tokenizer)),
      marks_(std::move(rules.marks)),
      limit_(std::move(rules.thought)),
      call_end_(std::move(rules.call_end)),
      stage_(marks_.open.empty() || (limit_.tokens < 0 && call_end_.empty()) ? Stage::kAnswer
             : rules.thinks_already                                          ? Stage::kThinking
                                                                             : Stage::kBefore) {
  if (rules.reply) {
    reply_ = std::make_unique<ConstraintMask>(tokenizer_, *std::move(rules.reply));
  }
}

void ReplyMask::Look(int32_t token) {
  if (stage_ == Stage::kEnding) {
    if (++n_ending_ == ending_.size()) stage_ = Stage::kAnswer;
    return;
  }
  text_ += tokenizer_->Piece(token, /*render_special=*/true);
  if (stage_ == Stage::kBefore) {
    const std::string_view said =
        std::string_view(text_).substr(std::min(text_.find_first_not_of(kSpace), text_.size()));
    if (said.starts_with(marks_.open)) {
      text_ = said.substr(marks_.open.size());
      stage_ = Stage::kThinking;
    } else if (!marks_.open.starts_with(said)) {
      stage_ = Stage::kAnswer;
    }
    return;
  }
  ++n_thought_;
  const size_t kept = std::max(marks_.close.size(), call_end_.size()) + 8;
  if (text_.find(marks_.close) != text_.npos) {
    stage_ = Stage::kAnswer;
  } else if (text_.size() > 2 * kept) {
    text_.erase(0, text_.size() - kept);
  }
}

void ReplyMask::Follow(std::span<const int32_t> generated) {
  for (; n_seen_ < generated.size() && stage_ != Stage::kAnswer; ++n_seen_) {
    Look(generated[n_seen_]);
  }
}

// A reply with a form of its own determines what follows a thought. If it does not allow an end
// yet, the thought continues.
void ReplyMask::BeginEnding(std::span<const int32_t> generated) {
  const std::string& mark = reply_ == nullptr ? marks_.answer : marks_.close;
  const std::vector<int32_t> end = TokensBehind(*tokenizer_, mark, /*controls=*/true);
  if (end.empty()) {
    stage_ = Stage::kAnswer;
    return;
  }
  const auto may_end_with = [&](std::vector<int32_t> words) {
    words.insert(words.end(), end.begin(), end.end());
    if (reply_ != nullptr && !reply_->Allows(generated, words)) return false;
    ending_ = std::move(words);
    stage_ = Stage::kEnding;
    return true;
  };
  std::vector<int32_t> words;
  if (limit_.tokens > 0) words = TokensBehind(*tokenizer_, limit_.message);
  if (!may_end_with(std::move(words))) may_end_with({});
}

bool ReplyMask::IsLate() const {
  if (stage_ != Stage::kThinking || limit_.tokens < 0 || n_thought_ < limit_.tokens) return false;
  return !EndsWithinCharacter(text_) || n_thought_ >= limit_.tokens + kMaxOver;
}

bool ReplyMask::EndsWithCall() const {
  if (stage_ != Stage::kThinking || call_end_.empty()) return false;
  const size_t last = text_.find_last_not_of(kSpace);
  return last != text_.npos && std::string_view(text_).substr(0, last + 1).ends_with(call_end_);
}

void ReplyMask::Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) {
  Follow(generated);
  if (IsLate()) BeginEnding(generated);
  if (stage_ == Stage::kEnding) {
    std::fill(allowed.begin(), allowed.end(), 0u);
    Allow(ending_[n_ending_], allowed);
  } else if (reply_ != nullptr) {
    reply_->Apply(generated, allowed);
    if (!EndsWithCall()) return;
    for (const TokenId end : tokenizer_->EndsOfGeneration()) Allow(end, allowed);
  }
}

std::vector<int32_t> ReplyMask::Forced(std::span<const int32_t> generated) {
  Follow(generated);
  if (stage_ == Stage::kEnding) {
    return {ending_.begin() + static_cast<ptrdiff_t>(n_ending_), ending_.end()};
  }
  if (reply_ == nullptr || IsLate()) return {};
  return reply_->Forced(generated);
}

absl::Status ReplyMask::Problem() const {
  return reply_ == nullptr ? OkStatus() : reply_->Problem();
}

}  // namespace weft::serve
