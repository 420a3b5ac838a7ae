#include "tests/property/program.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/kv_type.h"
#include "engine/sampling/random.h"
#include "tests/support/engine_harness.h"

namespace weft::testing {
namespace {

constexpr int kMostSessions = 6;
constexpr int64_t kLongSession = 220;  // then it goes back or starts over
constexpr int kStreams = 4;
constexpr int kStreamTokens = 400;
constexpr std::chrono::seconds kHang{40};  // below the engine's own limits

bool IsPrefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

std::vector<int32_t> First(const std::vector<int32_t>& tokens, int64_t n) {
  return {tokens.begin(), tokens.begin() + n};
}

}  // namespace

void ProgramCounts::Add(const ProgramCounts& other) {
  operations += other.operations;
  turns += other.turns;
  tokens += other.tokens;
  cancelled += other.cancelled;
  out_of_memory += other.out_of_memory;
  cached_tokens += other.cached_tokens;
  forks += other.forks;
  restores += other.restores;
  restarts += other.restarts;
  preemptions += other.preemptions;
  dropped += other.dropped;
  guessed_tokens += other.guessed_tokens;
  accepted_guesses += other.accepted_guesses;
}

Program::Program(std::shared_ptr<const Model> model, Oracle* oracle, uint64_t seed)
    : model_(std::move(model)), oracle_(oracle), random_(seed), random_drafts_(seed + 1) {
  if (model_->spec().prediction_head != nullptr) {
    auto head = Model::LoadHead(*model_, {.n_threads = 1});
    Expect(head.status(), "a head");
    if (head.ok()) head_ = *std::move(head);
  }
  // The streams are the same in all programs, so that the oracle's answers serve again.
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int32_t> token(3, static_cast<int32_t>(model_->n_vocab()) - 1);
  for (int i = 0; i < kStreams; ++i) {
    Tokens stream(kStreamTokens);
    for (int32_t& t : stream) t = token(random);
    // Two of them begin alike.
    if (i == 1) std::copy_n(streams_[0].begin(), 70, stream.begin());
    streams_.push_back(std::move(stream));
  }
  // With much that is forced, with nothing that is, and with an end that need not come.
  const ConstraintSpec rules[] = {
      {.text = R"({"type": "object", "properties": {"colour": {"enum": ["red", "green"]},
                   "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}},
                   "required": ["colour", "sizes"], "additionalProperties": false})"},
      {.kind = ConstraintSpec::Kind::kRegex, .text = "[a-f]{2,9}"},
      {.kind = ConstraintSpec::Kind::kGrammar, .text = "root ::= (\"over and \" | \"on \")+"}};
  for (const ConstraintSpec& rule : rules) {
    auto made = MakeConstraint(*model_, rule);
    Expect(made.status(), "a constraint");
    if (made.ok()) masks_.push_back(*std::move(made));
  }
}

Program::~Program() = default;

template <typename... Pieces>
void Program::Note(const Pieces&... pieces) {
  trace_.push_back(StrCat(pieces...));
}

template <typename... Pieces>
void Program::Fail(const Pieces&... pieces) {
  if (!failed()) failure_ = StrCat(pieces...);
}

void Program::Expect(const Status& status, std::string_view what) {
  if (!status.ok()) Fail(what, ": ", status.ToString());
}

std::string Program::Trace() const { return StrJoin(trace_, "\n"); }

std::string Program::Run() {
  ChooseOptions();
  Start();
  const int n = Uniform(7, 14);
  for (int i = 0; i < n && !failed(); ++i) {
    Step();
    ++counts_.operations;
    if (!failed()) CheckAccounts();
  }
  FinishAll();
  CompareAll();
  return failure_;
}

// --- the engine ------------------------------------------------------------------------

void Program::ChooseOptions() {
  static constexpr KvType kChoices[] = {KvType::kF32, KvType::kF16, KvType::kF16, KvType::kQ8_0};
  static constexpr int kPageTokens[] = {16, 32, 64};
  options_.n_threads = Uniform(1, 2);
  options_.kv_type = kChoices[Uniform(0, 3)];
  options_.page_tokens = kPageTokens[Uniform(0, 2)];
  options_.max_step_tokens = Chance(50) ? Uniform(4, 24) : Uniform(24, 128);
  options_.decode_stretch = Chance(50) ? 1.0 : 4.0;
  options_.max_running = Uniform(1, 6);
  options_.prefix_cache = Chance(75);
  options_.max_pending_events = Chance(20) ? Uniform(1, 4) : 1024;
  // A program that asks its oracle reads nothing meanwhile.
  options_.stalled_while_others_wait = kHang;
  options_.checkpoint_tokens = Chance(50) ? 0 : Uniform(1, 100);
  options_.checkpoint_share = Uniform(0, 10) / 10.0;
  options_.speculation = Chance(85) ? Speculation::kLookup : Speculation::kOff;
  options_.max_guesses = Chance(50) ? Uniform(1, 4) : Uniform(5, 24);
  if (dir_ == nullptr && Chance(70)) dir_ = std::make_unique<TempDir>();
  options_.state_dir = dir_ != nullptr ? dir_->path() : "";
  ChooseMemory();
  ChooseDrafts();
}

// The model drafts for itself: wherever that is wrong, another's drafts are too. It takes half of
// the memory. A model with a prediction head is drafted for by that.
void Program::ChooseDrafts() {
  memory_bytes_ = options_.memory_bytes;
  options_.draft_model = nullptr;
  options_.draft_at_any_cost = random_drafts_() % 4 != 0;
  const uint64_t percent = head_ != nullptr ? 90 : 40;
  if (options_.speculation == Speculation::kOff || random_drafts_() % 100 >= percent) return;
  options_.draft_model = head_ != nullptr ? head_ : model_;
  options_.speculation = random_drafts_() % 2 == 0 ? Speculation::kDraft : Speculation::kAuto;
  options_.memory_bytes = 2 * memory_bytes_;
}

void Program::ChooseMemory() {
  StateOptions state;
  state.kv_type = KvInfo(options_.kv_type).dtype;
  state.page_tokens = options_.page_tokens;
  const auto probe = model_->backend().NewState(*model_->weights(), state);
  if (!probe.ok() && options_.kv_type == KvType::kQ8_0) {  // heads not made of whole blocks
    options_.kv_type = KvType::kBF16;
    return ChooseMemory();
  }
  if (!probe.ok()) return Expect(probe.status(), "a store of state");
  layout_ = (*probe)->layout();
  options_.memory_bytes = int64_t{64} << 20;
  if (Chance(60)) {
    options_.memory_bytes = BytesFor(Uniform(30, Chance(50) ? 110 : 250));
    if (Chance(70)) options_.memory_bytes += Uniform(1, 12) * layout_.slot_bytes;
  }
}

// What a session of so many tokens may need at most: its pages, one copy, one to go on,
// and its slot.
int64_t Program::BytesFor(int64_t n_tokens) const {
  int64_t bytes = layout_.slot_bytes;
  for (const int64_t page : layout_.page_bytes) {
    bytes += page * ((n_tokens + options_.page_tokens - 1) / options_.page_tokens + 1);
  }
  return bytes;
}

void Program::Start() {
  Note("engine: threads ", options_.n_threads, ", kv ", static_cast<int>(options_.kv_type),
       ", page ", options_.page_tokens, ", step ", options_.max_step_tokens, ", running ",
       options_.max_running, ", memory ", options_.memory_bytes, " of ", BytesFor(1), " per page",
       options_.prefix_cache ? ", prefixes" : "", ", checkpoints every ",
       options_.checkpoint_tokens, " in ", options_.checkpoint_share,
       options_.state_dir.empty() ? "" : ", files", ", events ", options_.max_pending_events,
       ", guesses ", options_.speculation == Speculation::kOff ? 0 : options_.max_guesses,
       options_.draft_model == nullptr ? ""
       : options_.draft_at_any_cost    ? ", drafts"
                                       : ", few drafts");
  auto engine = Engine::Start(model_, options_);
  Expect(engine.status(), "start");
  if (engine.ok()) engine_ = *std::move(engine);
}

void Program::CheckAccounts() {
  if (engine_ == nullptr) return;
  Expect(engine_->CheckIntegrity(), "integrity");
  const EngineStats stats = engine_->Stats();
  const int64_t held = testing::StateBytes(stats);
  // Of a head's share only that it is the smaller one is known here.
  const bool has_head = head_ != nullptr && options_.draft_model == head_;
  const int64_t most = has_head ? options_.memory_bytes : memory_bytes_;
  if (held > most || held + stats.draft_state_bytes > options_.memory_bytes) {
    Fail("pages and slots take ", held, " bytes of ", most, ", and of a draft model ",
         stats.draft_state_bytes);
  }
  const double share = options_.checkpoint_share * static_cast<double>(most);
  if (static_cast<double>(stats.checkpoints * layout_.slot_bytes) > share) {
    Fail(stats.checkpoints, " checkpoints take more than ", share, " bytes");
  }
  if (stats.pages_in_index > stats.pages_used) Fail("more pages in the index than in use");
  if (!options_.prefix_cache && stats.pages_in_index + stats.checkpoints != 0) {
    Fail("an index that was not wanted");
  }
}

// --- choosing --------------------------------------------------------------------------

void Program::Step() {
  if (sessions_.empty()) return Create();
  Sess* const session = Pick();
  const int dice = Uniform(1, 100);
  if (dice <= 8) {
    if (static_cast<int>(sessions_.size()) < kMostSessions) return Create();
  } else if (dice <= 12) {
    return SubmitOnce();
  } else if (dice <= 19) {
    return CancelOne();
  } else if (dice <= 23) {
    if (session->flight) return Drain(session);
  } else if (dice <= 32) {
    if (static_cast<int>(sessions_.size()) < kMostSessions) return Fork(session);
  } else if (dice <= 38) {
    return Truncate(session, Uniform(0, static_cast<int>(session->tokens.size())));
  } else if (dice <= 40) {
    return Reset(session);
  } else if (dice <= 48) {
    return SaveOrPark(session, Chance(60));
  } else if (dice <= 51) {
    return Restore(session);
  } else if (dice <= 54) {
    return Rename(session);
  } else if (dice <= 58) {
    return Close(session);
  } else if (dice <= 60) {
    Note("drop prefixes");
    return Expect(engine_->DropPrefixes(), "drop prefixes");
  } else if (dice <= 64) {
    return Restart();
  }
  Submit(session);
  // Company for it, so that steps hold several turns.
  while (!failed() && Chance(65)) {
    if (static_cast<int>(sessions_.size()) < kMostSessions && Chance(40)) Create();
    Submit(Pick());
  }
}

Program::Sess* Program::Pick() {
  return sessions_[static_cast<size_t>(Uniform(0, static_cast<int>(sessions_.size()) - 1))].get();
}

std::string Program::NewName() { return StrCat("s", next_name_++); }

Program::Tokens Program::NewTokens(const Sess& session, int64_t at, int n) {
  Tokens tokens;
  const Tokens& stream = streams_[static_cast<size_t>(session.stream)];
  if (Chance(60) && at + n <= kStreamTokens) {
    tokens.assign(stream.begin() + at, stream.begin() + at + n);
    return tokens;
  }
  for (int i = 0; i < n; ++i) {
    tokens.push_back(Uniform(3, static_cast<int>(model_->n_vocab()) - 1));
  }
  return tokens;
}

TurnOptions Program::NewTurn(const Sess& session, Tokens* context) {
  TurnOptions turn;
  const int64_t length = static_cast<int64_t>(session.tokens.size());
  turn.tokens_are_whole_context = length > kLongSession || Chance(20);
  int64_t kept = length;
  if (turn.tokens_are_whole_context) {
    kept = Chance(30) ? length : Uniform(0, static_cast<int>(length));
    if (length > kLongSession) kept = Uniform(0, 100);
  }
  *context = First(session.tokens, kept);
  const bool nothing_new = kept > 0 && Chance(8);
  const Tokens fresh = nothing_new ? Tokens() : NewTokens(session, kept, Uniform(1, 60));
  context->insert(context->end(), fresh.begin(), fresh.end());
  turn.tokens = turn.tokens_are_whole_context ? *context : fresh;

  turn.max_tokens = Chance(80) ? Uniform(0, 10) : Uniform(11, 40);
  turn.top_logprobs = 2;
  turn.ignore_eos = Chance(30);
  turn.priority = Chance(80) ? 0 : Uniform(-1, 1);
  if (Chance(12)) turn.n_choices = Uniform(1, std::min(3, options_.max_running));
  if (Chance(50)) {
    const int n_chunks = Uniform(1, 3);
    for (int i = 0; i < n_chunks; ++i) turn.prompt_chunks.push_back(Uniform(1, 40));
  }
  SamplingOptions& sampling = turn.sampling;
  sampling.seed = static_cast<uint64_t>(Uniform(1, 1000));
  if (Chance(40)) {
    sampling.temperature = 0;
  } else {
    sampling.temperature = static_cast<float>(Uniform(5, 20)) / 10;
    sampling.top_k = Chance(50) ? 0 : Uniform(1, 40);
    sampling.top_p = Chance(50) ? 1.0f : 0.9f;
    sampling.min_p = Chance(50) ? 0.0f : 0.05f;
  }
  if (Chance(30)) {
    sampling.repetition_penalty = 1.2f;
    sampling.frequency_penalty = 0.1f;
    sampling.presence_penalty = Chance(50) ? 0.2f : 0.0f;
    sampling.penalty_window = Chance(30) ? -1 : Uniform(1, 64);
  }
  if (Chance(10)) sampling.logit_bias = {{Uniform(3, 300), 4.0f}, {Uniform(3, 300), -100.0f}};
  if (Chance(10)) {
    for (int i = 0; i < 40; ++i) turn.stop_tokens.push_back(Uniform(3, 500));
  }
  if (Chance(15)) {
    for (int i = Uniform(1, 3); i > 0; --i) {
      std::string stop(1, static_cast<char>(Uniform('a', 'z')));
      if (Chance(50)) stop += static_cast<char>(Uniform('a', 'z'));
      turn.stop_strings.push_back(std::move(stop));
    }
  }
  if (Chance(10)) turn.min_tokens = Uniform(0, static_cast<int>(turn.max_tokens));
  if (Chance(15)) {
    const int rule = Uniform(0, static_cast<int>(masks_.size()) - 1);
    turn.token_mask = masks_[static_cast<size_t>(rule)];
    turn.label = StrCat("rule ", rule);
    turn.ignore_eos = false;  // it ends when it is complete
    turn.max_tokens = Uniform(0, 30);
    turn.min_tokens = 0;
    if (Chance(60)) turn.top_logprobs = -1;  // then what is forced is computed together
  }
  AddGuesses(*context, &turn);
  return turn;
}

// Guesses by somebody who knows what will be said, and lies: never, now and then, or always.
void Program::AddGuesses(const Tokens& context, TurnOptions* turn) {
  // Without the same bits nothing is guessed.
  if (!model_->same_bits() || turn->max_tokens == 0 || Chance(45)) return;
  turn->speculation.least = Chance(80) ? 0 : Uniform(1, 4);
  if (Chance(20)) {
    turn->prediction = NewTokens({}, 0, Uniform(1, 40));
    return;
  }
  std::vector<Tokens> answers;
  for (int choice = 0; choice < turn->n_choices; ++choice) {
    const auto alone = oracle_->Ask(options_.kv_type, context, *turn, choice);
    answers.push_back(alone.ok() ? alone->Tokens() : Tokens());
  }
  static constexpr int kLies[] = {0, 5, 20, 50, 100};
  const uint64_t lies = static_cast<uint64_t>(kLies[Uniform(0, 4)]);
  const uint64_t seed = random_();
  const int32_t n_vocab = static_cast<int32_t>(model_->n_vocab());
  turn->guess = [=](int choice, std::span<const int32_t> generated) {
    const Tokens& answer = answers[static_cast<size_t>(choice)];
    Tokens guess;
    for (size_t at = generated.size(); at < generated.size() + 24; ++at) {
      // What follows the end is a lie in any case.
      const uint64_t dice = MixBits(seed ^ (at << 8) ^ (generated.size() << 32));
      const bool lie = at >= answer.size() || dice % 100 < lies;
      const auto other = static_cast<int32_t>((dice >> 8) % static_cast<uint64_t>(n_vocab));
      guess.push_back(lie ? other : answer[at]);
    }
    return guess;
  };
}

// --- turns -------------------------------------------------------------------------------

void Program::Create() {
  auto session = std::make_unique<Sess>();
  session->domain = Chance(60) ? "a" : "b";
  session->stream = Uniform(0, kStreams - 1);
  if (Chance(60)) session->name = NewName();
  const SessionOptions options{.name = session->name, .domain = session->domain};
  const auto id = engine_->CreateSession(options);
  Expect(id.status(), "create");
  if (!id.ok()) return;
  session->id = *id;
  Note("create ", sessions_.size(), " ", session->domain, "/", session->name);
  if (!session->name.empty() && Chance(20)) {
    if (engine_->CreateSession(options).status().code() != StatusCode::kAlreadyExists) {
      Fail("two sessions of one name");
    }
  }
  sessions_.push_back(std::move(session));
}

void Program::Submit(Sess* session) {
  Tokens context;
  // What a running session will say is not known; what is appended to it is.
  for (int i = 0; i < 4 && session->flight; ++i) session = Pick();
  if (session->flight && Chance(70)) return Drain(session);
  TurnOptions options = NewTurn(*session, &context);
  const auto turn = engine_->Submit(session->id, options);
  Note("turn on ", session->id.value & 0xFFFF, ": ", session->tokens.size(), " tokens, ",
       options.tokens_are_whole_context ? "whole " : "more ", options.tokens.size(), ", max ",
       options.max_tokens, ", n ", options.n_choices, ", temperature ",
       options.sampling.temperature, " -> ", turn.status().ToString());
  if (session->flight) {
    if (turn.ok()) {  // the former one had just ended
      Settle(*std::exchange(session->flight, std::nullopt), session);
      if (!options.tokens_are_whole_context) {
        context = session->tokens;
        context.insert(context.end(), options.tokens.begin(), options.tokens.end());
      }
    } else if (turn.status().code() == StatusCode::kResourceExhausted) {
      Settle(*std::exchange(session->flight, std::nullopt), session);
    } else if (turn.status().code() != StatusCode::kFailedPrecondition) {
      Fail("a turn on a running session: ", turn.status().ToString());
    }
  } else {
    ExpectAdmitted(turn.status(), context);
  }
  if (!turn.ok()) return;
  ++counts_.turns;
  session->flight = Flight{*turn, std::move(options), session->tokens, std::move(context), {}, {}};
}

// Only what can never fit is refused.
void Program::ExpectAdmitted(const Status& status, const Tokens& context) {
  if (status.code() == StatusCode::kResourceExhausted &&
      BytesFor(static_cast<int64_t>(context.size())) > memory_bytes_) {
    ++counts_.out_of_memory;
    return;
  }
  Expect(status, "submit");
}

void Program::SubmitOnce() {
  Sess nobody;
  nobody.domain = Chance(60) ? "a" : "b";
  nobody.stream = Uniform(0, kStreams - 1);
  Flight flight;
  flight.options = NewTurn(nobody, &flight.context);
  auto turn = engine_->SubmitOnce(nobody.domain, flight.options);
  Note("turn without a session: ", flight.context.size(), " tokens");
  ExpectAdmitted(turn.status(), flight.context);
  if (!turn.ok()) return;
  ++counts_.turns;
  flight.turn = *turn;
  once_.push_back(std::move(flight));
}

void Program::CancelOne() {
  Sess* session = Pick();
  if (!session->flight) Submit(session);
  if (!session->flight) return;
  Note("cancel ", session->id.value & 0xFFFF);
  if (Chance(70)) std::this_thread::sleep_for(std::chrono::microseconds(Uniform(0, 3000)));
  session->flight->turn->Cancel();
  ++counts_.cancelled;
  if (Chance(50)) Drain(session);
}

void Program::Drain(Sess* session) {
  if (!session->flight) return;
  Note("wait for ", session->id.value & 0xFFFF);
  Settle(*std::exchange(session->flight, std::nullopt), session);
  if (engine_ != nullptr) CheckTokens(session);
}

void Program::ReadToEnd(Flight* flight) {
  flight->record.choices.resize(static_cast<size_t>(flight->options.n_choices));
  const auto late = std::chrono::steady_clock::now() + kHang;
  while (!ReadSome(flight->turn.get(), &flight->record)) {
    for (auto& session : sessions_) {
      Flight* const other = session->flight ? &*session->flight : nullptr;
      if (other == nullptr || other == flight) continue;
      other->record.choices.resize(static_cast<size_t>(other->options.n_choices));
      ReadSome(other->turn.get(), &other->record);
    }
    for (Flight& other : once_) {
      if (&other == flight) continue;
      other.record.choices.resize(static_cast<size_t>(other.options.n_choices));
      ReadSome(other.turn.get(), &other.record);
    }
    if (std::chrono::steady_clock::now() > late) return Fail("a turn does not end");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  CheckRecord(&flight->record);
}

// Reads a turn to its end, and what its session holds from then on. Null: it had none.
void Program::Settle(Flight flight, Sess* session) {
  ReadToEnd(&flight);
  TurnRecord& record = flight.record;
  if (failed()) return;
  if (!record.protocol_error.empty()) return Fail(record.protocol_error);
  CheckEnd(flight);
  if (record.started) counts_.cached_tokens += record.started->cached_tokens;
  for (const ChoiceRecord& choice : record.choices) {
    counts_.tokens += static_cast<int64_t>(choice.events.size());
  }
  if (session != nullptr) {
    Tokens after = flight.before;
    if (record.started) {
      after = flight.context;
      const Tokens said = record.choices[0].Tokens();
      after.insert(after.end(), said.begin(), said.end());
    }
    for (const Tokens& fork : flight.forks) {
      if (!IsPrefix(fork, after) && !IsPrefix(fork, flight.before) &&
          !IsPrefix(fork, flight.context)) {
        Fail("a fork of a running session holds what was never said: ", TokensToString(fork),
             " of ", TokensToString(after));
      }
    }
    session->tokens = std::move(after);
    session->versions.push_back(session->tokens);
  }
  checks_.push_back({std::move(flight), options_.kv_type});
}

void Program::SettleOnce() {
  while (!once_.empty()) {
    Flight flight = std::move(once_.back());
    once_.pop_back();
    Settle(std::move(flight), nullptr);
  }
}

// A turn may only fail for a reason that is its own.
void Program::CheckEnd(const Flight& flight) {
  for (const ChoiceRecord& choice : flight.record.choices) {
    if (!choice.done || choice.done->reason != FinishReason::kError) continue;
    const Status& status = choice.done->status;
    const int64_t most = static_cast<int64_t>(flight.context.size()) + flight.options.max_tokens;
    if (status.code() == StatusCode::kResourceExhausted && BytesFor(most) > memory_bytes_) {
      ++counts_.out_of_memory;
    } else if (status.code() != StatusCode::kUnavailable || !shut_down_) {
      Fail("a turn of at most ", most, " tokens failed: ", status.ToString());
    }
  }
}

// --- sessions ------------------------------------------------------------------------------

// The engine may be parking the session, because memory is short, or have parked it.
Status Program::Insist(Sess* session, const std::function<Status()>& call) {
  Status status = call();
  for (int i = 0; i < 1000 && status.code() == StatusCode::kFailedPrecondition; ++i) {
    const Status restored = engine_->Restore(session->id);
    if (!restored.ok()) return restored;
    status = call();
  }
  return status;
}

std::optional<Program::Tokens> Program::ReadTokens(Sess* session) {
  Tokens tokens;
  const Status status = Insist(session, [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(tokens, engine_->Tokens(session->id));
    return OkStatus();
  });
  Expect(status, "reading a session's tokens");
  if (!status.ok()) return std::nullopt;
  return tokens;
}

void Program::CheckTokens(Sess* session) {
  if (failed()) return;
  const auto tokens = ReadTokens(session);
  if (tokens && *tokens != session->tokens) {
    Fail("a session holds ", TokensToString(*tokens), ", expected are ",
         TokensToString(session->tokens));
  }
}

void Program::Fork(Sess* session) {
  const Tokens& known = session->flight ? session->flight->context : session->tokens;
  int64_t position = Chance(25) ? -1 : Uniform(0, static_cast<int>(known.size()));
  auto fork = std::make_unique<Sess>();
  fork->domain = session->domain;
  fork->stream = session->stream;
  if (Chance(30)) fork->name = NewName();
  StatusOr<SessionId> id = SessionId{};
  const auto call = [&]() -> Status {
    id = engine_->Fork(session->id, position, {.name = fork->name, .domain = fork->domain});
    return id.status();
  };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("fork ", session->id.value & 0xFFFF, session->flight ? " (running)" : "", " at ", position,
       " -> ", status.ToString());
  if (!status.ok()) {
    // A running session may not have come so far yet, or be on its way from its file.
    const bool fine = session->flight && (status.code() == StatusCode::kOutOfRange ||
                                          status.code() == StatusCode::kFailedPrecondition);
    if (!fine) Expect(status, "fork");
    return;
  }
  ++counts_.forks;
  fork->id = *id;
  const auto tokens = ReadTokens(fork.get());
  if (!tokens) return;
  fork->tokens = *tokens;
  fork->versions.push_back(*tokens);
  if (session->flight) {
    session->flight->forks.push_back(*tokens);
  } else if (fork->tokens != (position < 0 ? known : First(known, position))) {
    Fail("a fork holds ", TokensToString(*tokens), " of ", TokensToString(known));
  }
  sessions_.push_back(std::move(fork));
}

void Program::Truncate(Sess* session, int64_t position) {
  const auto call = [&] { return engine_->Truncate(session->id, position); };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("back ", session->id.value & 0xFFFF, " to ", position, " -> ", status.ToString());
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
    // A turn on the whole context may have left less than that.
    if (status.code() == StatusCode::kOutOfRange &&
        position > static_cast<int64_t>(session->tokens.size())) {
      return;
    }
  }
  Expect(status, "truncate");
  if (failed()) return;
  session->tokens = First(session->tokens, position);
  session->versions.push_back(session->tokens);
  CheckTokens(session);
}

void Program::Reset(Sess* session) {
  const auto call = [&] { return engine_->Reset(session->id); };
  const Status status = session->flight ? call() : Insist(session, call);
  Note("reset ", session->id.value & 0xFFFF, " -> ", status.ToString());
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
  }
  Expect(status, "reset");
  session->tokens.clear();
  session->versions.push_back({});
  CheckTokens(session);
}

bool Program::CanSave(const Sess& session) const {
  return !session.name.empty() && !options_.state_dir.empty();
}

void Program::SaveOrPark(Sess* session, bool park) {
  const Status status = park ? engine_->Park(session->id) : engine_->Save(session->id);
  Note(park ? "park " : "save ", session->id.value & 0xFFFF, " -> ", status.ToString());
  if (!CanSave(*session)) {
    if (status.code() != StatusCode::kFailedPrecondition) Fail("parked: ", status.ToString());
    return;
  }
  if (session->flight) {
    if (status.code() == StatusCode::kFailedPrecondition) return;
    Settle(*std::exchange(session->flight, std::nullopt), session);
  }
  Expect(status, "save");
  session->versions = {session->tokens};
  session->saved = true;
  if (!park || failed()) return;
  const auto info = engine_->Inspect(session->id);
  Expect(info.status(), "inspect");
  if (info.ok() && (info->state != SessionState::kParked || info->pages != 0 ||
                    info->n_tokens != static_cast<int64_t>(session->tokens.size()))) {
    Fail("a parked session is ", NameOf(info->state), " with ", info->pages, " pages and ",
         info->n_tokens, " tokens");
  }
}

void Program::Restore(Sess* session) {
  const Status status = engine_->Restore(session->id);
  Note("restore ", session->id.value & 0xFFFF, " -> ", status.ToString());
  Expect(status, "restore");
  ++counts_.restores;
  if (!session->flight) CheckTokens(session);
}

void Program::Rename(Sess* session) {
  const Sess* const other = Pick();
  const bool taken =
      Chance(20) && other != session && !other->name.empty() && other->domain == session->domain;
  const std::string name = taken ? other->name : NewName();
  const Status status = engine_->Rename(session->id, name);
  Note("rename ", session->id.value & 0xFFFF, " to ", name, " -> ", status.ToString());
  if (taken) {
    if (status.code() != StatusCode::kAlreadyExists) Fail("took a name: ", status.ToString());
    return;
  }
  Expect(status, "rename");
  session->name = name;
  const auto found = engine_->FindSession(session->domain, name);
  if (!found.ok() || !(*found == session->id)) Fail("a renamed session is not found");
}

void Program::Close(Sess* session) {
  const bool forget = Chance(50);
  const Status status = engine_->Close(session->id, forget);
  Note("close ", session->id.value & 0xFFFF, forget ? " and forget" : "", " -> ",
       status.ToString());
  Expect(status, "close");
  if (session->flight) Settle(*std::exchange(session->flight, std::nullopt), session);
  if (engine_->Inspect(session->id).status().code() != StatusCode::kNotFound) {
    Fail("a closed session is found by its handle");
  }
  Sess closed = std::move(*session);
  std::erase_if(sessions_, [&](const auto& s) { return s.get() == session; });
  if (failed() || closed.name.empty()) return;
  if (!forget) return FindAgain(std::move(closed));
  if (engine_->FindSession(closed.domain, closed.name).ok()) Fail("a forgotten session is found");
}

// A session that was closed with its file kept, or whose engine was started again.
void Program::FindAgain(Sess closed) {
  const auto id = engine_->FindSession(closed.domain, closed.name);
  if (!id.ok()) {
    if (closed.saved) Fail("a saved session is lost: ", id.status().ToString());
    return;
  }
  auto session = std::make_unique<Sess>(std::move(closed));
  session->id = *id;
  const auto tokens = ReadTokens(session.get());
  if (!tokens) return;
  ++counts_.restores;
  if (std::find(session->versions.begin(), session->versions.end(), *tokens) ==
      session->versions.end()) {
    Fail("a session came back with ", TokensToString(*tokens));
  }
  session->tokens = *tokens;
  session->saved = true;
  sessions_.push_back(std::move(session));
}

void Program::Restart() {
  const int grace_ms = Chance(50) ? 0 : 5;
  Note("restart, grace ", grace_ms);
  ++counts_.restarts;
  shut_down_ = true;
  CountPressure();
  Expect(engine_->Shutdown(std::chrono::milliseconds(grace_ms)), "shutdown");
  for (auto& session : sessions_) {
    if (session->flight) Settle(*std::exchange(session->flight, std::nullopt), session.get());
  }
  SettleOnce();
  shut_down_ = false;
  engine_.reset();
  const bool had_files = !options_.state_dir.empty();
  ChooseOptions();
  Start();
  if (failed()) return;
  std::vector<std::unique_ptr<Sess>> before = std::move(sessions_);
  sessions_.clear();
  for (auto& session : before) {
    if (engine_->Inspect(session->id).ok()) Fail("a handle of another engine is accepted");
    if (session->name.empty() || !had_files) continue;
    // What is parked at the end is what was said last.
    session->saved = session->saved || !session->tokens.empty();
    session->versions = {session->tokens};
    FindAgain(std::move(*session));
  }
}

void Program::CountPressure() {
  const EngineStats stats = engine_->Stats();
  counts_.preemptions += stats.preemptions;
  counts_.dropped += stats.sessions_dropped;
  counts_.guessed_tokens += stats.guessed_tokens;
  counts_.accepted_guesses += stats.accepted_guesses;
}

// --- the end ---------------------------------------------------------------------------------

void Program::FinishAll() {
  if (engine_ == nullptr) return;
  Note("the end");
  for (auto& session : sessions_) {
    if (session->flight) Drain(session.get());
  }
  SettleOnce();
  for (auto& session : sessions_) {
    if (!failed()) CheckTokens(session.get());
    Expect(engine_->Close(session->id, /*forget=*/true), "close at the end");
  }
  if (failed()) return;
  CheckAccounts();
  Expect(engine_->DropPrefixes(), "drop prefixes at the end");
  const EngineStats stats = engine_->Stats();
  CountPressure();
  if (stats.pages_used != 0 || stats.slots_used != 0 || testing::StateBytes(stats) != 0) {
    Fail(stats.pages_used, " pages and ", stats.slots_used, " slots are in use after the end");
  }
  if (stats.turns_running != 0 || stats.turns_queued != 0) Fail("turns after the end");
  CheckAccounts();
}

void Program::CompareAll() {
  for (const Check& check : checks_) {
    if (failed()) return;
    if (check.flight.options.max_tokens == 0) continue;
    for (size_t choice = 0; choice < check.flight.record.choices.size(); ++choice) {
      const ChoiceRecord& got = check.flight.record.choices[choice];
      if (got.events.empty() && !got.complete()) continue;
      const auto difference = oracle_->Compare(check.kv_type, check.flight.context,
                                               check.flight.options, static_cast<int>(choice), got);
      Expect(difference.status(), "the oracle");
      if (!difference.ok()) return;
      if (!difference->empty()) {
        Fail("choice ", choice, " after ", TokensToString(check.flight.context), " (",
             check.flight.before.size(), " before the turn): ", *difference);
      }
    }
  }
}

}  // namespace weft::testing
