// weft run: asks a question and prints the model's answer as it is generated.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/answerer.h"
#include "answer/asked_picture.h"
#include "answer/chat/chat_context.h"
#include "answer/pictures.h"
#include "answer/prompt_rows.h"
#include "answer/row_file.h"
#include "answer/thinking.h"
#include "async/wait_for_task.h"
#include "base/files/mapped_file.h"
#include "cli/chat/text.h"
#include "cli/commands/command.h"
#include "cli/flags/adapter_flags.h"
#include "cli/flags/constraint_flags.h"
#include "cli/flags/default_model.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/picture_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "cli/terminal/markdown_writer.h"
#include "cli/terminal/output.h"
#include "nlohmann/json.hpp"
#include "weft/constraint.h"

namespace weft::cli {
namespace {

// Some models produce no end, or fail to find it.
constexpr int64_t kDefaultTokens = 1024;

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling{.n = kDefaultTokens};
  ReplyFlags reply;
  ConstraintFlags constraint;
  bool raw = false;
  bool json = false;
  std::string system;
  std::string embeds;               // a file
  std::vector<std::string> images;  // files
  std::string prompt;               // from -p
  std::vector<std::string> words;   // the model's name, if it comes first, and the prompt
};

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kLoop:
      return "loop";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

// The whole answer, as far as it has come.
struct Said {
  std::string text;
  std::vector<int32_t> tokens;
  uint64_t seed = 0;
  FinishReason reason = FinishReason::kStop;
  TurnUsage usage;
};

void PrintJson(const Said& said) {
  const auto rate = [](int64_t n, int64_t us) { return us > 0 ? n * 1e6 / us : 0.0; };
  const TurnUsage& usage = said.usage;
  PrintJsonLine({{"text", said.text},
                 {"tokens", said.tokens},
                 {"finish_reason", NameOf(said.reason)},
                 {"seed", said.seed},
                 {"prompt_tokens", usage.prompt_tokens},
                 {"cached_tokens", usage.cached_tokens},
                 {"completion_tokens", usage.completion_tokens},
                 {"guessed_tokens", usage.guessed_tokens},
                 {"accepted_guesses", usage.accepted_guesses},
                 {"prompt_tokens_per_s", rate(usage.prompt_tokens, usage.prompt_us)},
                 {"tokens_per_s", rate(usage.completion_tokens, usage.decode_us)}});
}

StatusOr<std::string> PromptOf(const RunFlags& flags) {
  const std::string typed = flags.prompt.empty() ? StrJoin(flags.words, " ") : flags.prompt;
  if (!flags.embeds.empty() && typed.empty()) return std::string();
  if (typed.empty() && isatty(STDIN_FILENO) == 1) {
    return InvalidArgument("there is no prompt; try: weft run ",
                           flags.model.path.empty() ? "" : Printable(flags.model.path, 200) + " ",
                           "\"Why is the sky blue?\", or weft chat");
  }
  WEFT_ASSIGN_OR_RETURN(std::string prompt, TextOrStdin(typed.empty() ? "-" : typed));
  if (prompt.empty())
    return InvalidArgument("the prompt is empty; pass it as an argument or on stdin");
  return prompt;
}

// The vectors of --embeds; none without.
StatusOr<std::vector<float>> RowsOf(const RunFlags& flags, const Model& model) {
  if (flags.embeds.empty()) return std::vector<float>();
  WEFT_RETURN_IF_ERROR(model.CheckTakesRows());
  constexpr size_t kMaxBytes = size_t{1} << 30;
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(flags.embeds, kMaxBytes));
  auto embeddings = serve::ReadRowFile(bytes, model.embedding_width());
  WEFT_RETURN_IF_ERROR(Annotate(embeddings.status(), flags.embeds, ": "));
  return model.RowsOfEmbeddings(*std::move(embeddings));
}

// The texts that stand for the pictures of --image.
StatusOr<std::string> TakePictures(const RunFlags& flags, serve::Ask* ask) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  std::string marks;
  for (const std::string& path : flags.images) {
    WEFT_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxBytes));
    WEFT_ASSIGN_OR_RETURN(
        const std::string mark,
        serve::AddPicture(std::move(bytes), Printable(path, 200), &ask->pictures));
    marks += mark;
  }
  return marks;
}

// What sees the pictures, if there are any.
StatusOr<std::shared_ptr<const vision::PictureEncoder>> EncoderFor(const RunFlags& flags,
                                                                   const Model& model) {
  if (flags.images.empty()) return nullptr;
  if (flags.raw || model.chat_template().empty()) {
    return InvalidArgument("--image needs a model with a chat template, and no --raw");
  }
  WEFT_ASSIGN_OR_RETURN(auto encoder, LoadFlaggedEncoder(flags.model, model));
  if (encoder == nullptr) {
    return InvalidArgument("--image needs the model's projector: --mmproj FILE (mmproj-*.gguf)");
  }
  return encoder;
}

// A text to continue, after the vectors if there are any.
void SetPlainPrompt(const Model& model, const std::string& prompt, std::vector<float> rows,
                    TurnOptions* turn) {
  const PromptEncoder encoder = MakePromptEncoder(model.tokenizer());
  if (rows.empty()) {
    turn->tokens = encoder.encode(prompt, /*at_start=*/true);
    return;
  }
  std::vector<PromptPart> parts = {{.rows = std::move(rows)}};
  if (!prompt.empty()) parts.push_back({.tokens = encoder.encode(prompt, /*at_start=*/false)});
  turn->parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts));
}

// Formats a question as the model was trained to read it. A model without a template was trained on
// plain text and continues the prompt.
StatusOr<serve::Ask> AskFor(const RunFlags& flags, const std::string& prompt,
                            std::optional<ConstraintSpec> answer, const SamplingAdvice& advice,
                            const Model& model) {
  serve::Ask ask{.keeps_context = true, .as_written = true};
  ask.turn.adapters = AdaptersInUse(flags.model);
  ApplySamplingFlags(flags.sampling, advice, *model.tokenizer(), &ask.turn);
  WEFT_ASSIGN_OR_RETURN(std::vector<float> rows, RowsOf(flags, model));
  if (flags.raw || model.chat_template().empty()) {
    ask.input = serve::Ask::Input::kPrompt;
    SetPlainPrompt(model, prompt, std::move(rows), &ask.turn);
    if (answer) {
      auto mask = MakeConstraint(model, *answer);
      WEFT_RETURN_IF_ERROR(Annotate(mask.status(), NameOf(flags.constraint), ": "));
      ask.turn.token_mask = *std::move(mask);
    }
    return ask;
  }
  serve::ThinkingDefaults thinking = ThinkingOf(flags.reply);
  serve::SetThinking(thinking, thinking.limit, &ask.chat);
  ask.thought = std::move(thinking.limit);
  if (answer) ask.answer = serve::AnswerRule{*std::move(answer), NameOf(flags.constraint)};
  // The vectors and pictures come before the question, as parts of the message.
  ChatMessage question;
  if (!rows.empty()) {
    ask.rows.push_back(serve::MarkRows(std::move(rows)));
    question.parts.push_back(ask.rows[0].mark);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string marks, TakePictures(flags, &ask));
  if (!prompt.empty() || !marks.empty()) question.parts.push_back(marks + prompt);
  std::vector<ChatMessage>& messages = ask.chat.conversation.messages;
  if (!flags.system.empty()) messages.push_back({.role = Role::kSystem, .parts = {flags.system}});
  messages.push_back(std::move(question));
  return ask;
}

void TellWhyItEnded(const RunFlags& flags, const Said& said) {
  const int64_t n = said.usage.completion_tokens;
  const bool as_asked = n == flags.sampling.n && n != kDefaultTokens;
  if (said.reason == FinishReason::kStop && said.text.empty()) {
    std::fputs("weft: the model ended its answer without a word\n", stderr);
  } else if (said.reason == FinishReason::kLoop) {
    std::fputs(
        "weft: ended because the model repeats itself; use --keep-loops to let it continue\n",
        stderr);
  } else if (said.reason == FinishReason::kLength && !as_asked) {
    std::fprintf(stderr, "weft: cut off after %lld tokens; -n sets the limit\n",
                 static_cast<long long>(n));
  } else if (said.reason == FinishReason::kContext) {
    std::fprintf(stderr,
                 "weft: cut off after %lld tokens, because the context is full; --ctx sets its "
                 "size\n",
                 static_cast<long long>(n));
  }
}

// Shows the text as it arrives, except for JSON. A terminal gets no control characters, and answers
// in words are shown as `weft chat` does.
class Screen {
 public:
  explicit Screen(const RunFlags& flags)
      : shows_(!flags.json), is_terminal_(isatty(STDOUT_FILENO) == 1) {
    if (!flags.raw && flags.constraint.empty()) markdown_ = MarkdownForStdout();
  }

  void Show(std::string_view piece) {
    if (!shows_) return;
    const std::string shown = is_terminal_ ? ForTerminal(piece) : std::string(piece);
    PrintText(markdown_ ? markdown_->Write(shown) : shown);
    std::fflush(stdout);
  }

  void End() {
    if (!shows_) return;
    if (markdown_) PrintText(markdown_->End());
    PrintText("\n");
    std::fflush(stdout);
  }

 private:
  bool shows_, is_terminal_;
  std::optional<MarkdownWriter> markdown_;
};

Task<Status> Relay(serve::Answerer& answerer, serve::Ask ask, Screen& screen, Said& said) {
  serve::AnswerReader reader;
  auto beginning = answerer.Begin(std::move(ask), std::move(reader));
  const StatusOr<std::unique_ptr<serve::Answer>> answer = co_await beginning;
  if (!answer.ok()) co_return answer.status();
  const Status started = co_await (*answer)->Start();
  if (!started.ok()) co_return started;
  said.seed = (*answer)->started().seed;
  while (true) {
    const std::optional<serve::AnswerPiece> piece = co_await (*answer)->Next();
    if (!piece) break;
    if (!piece->status.ok()) co_return piece->status;
    if (piece->kind == serve::AnswerPiece::Kind::kEnd) said.reason = piece->end.reason;
    said.text += piece->text;
    screen.Show(piece->text);
  }
  const auto tokens = (*answer)->reply_tokens();
  said.tokens.assign(tokens.begin(), tokens.end());
  said.usage = (*answer)->usage();
  co_return OkStatus();
}

Status Run(RunFlags& flags) {
  WEFT_RETURN_IF_ERROR(TakeModelName(&flags.words, &flags.model));
  if (!flags.prompt.empty() && !flags.words.empty()) {
    return InvalidArgument("there are two prompts, one of them after -p: give one");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string prompt, PromptOf(flags));
  WEFT_ASSIGN_OR_RETURN(const auto answer, ConstraintOf(flags.constraint));
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(const FlaggedModel found, OpenFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model, found.file));
  RememberModel(flags.model);
  WEFT_ASSIGN_OR_RETURN(options.draft_model, LoadFlaggedDraft(flags.model, *model));
  WEFT_ASSIGN_OR_RETURN(auto encoder, EncoderFor(flags, *model));
  if (encoder != nullptr) serve::AdmitPictures(encoder->spec(), *model, &options);
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  std::shared_ptr<serve::Pictures> pictures;
  if (encoder != nullptr) {
    pictures = std::make_shared<serve::Pictures>(std::move(encoder), engine.get(),
                                                 /*cache_bytes=*/0);
  }
  WEFT_ASSIGN_OR_RETURN(const auto answerer,
                        serve::Answerer::ForCommand(model, engine.get(), "", std::move(pictures)));
  WEFT_ASSIGN_OR_RETURN(serve::Ask ask, AskFor(flags, prompt, answer, found.advice, *model));
  TaskPool pool({.max_threads = 1});
  Said said;
  Screen screen(flags);
  WEFT_RETURN_IF_ERROR(WaitForTask(pool, Relay(*answerer, std::move(ask), screen, said)));
  screen.End();
  if (flags.json) {
    PrintJson(said);
  } else {
    TellWhyItEnded(flags, said);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeRunCommand(CLI::App* app) {
  auto flags = std::make_shared<RunFlags>();
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  AddPictureFlags(app, &flags->model);
  AddAdapterFlags(app, &flags->model, " (1)");
  AddContextFlag(app, &flags->model);
  AddPredictFlag(app, &flags->sampling);
  AddSamplingFlags(app, &flags->sampling);
  AddReplyFlags(app, &flags->reply);
  AddTemplateVariableFlags(app, &flags->reply);
  AddConstraintFlags(app, &flags->constraint);
  app->add_option("--system", flags->system, "System message before the question");
  app->add_option("--embeds", flags->embeds,
                  "Input embeddings, before the prompt or instead of it: a matrix saved by NumPy, "
                  "safetensors or PyTorch");
  app->add_option("--image", flags->images,
                  "A picture before the question: PNG, JPEG, WebP, GIF or BMP; may be repeated "
                  "(--mmproj)")
      ->check(CLI::ExistingFile)
      ->type_name("FILE")
      ->allow_extra_args(false);
  app->add_flag("--raw", flags->raw,
                "Continue the text of the prompt, as models without a chat template do, instead of "
                "answering it");
  app->add_flag("--json", flags->json, "Print one JSON object with text, tokens and timings");
  app->add_option("-p,--prompt", flags->prompt, "The question or text; - reads stdin");
  app->add_option("WORDS", flags->words,
                  "The question or text, after the model's name if that comes first; - or nothing "
                  "reads stdin");
  app->footer(
      "\nExamples:\n"
      "  weft run \"Why is the sky blue?\"\n"
      "  weft run smollm2 Why is the sky blue\n"
      "  git diff | weft run -m model.gguf --system \"Write a commit message\"\n"
      "  weft run -m model.gguf --raw -n 64 --temp 0 \"The loom\"\n"
      "  weft run -m smolvlm.gguf --mmproj mmproj-smolvlm.gguf --image cat.png \"What is it?\"\n"
      "  weft run -m model.gguf --regex \"yes|no\" \"Is water wet?\"");
  return [flags] { return Run(*flags); };
}

}  // namespace weft::cli
