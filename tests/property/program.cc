#include "tests/property/program.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/sampling/random.h"
#include "tests/support/engine_harness.h"

namespace weft::testing {
namespace {

constexpr int kMaxSessions = 6;
constexpr int64_t kLongSession = 220;  // then it goes back or starts over
constexpr int kStreams = 4;
constexpr int kStreamTokens = 400;

}  // namespace

void ProgramCounts::Add(const ProgramCounts& other) {
  operations += other.operations;
  turns += other.turns;
  tokens += other.tokens;
  rows += other.rows;
  adapted += other.adapted;
  invocations += other.invocations;
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
    : model_(std::move(model)),
      oracle_(oracle),
      random_(seed),
      random_drafts_(seed + 1),
      random_rows_(seed + 2),
      random_adapters_(seed + 3),
      with_rows_(model_->CheckTakesRows().ok() && random_rows_() % 2 == 0) {
  if (model_->spec().prediction_head != nullptr) {
    auto head = Model::LoadHead(*model_, {.n_threads = 1});
    Expect(head.status(), "a head");
    if (head.ok()) head_ = *std::move(head);
  }
  // The streams are the same in all programs, so that the oracle's cached results are reused.
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int32_t> token(3, static_cast<int32_t>(model_->n_vocab()) - 1);
  for (int i = 0; i < kStreams; ++i) {
    Tokens stream(kStreamTokens);
    for (int32_t& t : stream) t = token(random);
    // Two of them begin alike.
    if (i == 1) std::copy_n(streams_[0].begin(), 70, stream.begin());
    streams_.push_back(std::move(stream));
  }
  // One with many forced tokens, one with none, and one that need not end.
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

// --- choosing --------------------------------------------------------------------------

void Program::Step() {
  if (sessions_.empty()) return Create();
  Sess* const session = Pick();
  const int dice = Uniform(1, 100);
  if (dice <= 8) {
    if (static_cast<int>(sessions_.size()) < kMaxSessions) return Create();
  } else if (dice <= 12) {
    return SubmitOnce();
  } else if (dice <= 19) {
    return CancelOne();
  } else if (dice <= 23) {
    if (session->flight) return Drain(session);
  } else if (dice <= 32) {
    if (static_cast<int>(sessions_.size()) < kMaxSessions) return Fork(session);
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
  // More turns, so that steps hold several.
  while (!failed() && Chance(65)) {
    if (static_cast<int>(sessions_.size()) < kMaxSessions && Chance(40)) Create();
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

// Replaces some of the session's tokens by rows: either the same ones of a stream every time, so
// that other sessions share them, or random ones.
void Program::PutRows(int64_t at, Tokens* given) {
  if (!with_rows_ || random_rows_() % 3 == 0) return;
  if (RowsHeld() + std::ssize(*given) > max_rows_) return;
  const bool as_the_stream_has_them = random_rows_() % 2 == 0;
  const bool are_between = !as_the_stream_has_them && random_rows_() % 4 == 0;
  const uint64_t n = given->size();
  const uint64_t first = random_rows_() % n, end = first + 1 + random_rows_() % (n - first);
  for (uint64_t i = 0; i < n; ++i) {
    const bool wanted = as_the_stream_has_them ? (static_cast<uint64_t>(at) + i) / 8 % 3 == 1
                                               : first <= i && i < end;
    if (!wanted) continue;
    int32_t& number = (*given)[i];
    RowBook& rows = oracle_->rows();
    number = are_between ? rows.NumberBetween(number) : rows.NumberOf(number);
    ++counts_.rows;
  }
}

// Upper bound of the rows held by sessions, by turns, and by files being written.
int64_t Program::RowsHeld() const {
  const auto rows_of = [](const Tokens& tokens) {
    return std::ranges::count_if(tokens, IsRowNumber);
  };
  const auto in_flight = [&](const Flight& flight) {
    return rows_of(flight.before) + rows_of(flight.context);
  };
  int64_t n = 0;
  for (const auto& session : sessions_) {
    int64_t most = session->flight ? in_flight(*session->flight) : rows_of(session->tokens);
    for (const Tokens& version : session->versions)
      most = std::max<int64_t>(most, rows_of(version));
    n += most;
  }
  for (const Flight& flight : once_) n += in_flight(flight);
  return n;
}

// None, one, or several of the model's, at scales that come back.
std::vector<AdapterScale> Program::ChooseAdapters() {
  std::vector<AdapterScale> chosen;
  for (const LoadedAdapter& adapter : model_->adapters()) {
    static constexpr float kScales[] = {0, 0, 0.5f, 1};
    chosen.push_back({adapter.name, kScales[random_adapters_() % std::size(kScales)]});
    if (chosen.back().scale != 0) ++counts_.adapted;
  }
  return chosen;
}

// Into some of the texts, so that adapters act that wait for it.
void Program::PutInvocation(Tokens* tokens) {
  for (const LoadedAdapter& adapter : model_->adapters()) {
    const auto n = static_cast<uint64_t>(std::ssize(adapter.invocation_tokens));
    if (n == 0 || n > tokens->size() || random_adapters_() % 3 != 0) continue;
    const uint64_t at = random_adapters_() % (tokens->size() - n + 1);
    std::ranges::copy(adapter.invocation_tokens, tokens->begin() + static_cast<int64_t>(at));
    ++counts_.invocations;
  }
}

Program::Flight Program::NewTurn(const Sess& session) {
  Flight flight;
  TurnOptions& turn = flight.options;
  flight.before = session.tokens;
  turn.adapters = session.adapters;
  turn.adapters_are_default = false;
  const int64_t length = static_cast<int64_t>(session.tokens.size());
  turn.tokens_are_whole_context = length > kLongSession || Chance(20);
  int64_t kept = length;
  if (turn.tokens_are_whole_context) {
    kept = Chance(30) ? length : Uniform(0, static_cast<int>(length));
    if (length > kLongSession) kept = Uniform(0, 100);
  }
  Tokens& context = flight.context = First(session.tokens, kept);
  const bool nothing_new = kept > 0 && Chance(8);
  if (!nothing_new) {
    flight.added = NewTokens(session, kept, Uniform(1, 60));
    PutInvocation(&flight.added);
    PutRows(kept, &flight.added);
  }
  context.insert(context.end(), flight.added.begin(), flight.added.end());
  oracle_->rows().Put(turn.tokens_are_whole_context ? context : flight.added, &turn);

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
    if (Chance(60)) turn.top_logprobs = -1;  // then forced tokens are computed together
  }
  AddGuesses(context, &turn);
  return flight;
}

// Drafts from an oracle that knows the output and lies never, sometimes or always.
void Program::AddGuesses(const Tokens& context, TurnOptions* turn) {
  // Without the same bits there is no speculation.
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
      // Tokens after the end are lies in any case.
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
  session->adapters = ChooseAdapters();
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
  // A running session's output is unknown, but the tokens to append are not.
  for (int i = 0; i < 4 && session->flight; ++i) session = Pick();
  if (session->flight && Chance(70)) return Drain(session);
  Flight flight = NewTurn(*session);
  const TurnOptions& options = flight.options;
  const auto turn = engine_->Submit(session->id, options);
  Note("turn on ", session->id.value & 0xFFFF, ": ", session->tokens.size(), " tokens, ",
       options.tokens_are_whole_context ? "whole, " : "more, ", TokensToString(flight.added),
       ", max ", options.max_tokens, ", n ", options.n_choices, ", temperature ",
       options.sampling.temperature, " -> ", turn.status().ToString());
  if (session->flight) {
    if (turn.ok()) {  // the former one had just ended
      Settle(*std::exchange(session->flight, std::nullopt), session);
      if (!options.tokens_are_whole_context) {
        flight.context = session->tokens;
        flight.context.insert(flight.context.end(), flight.added.begin(), flight.added.end());
      }
      flight.before = session->tokens;
    } else if (turn.status().code() == StatusCode::kResourceExhausted) {
      Settle(*std::exchange(session->flight, std::nullopt), session);
    } else if (turn.status().code() != StatusCode::kFailedPrecondition) {
      Fail("a turn on a running session: ", turn.status().ToString());
    }
  } else {
    ExpectAdmitted(turn.status(), flight.context);
  }
  if (!turn.ok()) return;
  ++counts_.turns;
  flight.turn = *turn;
  session->flight = std::move(flight);
}

// Only a request that can never fit may be refused.
void Program::ExpectAdmitted(const Status& status, const Tokens& context) {
  if (status.code() == StatusCode::kResourceExhausted &&
      BytesFor(static_cast<int64_t>(context.size())) > state_bytes_) {
    ++counts_.out_of_memory;
    return;
  }
  Expect(status, "submit");
}

void Program::SubmitOnce() {
  Sess nobody;
  nobody.domain = Chance(60) ? "a" : "b";
  nobody.stream = Uniform(0, kStreams - 1);
  nobody.adapters = ChooseAdapters();
  Flight flight = NewTurn(nobody);
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

// Reads a turn to its end, and updates its session's tokens. Null: the turn had no session.
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

// A turn may only fail for a reason of its own.
void Program::CheckEnd(const Flight& flight) {
  for (const ChoiceRecord& choice : flight.record.choices) {
    if (!choice.done || choice.done->reason != FinishReason::kError) continue;
    const Status& status = choice.done->status;
    const int64_t most = static_cast<int64_t>(flight.context.size()) + flight.options.max_tokens;
    if (status.code() == StatusCode::kResourceExhausted && BytesFor(most) > state_bytes_) {
      ++counts_.out_of_memory;
    } else if (status.code() != StatusCode::kUnavailable || !shut_down_) {
      Fail("a turn of at most ", most, " tokens failed: ", status.ToString());
    }
  }
}

// --- the end ---------------------------------------------------------------------------------

// A file that is written when its session is closed holds rows until it is complete.
bool Program::RowsAreGone() const {
  const auto late = std::chrono::steady_clock::now() + kHang;
  while (engine_->Stats().row_bytes != 0) {
    if (std::chrono::steady_clock::now() > late) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

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
  if (!RowsAreGone()) Fail(engine_->Stats().row_bytes, " bytes of rows are held after the end");
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
