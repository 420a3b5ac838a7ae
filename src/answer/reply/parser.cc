// The reply parser: text, reasoning and calls in turn.
#include <string>
#include <utility>
#include <vector>

#include "answer/reply/control_filter.h"
#include "answer/reply/lenient_parser.h"
#include "answer/reply/syntax.h"
#include "answer/reply/thought_calls.h"

namespace weft {
namespace {

// Longer white space is text, whatever follows.
constexpr size_t kMaxSpaceBytes = 4096;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

enum class Mark {
  kEnd,
  kReasoning,    // reasoning begins
  kCall,         // a call begins
  kCallWithTag,  // a call begins; the marker was its first tag
  kBareCall,     // a call may begin with the next byte
  kClose,        // the end of a call
  kSilent,       // meaningless markup
  kAddress,      // a message begins with whom it is for
  kOther,        // handled by a separate reader
};

struct Marker {
  std::string_view text;
  Mark mark = Mark::kOther;
  bool at_start = false;    // only if no text has come yet
  bool after_call = false;  // only directly after a call
};

// The state of a text reader.
struct TextState {
  bool seen = false;          // text has been emitted since the last markup
  bool after_markup = false;  // white space here belongs to the markup
  bool after_call = false;

  void AfterMarkup(bool call) { *this = {.after_markup = true, .after_call = call}; }
  void AfterText() { *this = {.seen = true}; }
};

struct TextRule {
  std::vector<Marker> markers;
  ReplyDelta::Kind kind = ReplyDelta::Kind::kContent;
  bool keeps_space = false;  // next to markers too
  bool bare_calls = false;
};

class Parser final : public ReplyParser {
 public:
  Parser(std::shared_ptr<const ReplySyntax> syntax, ParameterTypes types,
         const ReplyOptions& options, bool reasoning_is_open);

  std::vector<ReplyDelta> Push(std::string_view text) override { return io_.Run(text, false); }
  std::vector<ReplyDelta> Finish(ReplyEnd end) override { return io_.Finish(end); }

 private:
  ReplyTask<bool> ReadReply();
  ReplyTask<bool> ReadReasoning();
  ReplyTask<bool> ReadAddress();
  ReplyTask<bool> ReadCalls(Mark mark);
  ReplyTask<bool> ReadJsonCalls(bool needs_arguments);
  ReplyTask<bool> ReadMistralCalls();
  ReplyTask<bool> ReadPythonCalls();
  ReplyTask<Mark> ReadText(const TextRule& rule);
  bool IsActive(const Marker& marker) const;
  bool MayContinue(const TextRule& rule, std::string_view text) const;
  bool IsCutMarker(const TextRule& rule, std::string_view open) const;
  bool IsOtherJson(std::string_view held) const;
  void GiveOut(const TextRule& rule, std::string_view text);
  void Release(const TextRule& rule, char c);

  const std::shared_ptr<const ReplySyntax> syntax_;
  const ParameterTypes types_;
  const ReplyOptions options_;
  const bool reasoning_is_open_;
  TextRule content_, reasoning_;
  TextState state_;
  std::string spaces_;  // possibly part of markup
  ReplyIo io_;
  ReplyTask<bool> task_;
};

Parser::Parser(std::shared_ptr<const ReplySyntax> syntax, ParameterTypes types,
               const ReplyOptions& options, bool reasoning_is_open)
    : syntax_(std::move(syntax)),
      types_(std::move(types)),
      options_(options),
      reasoning_is_open_(reasoning_is_open && syntax_->reasoning),
      task_(ReadReply()) {
  if (syntax_->addresses) {
    content_.markers.push_back(
        {.text = syntax_->addresses->open, .mark = Mark::kAddress, .at_start = true});
  }
  if (syntax_->reasoning) {
    content_.markers.push_back(
        {.text = syntax_->reasoning->open, .mark = Mark::kReasoning, .at_start = true});
    reasoning_.markers.push_back({.text = syntax_->reasoning->close});
  }
  for (const std::string_view silent : syntax_->silent) {
    content_.markers.push_back({.text = silent, .mark = Mark::kSilent});
  }
  if (options_.separate_reasoning) {
    reasoning_.kind = ReplyDelta::Kind::kReasoning;
  } else {
    reasoning_.keeps_space = true;
  }
  if (options_.tools) {
    // The lenient layer handles this shape too, and knows the offered names.
    content_.bare_calls = syntax_->bare_calls && !options_.lenient_calls;
    for (size_t i = 0; i < syntax_->opens.size(); ++i) {
      content_.markers.push_back(
          {.text = syntax_->opens[i], .mark = i == 0 ? Mark::kCall : Mark::kCallWithTag});
    }
    if (syntax_->tags && syntax_->opens.size() == 1 && syntax_->form != CallForm::kTagged) {
      content_.markers.push_back({.text = syntax_->tags->function_open,
                                  .mark = Mark::kCallWithTag,
                                  .at_start = true,
                                  .after_call = true});
    }
    for (const std::string_view close : syntax_->closes) {
      content_.markers.push_back(
          {.text = close, .mark = Mark::kClose, .at_start = true, .after_call = true});
    }
  }
  io_.Start(&task_);
}

// --- text ------------------------------------------------------------------------------

bool Parser::IsActive(const Marker& marker) const {
  return (!marker.at_start || !state_.seen) && (!marker.after_call || state_.after_call);
}

bool Parser::MayContinue(const TextRule& rule, std::string_view text) const {
  for (const Marker& marker : rule.markers) {
    if (IsActive(marker) && marker.text.starts_with(text)) return true;
  }
  return false;
}

void Parser::GiveOut(const TextRule& rule, std::string_view text) {
  if (rule.kind == ReplyDelta::Kind::kReasoning) {
    io_.Reasoning(text);
  } else {
    io_.Content(text);
  }
}

// Handles a byte that is not markup.
void Parser::Release(const TextRule& rule, char c) {
  if (!rule.keeps_space && IsSpace(c)) {
    if (state_.after_markup && !state_.seen) return;
    spaces_ += c;
    if (spaces_.size() < kMaxSpaceBytes) return;
    GiveOut(rule, std::exchange(spaces_, {}));
  } else {
    GiveOut(rule, std::exchange(spaces_, {}));
    GiveOut(rule, {&c, 1});
  }
  state_.AfterText();
}

// Emits text up to a marker. The marker and the white space before it are then held.
ReplyTask<Mark> Parser::ReadText(const TextRule& rule) {
  std::string open;  // a partial marker
  spaces_.clear();
  while (true) {
    const int c = co_await io_.Peek();
    if (c < 0) break;
    if (c == '{' && rule.bare_calls && !state_.seen && open.empty()) {
      io_.HoldAgain(std::exchange(spaces_, {}));
      co_return Mark::kBareCall;
    }
    io_.Skip();
    open += static_cast<char>(c);
    while (!open.empty() && !MayContinue(rule, open)) {
      Release(rule, open.front());
      open.erase(0, 1);
    }
    for (const Marker& marker : rule.markers) {
      if (!IsActive(marker) || marker.text != open) continue;
      io_.HoldAgain(std::exchange(spaces_, {}) + open);
      co_return marker.mark;
    }
  }
  if (!IsCutMarker(rule, open)) GiveOut(rule, std::exchange(spaces_, {}) + open);
  co_return Mark::kEnd;
}

// Whether the text ended inside a marker of a call, which is not text then. A call's first marker
// may still be the beginning of a word, unless the reply was cut.
bool Parser::IsCutMarker(const TextRule& rule, std::string_view open) const {
  for (const Marker& marker : rule.markers) {
    if (!IsActive(marker) || !marker.text.starts_with(open)) continue;
    const bool begins = marker.mark == Mark::kCall || marker.mark == Mark::kCallWithTag;
    if (marker.mark == Mark::kClose || (begins && io_.is_cut() && open.size() > 1)) return true;
  }
  return false;
}

// Whether the held text is certainly not a call that was cut, but JSON of another kind.
bool Parser::IsOtherJson(std::string_view held) const {
  constexpr std::string_view kKey = "\"name\"";
  const size_t key = held.find(kKey);
  if (key == held.npos) return true;
  const size_t quote = held.find('"', key + kKey.size());
  if (quote == held.npos) return false;
  const std::string_view name = held.substr(quote + 1);
  const size_t end = name.find('"');
  return end == name.npos ? !types_.OffersLike(name) : !types_.Offers(name.substr(0, end));
}

ReplyTask<bool> Parser::ReadReply() {
  if (reasoning_is_open_) co_await ReadReasoning();
  while (true) {
    const Mark mark = co_await ReadText(content_);
    if (mark == Mark::kEnd) co_return true;
    if (mark == Mark::kClose || mark == Mark::kSilent) {
      io_.Forget();
      state_.AfterMarkup(/*call=*/mark == Mark::kClose);
    } else if (mark == Mark::kReasoning) {
      co_await ReadReasoning();
    } else if (mark == Mark::kAddress) {
      co_await ReadAddress();
    } else {
      const bool ok = co_await ReadCalls(mark);
      if (ok) {
        io_.Forget();
        state_.AfterMarkup(/*call=*/true);
      } else if (io_.is_cut() && (mark != Mark::kBareCall || !IsOtherJson(io_.held()))) {
        co_return true;
      } else {
        io_.ShowHeld();
        state_.AfterText();
      }
    }
  }
}

// Reads reasoning up to its end; its opening marker is held, unless it was in the prompt.
ReplyTask<bool> Parser::ReadReasoning() {
  if (options_.separate_reasoning) {
    io_.Forget();
  } else {
    io_.ShowHeld();
  }
  state_.AfterMarkup(/*call=*/false);
  const Mark mark = co_await ReadText(reasoning_);
  if (mark == Mark::kEnd) co_return true;
  if (options_.separate_reasoning) {
    io_.Forget();
    state_.AfterMarkup(/*call=*/false);
  } else {
    io_.ShowHeld();
    state_ = {};
  }
  co_return true;
}

// Reads a name and what ends it; its opening marker is held.
ReplyTask<bool> Parser::ReadAddress() {
  constexpr size_t kMaxNameBytes = 256;
  const Addresses& addresses = *syntax_->addresses;
  std::string name;
  bool ok = co_await TakeBefore(io_, addresses.close.substr(0, 1), kMaxNameBytes, &name);
  if (ok) ok = co_await TakeText(io_, addresses.close);
  if (!ok) {
    io_.ShowHeld();
    state_.AfterText();
  } else if (name == addresses.self) {
    co_await ReadReasoning();
  } else {
    io_.Forget();
    state_.AfterMarkup(/*call=*/false);
  }
  co_return ok;
}

// --- calls -----------------------------------------------------------------------------

ReplyTask<bool> Parser::ReadCalls(Mark mark) {
  bool ok = false;
  if (mark == Mark::kBareCall) {
    ok = co_await ReadJsonCall(io_, /*needs_arguments=*/true);
    co_return ok;
  }
  if ((mark == Mark::kCallWithTag && syntax_->tags) || syntax_->form == CallForm::kTagged) {
    ok = co_await ReadTaggedCall(io_, *syntax_->tags, types_);
    co_return ok;
  }
  co_await TakeSpace(io_);
  switch (syntax_->form) {
    case CallForm::kGemma:
      ok = co_await ReadGemmaCall(io_);
      break;
    case CallForm::kMistral:
      ok = co_await ReadMistralCalls();
      break;
    case CallForm::kPython:
      ok = co_await ReadPythonCalls();
      break;
    case CallForm::kDeepSeek:
      ok = true;
      if (mark == Mark::kCall) ok = co_await TakeText(io_, syntax_->opens[1]);
      if (ok) ok = co_await ReadDeepSeekCall(io_);
      break;
    case CallForm::kKimi:
      ok = true;
      if (mark == Mark::kCall) ok = co_await TakeText(io_, syntax_->opens[1]);
      if (ok) ok = co_await ReadKimiCall(io_);
      break;
    case CallForm::kFenced:
      ok = co_await TakeText(io_, "```json");
      if (ok) co_await TakeSpace(io_);
      if (ok) ok = co_await ReadJsonCalls(/*needs_arguments=*/false);
      break;
    default:
      ok = co_await ReadJsonCalls(/*needs_arguments=*/syntax_->bare_calls);
      break;
  }
  co_return ok;
}

// One object or an array of them; or a tagged call.
ReplyTask<bool> Parser::ReadJsonCalls(bool needs_arguments) {
  int c = co_await io_.Peek();
  bool ok = false;
  if (syntax_->tags && c == static_cast<unsigned char>(syntax_->tags->function_open[0])) {
    ok = co_await TakeText(io_, syntax_->tags->function_open);
    if (ok) ok = co_await ReadTaggedCall(io_, *syntax_->tags, types_);
    co_return ok;
  }
  if (c != '[') {
    ok = co_await ReadJsonCall(io_, needs_arguments);
    co_return ok;
  }
  io_.Take();
  while (true) {
    co_await TakeSpace(io_);
    ok = co_await ReadJsonCall(io_, needs_arguments);
    if (!ok) co_return false;
    co_await TakeSpace(io_);
    c = co_await io_.Peek();
    // Cut off between two calls.
    if (c == ReplyIo::kEnd) co_return true;
    if (c != ',' && c != ']') co_return false;
    io_.Take();
    if (c == ']') co_return true;
  }
}

// [{"name": ...}, ...] or NAME[CALL_ID]ID[ARGS]{...}, in which only NAME and {...} are mandatory.
ReplyTask<bool> Parser::ReadMistralCalls() {
  const int first = co_await io_.Peek();
  bool ok = false;
  if (first == '[' || first == '{') {
    ok = co_await ReadJsonCalls(/*needs_arguments=*/false);
    co_return ok;
  }
  CallWriter call(&io_);
  std::string name;
  ok = co_await TakeBefore(io_, "[{ \n", CallWriter::kMaxNameBytes, &name);
  if (!ok || !call.SetName(name)) co_return false;
  int c = co_await io_.Peek();
  if (c == '[') {
    io_.Take();
    c = co_await io_.Peek();
    if (c == 'C') {
      ok = co_await TakeText(io_, "CALL_ID]");
      std::string id;
      if (ok) ok = co_await TakeBefore(io_, "[{ \n", CallWriter::kMaxNameBytes, &id);
      if (ok) ok = co_await TakeText(io_, "[");
      if (!ok) co_return false;
      call.SetId(id);
    }
    ok = co_await TakeText(io_, "ARGS]");
    if (!ok) co_return false;
  }
  co_await TakeSpace(io_);
  ok = co_await CopyJsonObject(io_, call);
  if (!ok) call.Complete();
  co_return ok;
}

// [f(a=1), g()]; some models write an array of JSON objects instead.
ReplyTask<bool> Parser::ReadPythonCalls() {
  const int first = co_await io_.Peek();
  bool ok = false;
  if (first != '[') {
    if (first == '{') {
      ok = co_await ReadJsonCall(io_, /*needs_arguments=*/false);
    } else {
      ok = co_await ReadPythonCall(io_);
    }
    co_return ok;
  }
  io_.Take();
  while (true) {
    co_await TakeSpace(io_);
    int c = co_await io_.Peek();
    if (c == '{') {
      ok = co_await ReadJsonCall(io_, /*needs_arguments=*/false);
    } else {
      ok = co_await ReadPythonCall(io_);
    }
    if (!ok) co_return false;
    co_await TakeSpace(io_);
    c = co_await io_.Peek();
    if (c == ReplyIo::kEnd) co_return true;
    if (c != ',' && c != ']') co_return false;
    io_.Take();
    if (c == ']') co_return true;
  }
}

// --- the whole ---------------------------------------------------------------------------

std::unique_ptr<ReplyParser> WithoutControlTokens(std::unique_ptr<ReplyParser> parser,
                                                  const ReplySyntax& syntax,
                                                  const ReplyOptions& options) {
  std::vector<std::string> hidden = options.control_tokens;
  if (!options.separate_reasoning) {  // then its markers are part of the content
    if (syntax.form == CallForm::kHarmony) return parser;
    std::erase_if(hidden, [&](const std::string& text) {
      return syntax.reasoning && (syntax.reasoning->open.find(text) != std::string_view::npos ||
                                  syntax.reasoning->close.find(text) != std::string_view::npos);
    });
  }
  if (hidden.empty()) return parser;
  return MakeControlFilter(std::move(parser), std::move(hidden));
}

}  // namespace

std::unique_ptr<ReplyParser> MakeReplyParser(std::shared_ptr<const ReplySyntax> syntax,
                                             ParameterTypes types, const ReplyOptions& options,
                                             bool reasoning_is_open) {
  std::unique_ptr<ReplyParser> parser;
  if (syntax->form == CallForm::kHarmony) {
    parser = MakeHarmonyParser(options);
  } else {
    parser = std::make_unique<Parser>(syntax, types, options, reasoning_is_open);
  }
  const bool has_thoughts = syntax->reasoning && options.separate_reasoning;
  if (options.tools && has_thoughts && !syntax->opens.empty()) {
    const auto of_calls = [syntax, types, options] {
      return std::make_unique<Parser>(syntax, types, options, /*reasoning_is_open=*/false);
    };
    parser = MakeThoughtCalls(std::move(parser), syntax->opens, types, of_calls);
  }
  if (options.tools && options.lenient_calls) {
    parser = MakeLenientParser(std::move(parser), std::move(types));
  }
  return WithoutControlTokens(std::move(parser), *syntax, options);
}

}  // namespace weft
