#include "answer/reply/lenient_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer/reply/call_markup.h"
#include "answer/reply/io.h"
#include "answer/reply/loose_call.h"
#include "answer/reply/task.h"
#include "answer/reply/text_place.h"

namespace weft {
namespace {

// Longer white space is text, whatever follows.
constexpr size_t kMaxSpaceBytes = 4096;

bool IsSpace(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Whether the text was cut inside an end tag or a closing fence.
bool EndsInClose(std::string_view held) {
  const size_t at = std::min(held.find_first_not_of(" \t\r\n"), held.size());
  return held.substr(at).starts_with("</") || held.substr(at).starts_with('`');
}

// Whether the text was cut inside a tag, past its first character.
bool EndsInTag(std::string_view held) {
  const size_t at = held.rfind('<');
  return at != held.npos && at + 1 < held.size();
}

// Scans content for calls. Items found by the format's own parser divide it into stretches, each
// read by its own task; the text place carries over.
class ContentScanner {
 public:
  explicit ContentScanner(ParameterTypes tools) : tools_(std::move(tools)) {}

  std::vector<ReplyDelta> Push(std::string_view text);
  // Ends the stretch. `call_follows`: because of a call in the format's own syntax. `end`: the
  // reply's, if it ends here.
  std::vector<ReplyDelta> End(bool call_follows, ReplyEnd end = ReplyEnd::kWhole);
  // A call in the format's own syntax has ended.
  void AfterOwnCall() {
    place_.PassCall();
    after_call_ = true;
  }
  // Something other than content or calls has ended.
  void AfterOther() {
    place_ = {};
    after_call_ = in_own_fence_ = has_text_ = false;
    unclosed_ = 0;
  }

 private:
  struct Stretch {
    ReplyIo io;
    std::optional<ReplyTask<bool>> task;
  };

  ReplyTask<bool> Scan();
  ReplyTask<bool> ScanSpace();
  ReplyTask<bool> ScanMarkup();
  ReplyTask<bool> ScanCalls();
  ReplyTask<bool> ScanNamedCall(const CallMarkup& markup);
  bool MayHoldMarkup(int c) const;
  bool MayHoldCalls() const;
  void TakeFence(const CallMarkup& fence, size_t held_before);
  void TakeOut(const std::vector<LooseCall>& calls);
  void Drop();
  void ShowHeld();
  void ShowNoCall();
  void EndStretch();
  ReplyIo& io() { return stretch_->io; }
  const ReplyIo& io() const { return stretch_->io; }
  bool holds_opens() const { return held_tags_ > 0 || held_fence_; }
  bool HoldsOnlySpace() const {
    return std::all_of(io().held().begin(), io().held().end(), IsSpace);
  }
  // Includes held white space.
  TextPlace Here() const {
    TextPlace here = place_;
    here.Pass(io().held());
    return here;
  }

  const ParameterTypes tools_;
  std::unique_ptr<Stretch> stretch_;
  bool call_follows_ = false;
  TextPlace place_;            // at the end of the emitted text
  bool has_text_ = false;      // text has been emitted
  bool after_call_ = false;    // only markup since the last call
  int unclosed_ = 0;           // opening tags removed with a call
  bool in_own_fence_ = false;  // inside a fence removed with a call
  // Held besides white space, waiting for a call.
  int held_tags_ = 0;
  bool held_fence_ = false;
};

std::vector<ReplyDelta> ContentScanner::Push(std::string_view text) {
  if (stretch_ == nullptr) {
    stretch_ = std::make_unique<Stretch>();
    stretch_->task.emplace(Scan());
    stretch_->io.Start(&*stretch_->task);
  }
  return stretch_->io.Run(text, /*at_end=*/false);
}

std::vector<ReplyDelta> ContentScanner::End(bool call_follows, ReplyEnd end) {
  if (stretch_ == nullptr) return {};
  call_follows_ = call_follows;
  std::vector<ReplyDelta> deltas = stretch_->io.Finish(end);
  stretch_.reset();
  return deltas;
}

// Emits the held text.
void ContentScanner::ShowHeld() {
  if (io().held().empty()) return;
  place_.Pass(io().held());
  io().ShowHeld();
  has_text_ = true;
  held_tags_ = 0;
  held_fence_ = after_call_ = false;
}

// The held text is not a call. But a call that was cut is not text either.
void ContentScanner::ShowNoCall() {
  if (io().is_cut()) {
    Drop();
  } else {
    ShowHeld();
  }
}

// Removes the held text along with the call before or after it.
void ContentScanner::Drop() {
  io().Forget();
  unclosed_ += held_tags_;
  in_own_fence_ = in_own_fence_ || held_fence_;
  held_tags_ = 0;
  held_fence_ = false;
}

void ContentScanner::TakeOut(const std::vector<LooseCall>& calls) {
  const std::string& held = io().held();
  place_.Pass(std::string_view(held).substr(0, held.find_first_not_of(" \t\r\n")));
  place_.PassCall();
  GiveOutCalls(calls, io());
  Drop();
  after_call_ = true;
}

void ContentScanner::EndStretch() {
  const bool cut_call = io().is_cut() && held_tags_ > 0;
  if (cut_call ||
      (after_call_ ? holds_opens() || HoldsOnlySpace() : call_follows_ && holds_opens())) {
    Drop();
  } else {
    ShowHeld();
  }
}

bool ContentScanner::MayHoldMarkup(int c) const {
  if (c == '<') return holds_opens() || after_call_ || Here().MayHoldMarkup();
  if (c != '`' || held_fence_) return false;
  const TextPlace here = Here();
  if (here.in_fence() || !here.MayHoldFence()) return false;
  return holds_opens() || after_call_ || here.MayHoldMarkup() || here.at_line_start();
}

bool ContentScanner::MayHoldCalls() const {
  return holds_opens() || after_call_ || Here().MayHoldObject();
}

ReplyTask<bool> ContentScanner::Scan() {
  while (true) {
    const int c = co_await io().Peek();
    if (c == ReplyIo::kEnd) break;
    if (IsSpace(c)) {
      co_await ScanSpace();
    } else if (MayHoldMarkup(c)) {
      co_await ScanMarkup();
    } else if ((c == '{' || c == '[') && MayHoldCalls()) {
      co_await ScanCalls();
    } else if (after_call_ && HoldsOnlySpace() && (c == '}' || c == ']')) {
      io().Take();
      io().Forget();  // one too many
    } else if (after_call_ && HoldsOnlySpace() && (c == ',' || c == ';')) {
      io().Take();  // between two calls
    } else {
      ShowHeld();
      if (c < 0) continue;
      const char byte = static_cast<char>(c);
      io().Skip();
      place_.Pass({&byte, 1});
      io().Content({&byte, 1});
      has_text_ = true;
      after_call_ = false;
    }
  }
  EndStretch();
  co_return true;
}

// White space before a call is removed with it. After a call it separates the text that follows
// from the text before.
ReplyTask<bool> ContentScanner::ScanSpace() {
  const bool drops = after_call_ && !has_text_ && io().held().empty();
  while (true) {
    const int c = co_await io().Peek();
    if (!IsSpace(c)) co_return true;
    if (drops) {
      io().Skip();
      continue;
    }
    io().Take();
    if (io().held().size() >= kMaxSpaceBytes) ShowHeld();
  }
}

ReplyTask<bool> ContentScanner::ScanMarkup() {
  const bool any_close = after_call_ && unclosed_ > 0;
  const size_t held_before = io().held().size();
  CallMarkup markup;
  co_await TakeCallMarkup(io(), tools_, any_close, &markup);
  switch (markup.kind) {
    case CallMarkup::Kind::kFence:
      TakeFence(markup, held_before);
      break;
    case CallMarkup::Kind::kOpen:
      ++held_tags_;
      break;
    case CallMarkup::Kind::kNamed:
      co_await ScanNamedCall(markup);
      break;
    case CallMarkup::Kind::kClose:
      if (after_call_ && !holds_opens()) {
        if (unclosed_ > 0) --unclosed_;
        io().Forget();
      } else {
        ShowHeld();
      }
      break;
    case CallMarkup::Kind::kCut:
      if (after_call_ && EndsInClose(io().held())) io().Forget();
      if (io().is_cut() && EndsInTag(io().held())) Drop();
      break;
    case CallMarkup::Kind::kNone:
      ShowHeld();
      break;
  }
  co_return true;
}

// A fence that opens, or the closing one of a fence removed with a call; there may be text in
// between.
void ContentScanner::TakeFence(const CallMarkup& fence, size_t held_before) {
  const bool closes = in_own_fence_ && !holds_opens() && fence.name.empty();
  in_own_fence_ = false;
  if (!closes) {
    held_fence_ = true;
    return;
  }
  if (after_call_) return io().Forget();
  io().HoldAgain(std::string(io().held(), 0, held_before));
  ShowHeld();
}

ReplyTask<bool> ContentScanner::ScanCalls() {
  std::vector<LooseCall> calls;
  const bool ok = co_await ReadLooseCalls(io(), tools_, &calls);
  if (ok) {
    TakeOut(calls);
  } else {
    ShowNoCall();
  }
  co_return true;
}

ReplyTask<bool> ContentScanner::ScanNamedCall(const CallMarkup& markup) {
  std::vector<LooseCall> calls(1);
  calls[0].name = markup.name;
  const bool ok = co_await ReadLooseArguments(io(), tools_, *markup.tags, calls.data());
  if (ok) {
    if (!io().held().ends_with(markup.tags->function_close)) ++held_tags_;
    TakeOut(calls);
  } else {
    ShowNoCall();
  }
  co_return true;
}

// --- the layer -------------------------------------------------------------------------

class LenientParser final : public ReplyParser {
 public:
  LenientParser(std::unique_ptr<ReplyParser> own, ParameterTypes tools)
      : own_(std::move(own)), content_(std::move(tools)) {}

  std::vector<ReplyDelta> Push(std::string_view text) override {
    std::vector<ReplyDelta> out;
    for (ReplyDelta& delta : own_->Push(text)) Take(std::move(delta), &out);
    return out;
  }
  std::vector<ReplyDelta> Finish(ReplyEnd end) override {
    std::vector<ReplyDelta> out;
    for (ReplyDelta& delta : own_->Finish(end)) Take(std::move(delta), &out);
    Give(content_.End(/*call_follows=*/false, end), &out);
    return out;
  }

 private:
  void Take(ReplyDelta delta, std::vector<ReplyDelta>* out);
  // Calls of both kinds share one numbering.
  void Give(std::vector<ReplyDelta> deltas, std::vector<ReplyDelta>* out);

  const std::unique_ptr<ReplyParser> own_;
  ContentScanner content_;
  int n_calls_ = 0;
};

void LenientParser::Give(std::vector<ReplyDelta> deltas, std::vector<ReplyDelta>* out) {
  for (ReplyDelta& delta : deltas) {
    if (delta.kind == ReplyDelta::Kind::kCallBegin) ++n_calls_;
    if (delta.call >= 0) delta.call = n_calls_ - 1;
    out->push_back(std::move(delta));
  }
}

void LenientParser::Take(ReplyDelta delta, std::vector<ReplyDelta>* out) {
  const ReplyDelta::Kind kind = delta.kind;
  if (kind == ReplyDelta::Kind::kContent) return Give(content_.Push(delta.text), out);
  Give(content_.End(/*call_follows=*/kind == ReplyDelta::Kind::kCallBegin), out);
  if (kind == ReplyDelta::Kind::kCallEnd) content_.AfterOwnCall();
  if (kind == ReplyDelta::Kind::kReasoning) content_.AfterOther();
  std::vector<ReplyDelta> own;
  own.push_back(std::move(delta));
  Give(std::move(own), out);
}

}  // namespace

std::unique_ptr<ReplyParser> MakeLenientParser(std::unique_ptr<ReplyParser> own,
                                               ParameterTypes tools) {
  return std::make_unique<LenientParser>(std::move(own), std::move(tools));
}

}  // namespace weft
