// weft chat: conversations at a terminal, side by side on one engine.
//
// Answers and lists go to stdout, what is to be said about them to stderr; both at once,
// so that a terminal shows them in order and a script can tell them apart.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/chat_command.h"
#include "cli/chat_room.h"
#include "cli/chat_signals.h"
#include "cli/chat_tables.h"
#include "cli/chat_text.h"
#include "cli/command.h"
#include "cli/line_editor.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"

namespace weft::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling{.n = 2048};  // some models know no end, or do not find it
  std::string state_dir;
  std::string session;
  std::string system;
};

void Say(std::string_view text) {
  const std::string line = ForTerminal(text);
  std::fprintf(stderr, "[%.*s]\n", static_cast<int>(line.size()), line.data());
}

void Print(std::string_view text) {
  const std::string shown = ForTerminal(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

// One run of the command, from the first prompt to the last.
class ChatLoop {
 public:
  ChatLoop(const ChatFlags& flags, Engine* engine, ChatRoom* room, ChatSignals* signals)
      : flags_(flags), engine_(*engine), room_(*room), signals_(*signals) {}

  // Until the user leaves, or nobody reads any more what is printed.
  Status Run() {
    const auto editor = LineEditor::Create(&signals_);
    bool interrupted = false;
    while (!leaving_) {
      std::string line;
      const auto result = ReadMessage(editor.get(), &line);
      if (result == LineEditor::Result::kEnd) break;
      if (result == LineEditor::Result::kInterrupted) {
        if (interrupted) break;
        interrupted = true;
        Say("Ctrl-C again, or Ctrl-D, leaves");
        continue;
      }
      interrupted = false;
      if (line.find_first_not_of(" \t\n") == line.npos) continue;
      const Status status = Obey(line);
      WEFT_RETURN_IF_ERROR(FlushStdout());
      if (!status.ok()) Say(Message(status));
    }
    return OkStatus();
  }

 private:
  // A line that ends with a backslash goes on in the next.
  LineEditor::Result ReadMessage(LineEditor* editor, std::string* message) {
    std::string prompt = StrCat(Printable(room_.current().name), "> ");
    while (true) {
      std::string line;
      const auto result = editor->Read(prompt, &line);
      if (result != LineEditor::Result::kLine) return result;
      const bool goes_on = line.ends_with('\\');
      if (goes_on) line.back() = '\n';
      *message += line;
      if (!goes_on) return result;
      prompt = "... ";
    }
  }

  Status Obey(const std::string& line) {
    WEFT_ASSIGN_OR_RETURN(const ChatCommand command, ParseChatLine(line));
    switch (command.verb) {
      case ChatVerb::kSay:
        return Answer(command.text);
      case ChatVerb::kNew:
        return Moved(room_.New(command.name, command.text));
      case ChatVerb::kSwitch:
      case ChatVerb::kLoad:
        return Moved(room_.Open(command.name));
      case ChatVerb::kFork:
        return Moved(room_.Fork(command.name, command.number));
      case ChatVerb::kUndo:
        return Moved(room_.Undo(command.number));
      case ChatVerb::kRename:
        return Moved(room_.Rename(command.name));
      case ChatVerb::kDrop:
        return Moved(room_.Drop(command.name));
      case ChatVerb::kSystem:
        return System(command.text);
      case ChatVerb::kSave:
        return Done(room_.Save(), "saved");
      case ChatVerb::kPark:
        return Done(room_.Park(command.name), "parked");
      case ChatVerb::kList:
      case ChatVerb::kStats:
        return Table(command.verb);
      case ChatVerb::kHistory:
        Print(HistoryText(room_.current()));
        return OkStatus();
      case ChatVerb::kHelp:
        Print(HelpText());
        return OkStatus();
      case ChatVerb::kQuit:
        leaving_ = true;
        return OkStatus();
    }
    return OkStatus();
  }

  // Says where one is now.
  Status Moved(const Status& status) {
    WEFT_RETURN_IF_ERROR(status);
    const Conversation& now = room_.current();
    Say(StrCat("in ", Printable(now.name, 128), ", ", now.messages.size(), " messages"));
    return OkStatus();
  }

  Status Done(const Status& status, std::string_view what) {
    WEFT_RETURN_IF_ERROR(status);
    Say(what);
    return OkStatus();
  }

  Status System(const std::string& text) {
    if (!text.empty()) return Done(room_.SetSystem(text), "the system message is changed");
    const std::string& system = room_.current().system;
    Print(system.empty() ? "there is no system message\n" : StrCat(system, "\n"));
    return OkStatus();
  }

  Status Table(ChatVerb verb) {
    WEFT_ASSIGN_OR_RETURN(const auto list, room_.List());
    Print(verb == ChatVerb::kList ? ListText(list) : StatsText(list, engine_.Stats()));
    return OkStatus();
  }

  Status Answer(const std::string& question) {
    TurnOptions options;
    ApplySamplingFlags(flags_.sampling, &options);
    WEFT_ASSIGN_OR_RETURN(const auto turn, room_.Ask(question, options));
    turn->SetReadyCallback([this] { signals_.Wake(); });
    Status status;
    bool finished = false;
    while (true) {
      while (const auto event = turn->TryNext(&finished)) {
        ShowEvent(*event, turn.get());
        status.Update(room_.Take(*event));
      }
      if (finished) return status;
      signals_.Wait();
      const ChatSignals::Seen seen = signals_.Take();
      leaving_ = leaving_ || seen.leave;
      if (seen.interrupt || seen.leave) turn->Cancel();
    }
  }

  void ShowEvent(const TurnEvent& event, Turn* turn) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      if (token->text.empty()) return;
      Print(token->text);
      // An answer that nobody can read is not worth its computation.
      if (std::fflush(stdout) != 0) turn->Cancel();
    }
    const auto* const done = std::get_if<DoneEvent>(&event);
    if (done == nullptr) return;
    Print(done->text);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (done->reason == FinishReason::kCancelled) Say("cancelled");
    if (done->reason == FinishReason::kLoop) Say("ended: the model repeats itself");
    if (done->reason == FinishReason::kLength) {
      Say(StrCat("cut after ", done->usage.completion_tokens,
                 " tokens; -n and --ctx say how many there may be"));
    }
  }

  const ChatFlags& flags_;
  Engine& engine_;
  ChatRoom& room_;
  ChatSignals& signals_;
  bool leaving_ = false;
};

// The conversation to begin with.
Status EnterRoom(const ChatFlags& flags, ChatRoom* room) {
  if (flags.session.empty()) return room->New("", flags.system);
  const Status opened = room->Open(flags.session);
  if (opened.code() == StatusCode::kNotFound) return room->New(flags.session, flags.system);
  WEFT_RETURN_IF_ERROR(opened);
  Say(StrCat("in ", Printable(flags.session, 128), ", ", room->current().messages.size(),
             " messages"));
  const bool other = !flags.system.empty() && flags.system != room->current().system;
  return other ? room->SetSystem(flags.system) : OkStatus();
}

Status Chat(const ChatFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  options.state_dir = flags.state_dir;
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model));
  // Declared first: the engine may still wake it while it shuts down.
  WEFT_ASSIGN_OR_RETURN(const auto signals, ChatSignals::Install());
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  WEFT_ASSIGN_OR_RETURN(const auto room, ChatRoom::Create(engine.get(), model, Say));
  WEFT_RETURN_IF_ERROR(EnterRoom(flags, room.get()));
  ChatLoop loop(flags, engine.get(), room.get(), signals.get());
  Status status = loop.Run();
  status.Update(room->Leave());
  status.Update(engine->Shutdown(std::chrono::milliseconds(0)));
  return status;
}

}  // namespace

CommandBody MakeChatCommand(CLI::App* app) {
  auto flags = std::make_shared<ChatFlags>();
  AddModelFlag(app, &flags->model);
  app->add_option("--state-dir", flags->state_dir,
                  "Keep conversations in this directory, and find them there again");
  app->add_option("--session", flags->session,
                  "Begin with this conversation: a saved one goes on, another is new");
  app->add_option("--system", flags->system, "System message of the first conversation");
  AddComputeFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  AddPredictFlag(app, &flags->sampling);
  AddSamplingFlags(app, &flags->sampling);
  app->footer(
      "\nCtrl-C ends an answer, /help lists the commands. A line that ends with \\ goes on in the "
      "next.\nWithout a terminal, lines are read from stdin and answered on stdout.\n\n"
      "Example:\n  weft chat -m model.gguf --state-dir ~/.weft --session kitchen");
  return [flags] { return Chat(*flags); };
}

}  // namespace weft::cli
