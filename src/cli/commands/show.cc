// weft show: a summary of a model: what it is, what it can do, what it needs on this machine.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/chat/chat_format.h"
#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/commands/kv_accuracy.h"
#include "cli/flags/default_model.h"
#include "cli/flags/model_finder.h"
#include "cli/flags/model_flags.h"
#include "cli/serve/models_at_hand.h"
#include "cli/terminal/output.h"
#include "compute/backend.h"
#include "compute/cpu/packed_copy.h"
#include "engine/loading/box_model.h"
#include "engine/memory_budget.h"
#include "model/hub/files.h"
#include "model/hub/local_models.h"
#include "model/hub/model_advice.h"
#include "model/hub/places.h"
#include "model/model_spec.h"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowFlags {
  ModelFlags model;
  std::string accuracy_path;  // a text, for the KV types
  int64_t accuracy_tokens = 4096;
  bool json = false;
};

struct ChatFacts {
  bool has_template = false;
  std::string reply_format;
  bool tools = false;  // in the model's own format
  bool reasoning = false;
  bool keeps_thoughts = false;  // those of earlier turns
  std::optional<PastThoughtsVariable> past_thoughts;
  std::string problem;  // empty: none
};

ChatFacts ReadChat(const ModelFile& file) {
  ChatFacts chat;
  const auto source = file.GetStringOr("tokenizer.chat_template", "");
  chat.has_template = source.ok() && !source->empty();
  const auto tokenizer = Tokenizer::Load(file);
  if (!tokenizer.ok()) {
    chat.problem = Message(tokenizer.status());
    return chat;
  }
  const auto format = ChatFormat::Create(chat.has_template ? std::string(*source) : "", *tokenizer);
  if (!format.ok()) {
    chat.problem = Message(format.status());
    return chat;
  }
  chat.reply_format = (*format)->reply_format();
  chat.tools = (*format)->template_has_tools();
  chat.reasoning = (*format)->has_reasoning();
  chat.keeps_thoughts = (*format)->shows_past_thoughts();
  chat.past_thoughts = (*format)->past_thoughts();
  return chat;
}

std::string ReasoningText(const ChatFacts& chat) {
  if (!chat.reasoning) return "no";
  if (chat.past_thoughts) return StrCat("yes, kept between turns by ", chat.past_thoughts->name);
  return chat.keeps_thoughts ? "yes, kept between turns" : "yes, dropped at the next user message";
}

void PrintField(std::string_view name, std::string_view value) {
  std::string line(name);
  line.resize(14, ' ');
  const size_t column = line.size();
  PrintLine(StrCat(line, Fill(value, OutputColumns(), column, column)));
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

std::string ParametersText(int64_t n) {
  return n >= 1'000'000'000 ? StrCat(n / 100'000'000 / 10, ".", n / 100'000'000 % 10, " billion")
                            : StrCat((n + 500'000) / 1'000'000, " million");
}

struct Shown {
  std::string name;
  std::string where;
  std::shared_ptr<const ModelFile> file;
  ModelFacts facts;
  ModelSpec spec;
  ChatFacts chat;
  hub::ModelAdvice recommended;
  int64_t budget_bytes = 0;
  int64_t copy_bytes = 0;  // of its packed copy in Weft's own folder

  int64_t SessionsOf(int64_t n_tokens) const {
    return budget_bytes / std::max<int64_t>(1, SessionBytes(spec, n_tokens));
  }
};

// The conversation lengths for which memory is shown: a short one, and the longest.
std::vector<int64_t> Lengths(const Shown& shown) {
  constexpr int64_t kShort = 2048;
  const int64_t most = shown.spec.context_tokens;
  if (most <= kShort) return {most};
  return {kShort, most};
}

std::string SamplingText(const hub::ModelAdvice& recommended) {
  const std::string by = StrJoin(recommended.by, ", ");
  return DescribeSampling({}, recommended.advice, by);
}

void PrintFacts(const Shown& shown) {
  PrintField("name", Printable(shown.name, 200));
  if (!shown.facts.title.empty()) PrintField("title", Printable(shown.facts.title, 200));
  PrintField("file", StrCat(Printable(shown.file->path(), 400), " (",
                            Bytes(static_cast<int64_t>(shown.file->file_bytes())), ")"));
  if (shown.copy_bytes > 0) {
    PrintField("packed copy", StrCat(Bytes(shown.copy_bytes), " in ",
                                     Printable(hub::ProcessPlaces().packed_copies, 300)));
  }
  if (!shown.where.empty()) PrintField("where", shown.where);
  PrintField("architecture", StrCat(Printable(shown.facts.architecture), ", ",
                                    ParametersText(shown.facts.n_parameters), " parameters, ",
                                    shown.facts.quantization));
  PrintField("context", StrCat(shown.spec.context_tokens, " tokens"));
  const ChatFacts& chat = shown.chat;
  if (!chat.problem.empty()) {
    PrintField("template", StrCat("cannot be used: ", Printable(chat.problem, 300)));
  } else {
    PrintField("template", StrCat(chat.has_template ? "its own" : "none, ChatML is used",
                                  ", replies as ", chat.reply_format));
    PrintField("tools", chat.tools ? "in its own format" : "in the generic format");
    PrintField("reasoning", ReasoningText(chat));
  }
  PrintField("sampling", SamplingText(shown.recommended));
  const SamplingAdvice& advice = shown.recommended.advice;
  if (!advice.stop.empty()) PrintField("stop", Printable(Json(advice.stop).dump(), 400));
  if (!advice.left_out.empty()) {
    PrintField("not used", Printable(StrJoin(advice.left_out, ", "), 400));
  }
  for (const int64_t n : Lengths(shown)) {
    PrintField("memory", StrCat("a session of ", n, " tokens ", Bytes(SessionBytes(shown.spec, n)),
                                ", ", shown.SessionsOf(n), " of them fit on this machine now"));
  }
}

Json ToJson(const Shown& shown) {
  Json json = {{"name", shown.name},
               {"title", shown.facts.title},
               {"path", shown.file->path()},
               {"bytes", shown.file->file_bytes()},
               {"packed_copy_bytes", shown.copy_bytes},
               {"where", shown.where},
               {"architecture", shown.facts.architecture},
               {"quantization", shown.facts.quantization},
               {"parameters", shown.facts.n_parameters},
               {"context_tokens", shown.spec.context_tokens}};
  Json chat = {
      {"own_template", shown.chat.has_template},
      {"reply_format", shown.chat.reply_format},
      {"tools", shown.chat.tools},
      {"reasoning", shown.chat.reasoning},
      {"past_thoughts", PastThoughtsJson(shown.chat.keeps_thoughts, shown.chat.past_thoughts)}};
  if (!shown.chat.problem.empty()) chat["error"] = shown.chat.problem;
  json["chat"] = std::move(chat);
  Json values = Json::object();
  for (const SamplingParameter& field : SamplingParameters()) {
    const std::optional<double>& number = shown.recommended.advice.*field.advice;
    if (!number) continue;
    Json& value = values[std::string(field.name)];
    if (field.is_whole()) {
      value = static_cast<int64_t>(*number);
    } else {
      value = *number;
    }
  }
  json["sampling"] = {{"by", shown.recommended.by},
                      {"values", std::move(values)},
                      {"stop", shown.recommended.advice.stop},
                      {"not_used", shown.recommended.advice.left_out}};
  auto memory = Json::array();
  for (const int64_t n : Lengths(shown)) {
    memory.push_back({{"tokens", n},
                      {"bytes", SessionBytes(shown.spec, n)},
                      {"sessions_now", shown.SessionsOf(n)}});
  }
  json["memory"] = std::move(memory);
  return json;
}

StatusOr<Shown> Look(const ShowFlags& flags) {
  Shown shown;
  hub::LocalModel model;
  const ModelFinder finder(flags.model.models_folder);
  model.name = model.path = flags.model.path;
  if (flags.model.path.empty()) {
    WEFT_ASSIGN_OR_RETURN(model.name, DefaultModel(finder));
    model.path = model.name;
  }
  const bool is_file = hub::FileBytes(model.path) >= 0 || hub::IsFolder(model.path);
  if (!is_file && model.name == kBuiltInName) {
    shown.name = kBoxModelName;
    WEFT_ASSIGN_OR_RETURN(shown.file, OpenBoxModel());
  } else {
    if (!is_file) {
      auto found = finder.source().FindLocal(model.name);
      if (found.status().code() == StatusCode::kNotFound) {
        return NotFound(Message(found.status()),
                        ": 'weft list' shows the local models, 'weft pull ",
                        Printable(model.name, 200), "' tries to download it");
      }
      WEFT_RETURN_IF_ERROR(found.status());
      model = *std::move(found);
      shown.where = hub::NameOf(model.owner);
    }
    shown.name = model.name;
    WEFT_ASSIGN_OR_RETURN(shown.file, ModelFile::Open(model.path));
  }
  shown.facts = FactsOf(*shown.file);
  WEFT_ASSIGN_OR_RETURN(shown.spec, BuildModelSpec(*shown.file, {}));
  shown.chat = ReadChat(*shown.file);
  shown.recommended = hub::AdviceOf(model, *shown.file);
  shown.copy_bytes = cpu::PackedCopyBytes(hub::ProcessPlaces().packed_copies, *shown.file);
  WEFT_ASSIGN_OR_RETURN(shown.budget_bytes, DefaultMemoryBudget(**FindBackend("cpu"), 0));
  return shown;
}

StatusOr<std::vector<KvAccuracy>> Accuracy(const ShowFlags& flags, const Shown& shown) {
  constexpr size_t kMaxTextBytes = size_t{256} << 20;
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.accuracy_path, kMaxTextBytes));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model, shown.file));
  std::vector<int32_t> tokens = model->Encode(text, /*add_special=*/true, /*parse_special=*/false);
  const int64_t most = std::min(flags.accuracy_tokens, shown.spec.context_tokens - 1);
  if (std::ssize(tokens) > most) tokens.resize(static_cast<size_t>(most));
  return MeasureKvTypes(model, tokens, flags.model.threads);
}

std::string Decimals(double x, int n) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", n, x);
  return text;
}

void PrintAccuracy(const std::vector<KvAccuracy>& types) {
  std::vector<std::vector<std::string>> lines = {
      {"--kv", "bytes per token", "KL to f32", "same best token"}};
  for (const KvAccuracy& type : types) {
    lines.push_back({type.kv, Decimals(type.bytes_per_token, 0), Decimals(type.kl, 5),
                     StrCat(Decimals(100 * type.same_best, 1), " %")});
  }
  PrintLine("");
  PrintTable(lines);
}

Json ToJson(const std::vector<KvAccuracy>& types) {
  auto list = Json::array();
  for (const KvAccuracy& type : types) {
    list.push_back({{"kv", type.kv},
                    {"bytes_per_token", type.bytes_per_token},
                    {"kl", type.kl},
                    {"same_best", type.same_best}});
  }
  return list;
}

Status Show(const ShowFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const Shown shown, Look(flags));
  std::vector<KvAccuracy> types;
  if (!flags.accuracy_path.empty()) {
    WEFT_ASSIGN_OR_RETURN(types, Accuracy(flags, shown));
  }
  if (flags.json) {
    Json json = ToJson(shown);
    if (!types.empty()) json["accuracy"] = ToJson(types);
    PrintJsonLine(json);
  } else {
    PrintFacts(shown);
    if (!types.empty()) PrintAccuracy(types);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeShowCommand(CLI::App* app) {
  auto flags = std::make_shared<ShowFlags>();
  AddModelFlag(app, &flags->model, "NAME");
  // Nothing is downloaded to look at it.
  app->get_option("--model")->description(
      "A model's name, as shown by 'weft list', or its file (default: as for 'weft run')");
  app->add_flag("--json", flags->json, "Print one JSON object");
  auto* const text = app->add_option(
      "--accuracy", flags->accuracy_path,
      "Compute this text with every KV type, and print how far each one's probabilities are from "
      "those with f32: the mean KL divergence, and how often the most probable token is the same");
  text->type_name("FILE");
  app->add_option("--accuracy-tokens", flags->accuracy_tokens, "Max tokens of the text to compute")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str()
      ->needs(text);
  AddBackendFlag(app, &flags->model.backend, "Where --accuracy computes", /*may_choose=*/true);
  app->get_option("--backend")->needs(text);
  app->footer(
      "\nSessions share the weights. The memory of each is that of an f16 KV cache, with "
      "the\nnumber of sessions that fit into half of the free memory. 'weft inspect' shows the\n"
      "whole contents of the file.");
  return [flags] { return Show(*flags); };
}

}  // namespace weft::cli
