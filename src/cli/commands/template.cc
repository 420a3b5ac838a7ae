// weft template: renders chat templates.
#include <cstdio>
#include <memory>
#include <string>

#include "answer/chat/builtin_templates.h"
#include "base/files/mapped_file.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal/output.h"
#include "jinja/template.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TemplateFlags {
  ModelFlags model;
  std::string file;
  std::string builtin;
  std::string input;
  bool json = false;
};

StatusOr<std::string> ReadWhole(const std::string& path) {
  if (path == "-") return TextOrStdin("-");
  return ReadFile(path, kMaxTextBytes);
}

// A template and the tokens it puts around a conversation.
struct Source {
  std::string text;
  std::string bos = "<s>";
  std::string eos = "</s>";
};

Status ReadModel(const ModelFlags& flags, bool wants_template, Source* source) {
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  const auto text = [&](TokenId id) {
    return id == kNoToken ? std::string() : tokenizer->Piece(id, /*render_special=*/true);
  };
  source->bos = text(tokenizer->bos());
  source->eos = text(tokenizer->eos());
  if (!wants_template) return OkStatus();
  if (!file->HasMeta("tokenizer.chat_template")) {
    return NotFound(Printable(file->path(), 200),
                    " has no chat template; give one with --template or --builtin");
  }
  WEFT_ASSIGN_OR_RETURN(source->text, file->GetString("tokenizer.chat_template"));
  return OkStatus();
}

StatusOr<Source> FindSource(const TemplateFlags& flags) {
  Source source;
  const bool given = !flags.file.empty() || !flags.builtin.empty();
  if (!flags.model.path.empty() || !given) {
    WEFT_RETURN_IF_ERROR(ReadModel(flags.model, !given, &source));
  }
  if (!flags.file.empty()) {
    WEFT_ASSIGN_OR_RETURN(source.text, ReadWhole(flags.file));
  } else if (!flags.builtin.empty()) {
    WEFT_ASSIGN_OR_RETURN(source.text, FindBuiltinTemplate(flags.builtin));
  }
  return source;
}

StatusOr<Json> ReadConversation(const std::string& path, const Source& source) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path));
  Json conversation = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (conversation.is_array()) {
    Json messages = std::move(conversation);
    conversation = Json::object();
    conversation["messages"] = std::move(messages);
  }
  if (!conversation.is_object()) {
    return InvalidArgument(
        Printable(path, 200),
        " is not a conversation: it must be a JSON object with messages, or an array of messages");
  }
  if (!conversation.contains("bos_token")) conversation["bos_token"] = source.bos;
  if (!conversation.contains("eos_token")) conversation["eos_token"] = source.eos;
  return conversation;
}

Status PrintText(const TemplateFlags& flags, const char* key, const std::string& text) {
  if (flags.json) {
    PrintJsonLine({{key, text}});
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return FlushStdout();
}

Status Template(const TemplateFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Source source, FindSource(flags));
  if (flags.input.empty()) return PrintText(flags, "template", source.text);
  WEFT_ASSIGN_OR_RETURN(const auto chat, ChatTemplate::Parse(source.text));
  WEFT_ASSIGN_OR_RETURN(const Json conversation, ReadConversation(flags.input, source));
  WEFT_ASSIGN_OR_RETURN(const std::string text, chat->Render(conversation, {}));
  return PrintText(flags, "text", text);
}

}  // namespace

CommandBody MakeTemplateCommand(CLI::App* app) {
  auto flags = std::make_shared<TemplateFlags>();
  AddModelFlag(app, &flags->model);
  auto* const file = app->add_option("--template", flags->file,
                                     "A Jinja file to use instead of the model's template");
  app->add_option("--builtin", flags->builtin, "A built-in template to use instead, such as chatml")
      ->excludes(file);
  app->add_option("--input", flags->input,
                  "A JSON file with a conversation to render: an object with messages and other "
                  "template variables, or an array of messages; - reads stdin. Without it, the "
                  "template itself is printed");
  app->add_flag("--json", flags->json, "Print one JSON object instead of just the text");
  return [flags] { return Template(*flags); };
}

}  // namespace weft::cli
