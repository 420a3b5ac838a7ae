// weft chat: conversations at a terminal, side by side on one engine.
//
// Answers and lists go to stdout, messages about them to stderr; both are flushed at once, so that
// a terminal shows them in order and a script can tell them apart.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "answer/answer.h"
#include "answer/pictures.h"
#include "async/task.h"
#include "base/terminal.h"
#include "cli/chat/command.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/picture.h"
#include "cli/chat/room.h"
#include "cli/chat/settings.h"
#include "cli/chat/signals.h"
#include "cli/chat/tables.h"
#include "cli/chat/text.h"
#include "cli/commands/command.h"
#include "cli/flags/adapter_flags.h"
#include "cli/flags/default_model.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/picture_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "cli/terminal/markdown_writer.h"
#include "cli/terminal/output.h"

namespace weft::cli {
namespace {

// Of embeddings: of the pictures of a few conversations.
constexpr int64_t kPictureBytes = int64_t{64} << 20;

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling{.n = 2048};  // some models produce no end, or fail to find it
  ReplyFlags reply;
  std::string state_dir;
  std::string session;
  std::string system;
};

void Say(std::string_view text) {
  const std::string line = StrCat("[", ForTerminal(text), "]");
  const auto window = WindowOf(STDERR_FILENO);
  std::fprintf(stderr, "%s\n", (window ? FillLine(line, window->columns, 1) : line).c_str());
}

void Print(std::string_view text) {
  const std::string shown = ForTerminal(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

// Whole lines, broken between words where a terminal is narrower.
void PrintLines(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::string shown = ForTerminal(text);
  for (const std::string_view line : StrSplit(shown, '\n')) PrintWrapped(line);
}

// One run of the command, from the first prompt to the last.
class ChatLoop {
 public:
  ChatLoop(ChatSettings settings, Engine* engine, ChatRoom* room, ChatSignals* signals)
      : settings_(std::move(settings)), engine_(*engine), room_(*room), signals_(*signals) {
    room_.SetReasoning(settings_.reply());
  }

  // Runs until the user leaves, or the output cannot be written any more.
  Status Run() {
    const auto editor =
        LineEditor::Create(&signals_, [this](std::string_view line) { return Complete(line); });
    if (editor->is_terminal()) Greet();
    bool interrupted = false;
    while (!leaving_) {
      std::string line;
      const auto result = ReadMessage(editor.get(), &line);
      if (result == LineEditor::Result::kEnd) break;
      if (result == LineEditor::Result::kInterrupted) {
        if (interrupted) break;
        interrupted = true;
        Say("press Ctrl-C again, or Ctrl-D, to leave");
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
  void Greet() {
    const Model& model = engine_.model();
    Say(StrCat(Printable(model.name(), 80), ", context of ", model.context_tokens(),
               " tokens; /help lists the commands, Ctrl-D leaves"));
    const auto list = room_.List();
    if (!list.ok()) return;
    std::vector<std::string> saved;
    for (const ChatRoom::Listed& item : *list) {
      if (item.conversation == nullptr) saved.push_back(item.name);
    }
    if (!saved.empty()) Say(StrCat("saved: ", StrJoin(saved, ", "), "; /load NAME continues one"));
  }

  ChatCompletions Complete(std::string_view line) {
    std::vector<std::string> names;
    if (const auto list = room_.List(); list.ok()) {
      for (const ChatRoom::Listed& item : *list) names.push_back(item.name);
    }
    return CompleteChatLine(line, names, ChatSettings::Names());
  }

  // A line that ends with a backslash continues on the next one; one that begins with """ continues
  // until a line ends with """, and is sent verbatim.
  LineEditor::Result ReadMessage(LineEditor* editor, std::string* message) {
    std::string prompt = StrCat(Printable(room_.current().name), "> ");
    MessageLines lines;
    while (!lines.complete()) {
      std::string line;
      const auto result = editor->Read(prompt, &line);
      if (result == LineEditor::Result::kInterrupted) return result;
      if (result == LineEditor::Result::kEnd) {
        // Send the begun line.
        if (lines.empty()) return result;
        break;
      }
      lines.Add(line);
      prompt = "... ";
    }
    *message = lines.Take();
    return LineEditor::Result::kLine;
  }

  Status Obey(const std::string& line) {
    if (const std::string path = PicturePathIn(line); !path.empty()) return Attach(path);
    WEFT_ASSIGN_OR_RETURN(const ChatCommand command, ParseChatLine(line));
    switch (command.verb) {
      case ChatVerb::kSay:
        return Answer(room_.WithAttached(command.text));
      case ChatVerb::kImage:
        return Image(SplitImageArguments(command.text));
      case ChatVerb::kNew:
        return Moved(room_.New(command.name, command.text));
      case ChatVerb::kSwitch:
      case ChatVerb::kLoad:
        return Moved(room_.Open(command.name));
      case ChatVerb::kFork:
        return Moved(room_.Fork(command.name, command.number));
      case ChatVerb::kUndo:
        return Moved(room_.Undo(command.number));
      case ChatVerb::kTrim:
        return Trim(command.number);
      case ChatVerb::kRegenerate:
        return Regenerate();
      case ChatVerb::kSet:
        return Set(command.name, command.text);
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
        PrintLines(HistoryText(room_.current()));
        return OkStatus();
      case ChatVerb::kHelp:
        PrintLines(HelpText());
        return OkStatus();
      case ChatVerb::kQuit:
        leaving_ = true;
        return OkStatus();
    }
    return OkStatus();
  }

  // The next message brings the picture along.
  Status Attach(const std::string& path) {
    WEFT_ASSIGN_OR_RETURN(const std::string name, room_.Attach(path));
    Say(StrCat("the model sees ", Printable(name, 80), " with your next message"));
    return OkStatus();
  }

  Status Image(const ImageArguments& image) {
    if (image.question.empty()) return Attach(image.path);
    WEFT_RETURN_IF_ERROR(room_.Attach(image.path).status());
    return Answer(room_.WithAttached(image.question));
  }

  // Reports the now current conversation.
  Status Moved(const Status& status) {
    WEFT_RETURN_IF_ERROR(status);
    const OpenChat& now = room_.current();
    Say(StrCat("in ", Printable(now.name, 128), ", ", now.messages.size(), " messages"));
    return OkStatus();
  }

  Status Done(const Status& status, std::string_view what) {
    WEFT_RETURN_IF_ERROR(status);
    Say(what);
    return OkStatus();
  }

  Status System(const std::string& text) {
    if (!text.empty()) return Done(room_.SetSystem(text), "the system message has been changed");
    const std::string& system = room_.current().system;
    PrintLines(system.empty() ? "there is no system message\n" : StrCat(system, "\n"));
    return OkStatus();
  }

  Status Table(ChatVerb verb) {
    WEFT_ASSIGN_OR_RETURN(const auto list, room_.List());
    PrintLines(verb == ChatVerb::kList ? ListText(list) : StatsText(list, engine_.Stats()));
    return OkStatus();
  }

  Status Set(const std::string& name, const std::string& value) {
    if (name.empty()) {
      PrintLines(settings_.Text());
      return OkStatus();
    }
    if (!value.empty()) {
      WEFT_RETURN_IF_ERROR(settings_.Set(name, value));
      room_.SetReasoning(settings_.reply());
    }
    WEFT_ASSIGN_OR_RETURN(const std::string shown, settings_.Show(name));
    Say(shown);
    return OkStatus();
  }

  // Makes room for the question that did not fit, if there is one.
  Status Trim(int64_t n_exchanges) {
    const std::string question = std::exchange(unanswered_, {});
    WEFT_ASSIGN_OR_RETURN(const int64_t n, room_.Trim(n_exchanges, question));
    Say(StrCat("removed the oldest ", n == 1 ? "exchange" : StrCat(n, " exchanges"), "; there are ",
               room_.current().messages.size(), " messages"));
    return question.empty() ? OkStatus() : Answer(question);
  }

  Status Regenerate() {
    const std::vector<ChatMessage>& messages = room_.current().messages;
    if (messages.size() < 2) return FailedPrecondition("there is no answer to regenerate");
    const std::string question = TextOf(messages[messages.size() - 2]);
    WEFT_RETURN_IF_ERROR(room_.Undo(1));
    ++n_regenerated_;  // with the same seed it would be the same
    return Answer(question);
  }

  // Runs the task in the room's pool; `interrupt` is called when the user wants it to end.
  template <typename T>
  T Attend(Task<T> task, const std::function<void()>& interrupt) {
    std::optional<T> result;
    std::atomic<bool> has_ended = false;
    StartTask(RunInPool(std::move(task), result, has_ended));
    while (!has_ended) {
      signals_.Wait();
      const ChatSignals::Seen seen = signals_.Take();
      leaving_ = leaving_ || seen.leave;
      if (seen.interrupt || seen.leave) interrupt();
    }
    return *std::move(result);
  }

  template <typename T>
  Task<void> RunInPool(Task<T> task, std::optional<T>& result, std::atomic<bool>& has_ended) {
    ChatSignals& signals = signals_;
    co_await room_.pool().Enter();
    {
      Task<T> own = std::move(task);  // gone before Attend continues
      T value = co_await own;
      result.emplace(std::move(value));
    }
    has_ended = true;  // `result` is final
    signals.Wake();
  }

  // `stop` is requested if the user wants the answer to end.
  ChatRoom::Waiting::Begun Ask(const std::string& question, std::stop_source& stop) {
    TurnOptions options;
    SamplingFlags sampling = settings_.sampling();
    if (sampling.seed >= 0) sampling.seed += n_regenerated_;
    ApplySamplingFlags(sampling, settings_.of_model(), *engine_.model().tokenizer(), &options);
    const auto wait = [&](Task<ChatRoom::Waiting::Begun> task) {
      return Attend(std::move(task), [&] { stop.request_stop(); });
    };
    auto answer = room_.Ask(question, options, {stop.get_token(), wait});
    if (answer.status().code() != StatusCode::kOutOfRange || room_.current().messages.empty()) {
      return answer;
    }
    unanswered_ = question;
    return OutOfRange(Message(answer.status()),
                      ": /trim removes the oldest exchanges and asks this again, /undo removes the "
                      "last one, /new starts another conversation");
  }

  // What became of an answer, as far as it was shown.
  struct Showing {
    bool has_started = false;
    ChatAnswer answer;
  };

  Status Answer(const std::string& question) {
    unanswered_.clear();
    std::stop_source stop;
    const auto answer = Ask(question, stop);
    if (answer.status().code() == StatusCode::kCancelled) {
      TellEnd({.reason = FinishReason::kCancelled}, {});
      return OkStatus();
    }
    WEFT_RETURN_IF_ERROR(answer.status());
    const std::stop_callback cancel(stop.get_token(), [&] { (*answer)->generation()->Cancel(); });
    Showing showing = Attend(Show(**answer), [&] { stop.request_stop(); });
    if (stop.stop_requested() && !showing.has_started) {
      showing.answer = {.reason = FinishReason::kCancelled};
    }
    TellEnd(showing.answer, (*answer)->usage());
    return room_.Finish(**answer, std::move(showing.answer));
  }

  Task<Showing> Show(serve::Answer& answer) {
    Showing showing;
    ChatAnswer& shown = showing.answer;
    shown.status = co_await answer.Start();
    showing.has_started = shown.status.ok();
    while (shown.status.ok()) {
      const std::optional<serve::AnswerPiece> piece = co_await answer.Next();
      if (!piece) break;
      if (piece->kind == serve::AnswerPiece::Kind::kEnd) {
        shown.reason = piece->end.reason;
        if (shown.reason != FinishReason::kCancelled) shown.status = piece->status;
        continue;
      }
      shown.text += piece->text;
      PrintAnswer(piece->text);
      // Stop computing an answer that nobody can read.
      if (std::fflush(stdout) != 0) answer.generation()->Cancel();
    }
    co_return showing;
  }

  void TellEnd(const ChatAnswer& answer, const TurnUsage& usage) {
    const FinishReason reason = answer.reason;
    if (markdown_) PrintText(markdown_->End());
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (reason == FinishReason::kCancelled) Say("cancelled");
    if (reason == FinishReason::kStop && answer.status.ok() && answer.text.empty()) {
      Say("the model ended its answer without a word");
    }
    if (reason == FinishReason::kLoop) Say("ended because the model repeats itself");
    if (reason == FinishReason::kLength) {
      Say(StrCat("cut off after ", usage.completion_tokens,
                 " tokens; change the limit with '/set max_tokens N' or -n"));
    }
    if (reason == FinishReason::kContext) Say(WhyFull(usage));
  }

  void PrintAnswer(std::string_view text) {
    if (!markdown_) return Print(text);
    PrintText(markdown_->Write(ForTerminal(text)));
  }

  std::string WhyFull(const TurnUsage& usage) const {
    return StrCat("cut off after ", usage.completion_tokens, " tokens, because the context of ",
                  engine_.model().context_tokens(),
                  " is full: /trim removes the oldest exchanges, /undo removes the last one, /new "
                  "starts another conversation; --ctx sets its size");
  }

  ChatSettings settings_;
  Engine& engine_;
  ChatRoom& room_;
  ChatSignals& signals_;
  bool leaving_ = false;
  std::string unanswered_;  // a question that did not fit, for /trim
  int64_t n_regenerated_ = 0;
  std::optional<MarkdownWriter> markdown_ = MarkdownForStdout();
};

// Without --state-dir, conversations at a terminal are kept, too, unless another weft chat has them
// open.
StatusOr<std::unique_ptr<Engine>> StartEngine(const ChatFlags& flags,
                                              const std::shared_ptr<const Model>& model,
                                              EngineOptions options) {
  options.state_dir = flags.state_dir;
  const std::string folder = StateFolder();
  const bool keeps = options.state_dir.empty() && !folder.empty() && isatty(STDIN_FILENO) == 1;
  if (!keeps) return Engine::Start(model, options);
  std::error_code error;
  options.state_dir = StrCat(folder, "/chat");
  std::filesystem::create_directories(options.state_dir, error);
  auto engine = Engine::Start(model, options);
  if (engine.ok()) return engine;
  Say(StrCat("conversations are not saved: ", Printable(Message(engine.status()), 300)));
  options.state_dir.clear();
  return Engine::Start(model, options);
}

// Opens or creates the first conversation.
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
  WEFT_ASSIGN_OR_RETURN(const FlaggedModel found, OpenFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model, found.file));
  RememberModel(flags.model);
  WEFT_ASSIGN_OR_RETURN(options.draft_model, LoadFlaggedDraft(flags.model, *model));
  WEFT_ASSIGN_OR_RETURN(auto encoder, LoadFlaggedEncoder(flags.model, *model));
  if (encoder != nullptr) serve::AdmitPictures(encoder->spec(), *model, &options);
  // Declared first: the engine may still wake it during its shutdown.
  WEFT_ASSIGN_OR_RETURN(const auto signals, ChatSignals::Install());
  WEFT_ASSIGN_OR_RETURN(const auto engine, StartEngine(flags, model, options));
  std::shared_ptr<serve::Pictures> pictures;
  if (encoder != nullptr) {
    pictures = std::make_shared<serve::Pictures>(std::move(encoder), engine.get(), kPictureBytes);
  }
  WEFT_ASSIGN_OR_RETURN(const auto room,
                        ChatRoom::Create(engine.get(), model, std::move(pictures), Say));
  room->SetAdapters(AdaptersInUse(flags.model));
  WEFT_RETURN_IF_ERROR(EnterRoom(flags, room.get()));
  ChatLoop loop(ChatSettings(flags.sampling, flags.reply, found.advice), engine.get(), room.get(),
                signals.get());
  Status status = loop.Run();
  status.Update(room->Leave());
  status.Update(engine->Shutdown(std::chrono::milliseconds(0)));
  return status;
}

}  // namespace

CommandBody MakeChatCommand(CLI::App* app) {
  auto flags = std::make_shared<ChatFlags>();
  AddModelFlag(app, &flags->model, "NAME");
  AddPictureFlags(app, &flags->model);
  app->add_option("--state-dir", flags->state_dir,
                  "Save conversations in this directory, and load them from there (default: at a "
                  "terminal XDG_STATE_HOME/weft/chat, otherwise nowhere)");
  app->add_option("--session", flags->session,
                  "Start with this conversation: a saved one is continued, otherwise it is new");
  app->add_option("--system", flags->system, "System message of the first conversation");
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  AddAdapterFlags(app, &flags->model, " (1)");
  AddContextFlag(app, &flags->model);
  AddPredictFlag(app, &flags->sampling);
  AddSamplingFlags(app, &flags->sampling);
  AddReplyFlags(app, &flags->reply);
  AddTemplateVariableFlags(app, &flags->reply);
  app->footer(
      "\nCtrl-C ends an answer, /help lists the commands, Tab completes them and names. A line\n"
      "that ends with \\ continues on the next; lines between \"\"\" and \"\"\" are one\n"
      "message, and so is pasted text. Without a terminal, lines are read from stdin and\n"
      "answered on stdout.\n\n"
      "Example:\n"
      "  weft chat -m model.gguf --state-dir ~/.weft --session kitchen");
  return [flags] { return Chat(*flags); };
}

}  // namespace weft::cli
