// Three conversations side by side on one model.
//
//   three_conversations MODEL.gguf
//
// They run their turns at the same time; then one is forked, one is parked to disk, and a second
// engine finds it there, as after a restart, and continues it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "weft/engine.h"

namespace {

// Prints the error and exits.
[[noreturn]] void Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

void Check(const char* what, const absl::Status& status) {
  if (!status.ok()) Fail(what, status);
}

template <typename T>
T Check(const char* what, absl::StatusOr<T> result) {
  if (!result.ok()) Fail(what, result.status());
  return *std::move(result);
}

// Submits a user's message to a session; read the answer from the turn.
std::shared_ptr<weft::Turn> Say(weft::Engine* engine, weft::SessionId session,
                                const std::string& text) {
  weft::TurnOptions options;
  options.tokens = engine->model().Encode(text, /*add_special=*/false, /*parse_special=*/false);
  options.max_tokens = 24;
  options.sampling.temperature = 0.7f;
  options.sampling.seed = 1;  // so that every run prints the same
  return Check("submit", engine->Submit(session, options));
}

// Reads a turn to its end and prints its text.
void Print(const std::string& who, weft::Turn* turn) {
  std::string text;
  while (auto event = turn->Next()) {
    if (const auto* started = std::get_if<weft::StartedEvent>(&*event)) {
      std::printf("%-8s %lld tokens in context, %lld of them not computed again\n", who.c_str(),
                  static_cast<long long>(started->prompt_tokens),
                  static_cast<long long>(started->cached_tokens));
    } else if (const auto* token = std::get_if<weft::TokenEvent>(&*event)) {
      text += token->text;
    } else {
      const auto& done = std::get<weft::DoneEvent>(*event);
      if (done.reason == weft::FinishReason::kError) Fail(who.c_str(), done.status);
      text += done.text;
    }
  }
  std::printf("%-8s said: %s\n", who.c_str(), text.c_str());
}

// Three conversations at once, a fork of the first, and the second one parked.
void Host(const std::shared_ptr<const weft::Model>& model, const weft::EngineOptions& options) {
  auto engine = Check("start", weft::Engine::Start(model, options));
  const std::vector<std::string> names = {"anna", "bert", "carla"};
  std::vector<std::shared_ptr<weft::Turn>> turns;
  std::vector<weft::SessionId> sessions;
  for (const std::string& name : names) {
    weft::SessionOptions session;
    session.name = name;
    sessions.push_back(Check("create", engine->CreateSession(session)));
    // Submitted one after another; from here on they advance together.
    turns.push_back(Say(engine.get(), sessions.back(), "My name is " + name + ". Who are you?"));
  }
  for (size_t i = 0; i < names.size(); ++i) Print(names[i], turns[i].get());

  // A fork holds the whole conversation so far and shares its memory.
  weft::SessionOptions fork;
  fork.name = "dora";
  const weft::SessionId dora = Check("fork", engine->Fork(sessions[0], -1, fork));
  auto here = Say(engine.get(), sessions[0], " Tell me more.");
  auto there = Say(engine.get(), dora, " Never mind.");
  Print("anna", here.get());
  Print("dora", there.get());

  Check("park", engine->Park(sessions[1]));
  const weft::EngineStats stats = engine->Stats();
  std::printf("%lld sessions in memory, %lld parked, %lld steps, %lld bytes of state\n",
              static_cast<long long>(stats.sessions_ready),
              static_cast<long long>(stats.sessions_parked), static_cast<long long>(stats.steps),
              static_cast<long long>(stats.page_bytes));
  // Keep only the parked one.
  for (const weft::SessionId session : {sessions[0], sessions[2], dora}) {
    Check("close", engine->Close(session, /*forget=*/true));
  }
  Check("shut down", engine->Shutdown(std::chrono::seconds(1)));
}

// What a restarted program does.
void GoOn(const std::shared_ptr<const weft::Model>& model, const weft::EngineOptions& options) {
  auto engine = Check("start again", weft::Engine::Start(model, options));
  const weft::SessionId bert = Check("find", engine->FindSession("", "bert"));
  Check("restore", engine->Restore(bert));
  const weft::SessionInfo info = Check("inspect", engine->Inspect(bert));
  std::printf("bert is back: %lld tokens, %lld of them computed\n",
              static_cast<long long>(info.n_tokens), static_cast<long long>(info.n_computed));
  auto turn = Say(engine.get(), bert, " Where were we?");
  Print("bert", turn.get());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
    return 2;
  }
  const auto model = Check("load", weft::Model::Load(argv[1], {}));
  weft::EngineOptions options;
  options.memory_bytes = int64_t{256} << 20;
  const std::filesystem::path state_dir =
      std::filesystem::temp_directory_path() / ("three_conversations_" + std::to_string(getpid()));
  options.state_dir = state_dir.string();
  Host(model, options);
  GoOn(model, options);
  std::filesystem::remove_all(state_dir);
  return 0;
}
