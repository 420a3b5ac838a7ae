#include "constraint/constraint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "constraint/grammar/lark.h"
#include "constraint/regex/pattern.h"
#include "constraint/schema/schema_compiler.h"
#include "constraint/structure.h"
#include "constraint/walker.h"

namespace weft::constraint {
namespace {

Status MoreThan(const ConstraintOptions& limits) {
  return ResourceExhausted(
      "it takes more to compile than the limit of ", limits.max_work, " steps of work and ",
      HumanBytes(static_cast<uint64_t>(limits.max_bytes)), ": make it simpler");
}

StatusOr<std::unique_ptr<const Grammar>> FromTerminal(std::unique_ptr<Grammar> grammar,
                                                      const ConstraintOptions& options,
                                                      RegexId regex) {
  const RuleId start = grammar->AddRule();
  grammar->AddAlternative(start, {grammar->Terminal(regex)});
  const Status finished = grammar->Finish(start);
  if (grammar->pool().budget().exhausted()) return MoreThan(options);
  WEFT_RETURN_IF_ERROR(finished);
  return std::unique_ptr<const Grammar>(std::move(grammar));
}

std::unique_ptr<Grammar> EmptyGrammar(const ConstraintOptions& options) {
  auto grammar = std::make_unique<Grammar>();
  grammar->pool().budget().SetLimits(options.max_work, options.max_bytes);
  return grammar;
}

// Limits the machine steps for a text, by its length.
constexpr int64_t kTextSteps = 1'500'000, kByteSteps = 5'000;
int64_t MaxSteps(size_t bytes) { return kTextSteps + kByteSteps * static_cast<int64_t>(bytes); }

}  // namespace

Constraint::Constraint(const char* name, std::unique_ptr<const Grammar> grammar,
                       const ConstraintOptions& options, std::shared_ptr<const TokenTable> tokens)
    : name_(name),
      tokens_(std::move(tokens)),
      walker_(std::make_unique<ConstraintWalker>(std::move(grammar), tokens_.get(),
                                                 options.max_walk_bytes)) {}

Constraint::~Constraint() = default;

StatusOr<std::shared_ptr<const Constraint>> Constraint::Make(
    const char* name, std::unique_ptr<const Grammar> grammar, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  std::shared_ptr<const Constraint> made(
      new Constraint(name, std::move(grammar), options, std::move(tokens)));
  if (made->walker_->machine().exhausted()) return MoreThan(options);
  return made;
}

StatusOr<std::shared_ptr<const Constraint>> Constraint::JsonSchema(
    std::string_view schema, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  auto grammar = EmptyGrammar(options);
  const Status compiled = CompileSchema(schema, options, grammar.get());
  if (grammar->pool().budget().exhausted()) return MoreThan(options);
  WEFT_RETURN_IF_ERROR(compiled);
  return Make("the JSON schema", std::move(grammar), options, std::move(tokens));
}

StatusOr<std::shared_ptr<const Constraint>> Constraint::Regex(
    std::string_view pattern, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  auto grammar = EmptyGrammar(options);
  auto regex = WholeTextsMatching(&grammar->pool(), pattern);
  if (!regex.ok()) return Annotate(regex.status(), "regular expression: ");
  WEFT_ASSIGN_OR_RETURN(auto finished, FromTerminal(std::move(grammar), options, *regex));
  return Make("the regular expression", std::move(finished), options, std::move(tokens));
}

StatusOr<std::shared_ptr<const Constraint>> Constraint::FromGrammar(
    std::string_view text, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  auto grammar = EmptyGrammar(options);
  const auto root = AddGrammar(text, grammar.get());
  Status compiled = root.status();
  if (root.ok()) compiled = grammar->Finish(*root);
  if (grammar->pool().budget().exhausted()) return MoreThan(options);
  if (!compiled.ok()) return Annotate(compiled, "grammar: ");
  return Make("the grammar", std::move(grammar), options, std::move(tokens));
}

StatusOr<std::shared_ptr<const Constraint>> Constraint::Choice(
    std::span<const std::string> texts, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  if (texts.empty()) return InvalidArgument("choice: there is nothing to choose from");
  auto grammar = EmptyGrammar(options);
  const RegexId any = grammar->pool().AnyOf({texts.begin(), texts.end()});
  WEFT_ASSIGN_OR_RETURN(auto finished, FromTerminal(std::move(grammar), options, any));
  return Make("the choice", std::move(finished), options, std::move(tokens));
}

StatusOr<std::shared_ptr<const Constraint>> Constraint::Structured(
    const Structure& structure, const ConstraintOptions& options,
    std::shared_ptr<const TokenTable> tokens) {
  auto grammar = EmptyGrammar(options);
  std::vector<int32_t> ids;
  const Status compiled = CompileStructure(structure, options, grammar.get(), &ids);
  if (grammar->pool().budget().exhausted()) return MoreThan(options);
  WEFT_RETURN_IF_ERROR(compiled);
  std::vector<Control> controls;
  for (const TokenId id : ids) {
    const std::string_view text =
        id < tokens->size() ? tokens->ControlText(id) : std::string_view();
    if (text.empty()) return InvalidArgument("token ", id, " is no control token within answers");
    controls.push_back({std::string(text), ControlBytes(id)});
  }
  // If one control token's text is a prefix of another's, the longer one wins.
  std::ranges::sort(controls, [](const Control& a, const Control& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.bytes < b.bytes;
  });
  std::shared_ptr<Constraint> made(
      new Constraint("the form of the answer", std::move(grammar), options, std::move(tokens)));
  made->controls_ = std::move(controls);
  if (made->walker_->machine().exhausted()) return MoreThan(options);
  return std::shared_ptr<const Constraint>(std::move(made));
}

int64_t Constraint::bytes() const { return walker_->bytes(); }

int64_t Constraint::min_bytes() const { return walker_->min_bytes(); }

void Constraint::SetShare(int64_t bytes) const { walker_->SetShare(bytes); }

void Constraint::GiveBack() const {
  MutexLock lock(&walker_->mutex());
  walker_->GiveBack();
}

int64_t Constraint::work() const {
  MutexLock lock(&walker_->mutex());
  return walker_->work();
}

ConstraintState Constraint::Begin() const { return ConstraintState(shared_from_this()); }

StatusOr<ConstraintState> Constraint::Restore(std::string_view serialized) const {
  ConstraintState state = Begin();
  const auto broken = [] {
    return DataLoss("the constraint's state was not written by this constraint");
  };
  const auto number = [&](uint32_t* value) {
    if (serialized.size() < sizeof(*value)) return false;
    std::memcpy(value, serialized.data(), sizeof(*value));
    serialized.remove_prefix(sizeof(*value));
    return true;
  };
  uint32_t ended = 0, steps = 0;
  if (!number(&ended) || !number(&steps) || ended > 1 || steps > serialized.size() / 4)
    return broken();
  std::vector<uint32_t> sizes(steps);
  for (uint32_t& size : sizes) {
    if (!number(&size)) return broken();
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (ended == 1 && i + 1 == sizes.size()) break;
    if (sizes[i] > serialized.size()) return broken();
    if (!state.AdvanceBytes(serialized.substr(0, sizes[i]))) return broken();
    serialized.remove_prefix(sizes[i]);
  }
  if (!serialized.empty()) return broken();
  if (ended == 1) {
    if (steps == 0 || sizes.back() != 0 || !state.CanEnd()) return broken();
    state.ended_ = true;
    state.steps_.push_back({kDeadState, 0, state.Spent()});
  }
  return state;
}

ConstraintState::ConstraintState(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)) {
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  walker.RenewWhereFull();
  start_ = walker.machine().start();
  generation_ = walker.generation();
}

// Whether `steps` for `bytes` more of text exceed the limit, either for this text alone or together
// with the text before it.
bool ConstraintState::IsTooMuch(int64_t steps, size_t bytes) const {
  return steps > MaxSteps(bytes) || Spent() + steps > MaxSteps(text_.size() + bytes);
}

// REQUIRES: the walker's lock is held.
void ConstraintState::Refresh() const {
  ConstraintWalker& walker = *constraint_->walker_;
  walker.RenewWhereFull();
  if (generation_ == walker.generation()) return;
  WalkAgain();
  if (!walker.machine().exhausted()) return;
  // The automata also hold other answers' texts. Walk this text alone in fresh ones.
  walker.RenewWhereFull();
  WalkAgain();
}

// REQUIRES: the walker's lock is held.
void ConstraintState::WalkAgain() const {
  ConstraintWalker& walker = *constraint_->walker_;
  Machine& machine = walker.machine();
  const int64_t before = machine.bytes();
  generation_ = walker.generation();
  start_ = machine.start();
  machine.BeginCount(INT64_MAX);
  StateId state = start_;
  size_t at = 0;
  for (Step& step : steps_) {
    for (const size_t end = at + step.bytes; at < end; ++at) {
      state = machine.Step(state, static_cast<uint8_t>(text_[at]));
    }
    if (machine.bytes() - before > walker.max_text_bytes()) {
      limit_met_ = Limit::kMemory;
      state = kDeadState;
    }
    step.state = state;
  }
  if (ended_) steps_.back().state = kDeadState;
  walker.KeepAside(machine.bytes() - before);
}

bool ConstraintState::AdvanceBytes(std::string_view bytes) {
  if (ended_) return false;
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  // Retry once with fresh automata if the old ones ran out of memory halfway.
  for (int attempt = 0; attempt < 2; ++attempt) {
    Refresh();
    Machine& machine = walker.machine();
    machine.BeginCount(MaxSteps(bytes.size()));
    StateId state = Current();
    for (const char c : bytes) {
      state = machine.Step(state, static_cast<uint8_t>(c));
      if (IsTooMuch(machine.spent(), bytes.size())) {
        limit_met_ = Limit::kTextWork;
        state = kDeadState;
      }
      if (state == kDeadState) break;
    }
    if (state != kDeadState) {
      limit_met_ = Limit::kNone;
      text_.append(bytes);
      steps_.push_back({state, static_cast<uint32_t>(bytes.size()), Spent() + machine.spent()});
      walker.Publish();
      return true;
    }
    if (!machine.exhausted()) return false;
  }
  limit_met_ = Limit::kMemory;
  return false;
}

bool ConstraintState::AdvanceText(std::string_view text) {
  if (constraint_->controls_.empty()) return AdvanceBytes(text);
  if (ended_) return false;
  std::string bytes;
  bool readable = false;
  {
    ConstraintWalker& walker = *constraint_->walker_;
    MutexLock lock(&walker.mutex());
    for (int attempt = 0; attempt < 2 && !readable; ++attempt) {
      Refresh();
      StateId state = kDeadState;
      readable = Read(text, &bytes, &state) == text.size();
      if (!walker.machine().exhausted()) break;
    }
  }
  return readable && AdvanceBytes(bytes);
}

// REQUIRES: the walker's lock is held.
size_t ConstraintState::Read(std::string_view text, std::string* bytes, StateId* state) const {
  Machine& machine = constraint_->walker_->machine();
  const auto step = [&](StateId from, std::string_view piece) {
    for (const char c : piece) from = machine.Step(from, static_cast<uint8_t>(c));
    return from;
  };
  bytes->clear();
  machine.BeginCount(MaxSteps(text.size()));
  *state = Current();
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    std::string_view piece = rest.substr(0, 1);
    size_t length = 1;
    StateId next = kDeadState;
    for (const Constraint::Control& control : constraint_->controls_) {
      if (!rest.starts_with(control.text)) continue;
      next = step(*state, control.bytes);
      if (next == kDeadState) continue;
      piece = control.bytes;
      length = control.text.size();
      break;
    }
    if (next == kDeadState && piece[0] != kControlLead) next = step(*state, piece);
    if (IsTooMuch(machine.spent(), text.size())) next = kDeadState;
    if (next == kDeadState) return at;
    *state = next;
    bytes->append(piece);
    at += length;
  }
  return text.size();
}

std::string ConstraintState::text() const {
  std::string text;
  for (size_t at = 0; at < text_.size();) {
    const std::string_view rest = std::string_view(text_).substr(at);
    const TokenId id = ControlAt(rest);
    if (id == kNoToken) {
      const size_t end = text_.find(kControlLead, at);
      text.append(text_, at, end == text_.npos ? end : end - at);
      at = std::min(end, text_.size());
    } else {
      text.append(constraint_->tokens().ControlText(id));
      at += kControlSize;
    }
  }
  return text;
}

bool ConstraintState::Advance(TokenId token) {
  const TokenTable& tokens = constraint_->tokens();
  if (ended_ || token < 0 || token >= tokens.size()) return false;
  if (tokens.IsEnd(token)) {
    if (!CanEnd()) return false;
    ended_ = true;
    steps_.push_back({kDeadState, 0, Spent()});
    return true;
  }
  const std::string_view bytes = tokens.Bytes(token);
  if (bytes.empty() || bytes.size() > TokenTable::kMaxTokenBytes) return false;
  return AdvanceBytes(bytes);
}

size_t ConstraintState::AllowedPrefix(std::string_view text) const {
  if (ended_) return 0;
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  Refresh();
  StateId state = kDeadState;
  std::string bytes;
  return Read(text, &bytes, &state);
}

void ConstraintState::Rollback(size_t count) {
  WEFT_CHECK(count <= steps_.size(), "more is taken back than was taken");
  if (limit_met_ != Limit::kMemory) limit_met_ = Limit::kNone;
  for (; count > 0; --count) {
    text_.resize(text_.size() - steps_.back().bytes);
    steps_.pop_back();
    ended_ = false;
  }
}

void ConstraintState::FillMask(std::span<uint32_t> mask) const {
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  for (int attempt = 0; attempt < 2; ++attempt) {
    Refresh();
    const bool is_within = walker.masker().Fill(Current(), mask);
    walker.Publish();
    if (walker.machine().exhausted()) continue;
    if (!is_within) limit_met_ = Limit::kMaskWork;
    return;
  }
  limit_met_ = Limit::kMemory;
}

Status ConstraintState::LimitMet() const {
  const char* const name = constraint_->name_;
  switch (limit_met_) {
    case Limit::kNone:
      break;
    case Limit::kTextWork:
      return InvalidArgument(name, " takes more work for this answer than the limit of ",
                             kTextSteps, " steps and ", kByteSteps,
                             " for each byte: make it simpler");
    case Limit::kMaskWork:
      return InvalidArgument(name, " takes more work to find what may come next than the limit of ",
                             Masker::kMaxSteps, " steps: make it simpler");
    case Limit::kMemory:
      return InvalidArgument(
          name, " takes more memory for this answer than the limit of ",
          HumanBytes(static_cast<uint64_t>(constraint_->walker_->max_text_bytes())),
          ": make it simpler");
  }
  return OkStatus();
}

std::string ConstraintState::ForcedText(size_t most) const {
  std::string text;
  if (ended_) return text;
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  Refresh();
  Machine& machine = walker.machine();
  machine.BeginCount(MaxSteps(0));
  StateId state = Current();
  while (text.size() < most && !machine.Accepts(state) &&
         !IsTooMuch(machine.spent(), text.size())) {
    machine.Count(static_cast<int64_t>(machine.Threads(state).size()));
    const ByteSet first = machine.FirstBytes(state);
    if (first.Count() != 1 || machine.exhausted() || machine.IsOver()) break;
    int byte = 0;
    while (!first.Has(byte)) ++byte;
    if (static_cast<char>(byte) == kControlLead) break;
    state = machine.Step(state, static_cast<uint8_t>(byte));
    if (state == kDeadState) break;
    text.push_back(static_cast<char>(byte));
  }
  return text;
}

bool ConstraintState::CanEnd() const {
  if (ended_) return true;
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  Refresh();
  return walker.machine().Accepts(Current());
}

bool ConstraintState::IsComplete() const {
  if (ended_) return true;
  ConstraintWalker& walker = *constraint_->walker_;
  MutexLock lock(&walker.mutex());
  Refresh();
  return walker.machine().Accepts(Current()) && walker.machine().Threads(Current()).empty();
}

std::string ConstraintState::Serialize() const {
  std::string out;
  const auto number = [&](uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  number(ended_ ? 1 : 0);
  number(static_cast<uint32_t>(steps_.size()));
  for (const Step& step : steps_) number(step.bytes);
  return out + text_;
}

}  // namespace weft::constraint
