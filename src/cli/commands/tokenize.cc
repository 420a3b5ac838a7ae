// weft tokenize and weft detokenize.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal/output.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct TokenizeFlags {
  ModelFlags model;
  bool no_special = false;
  bool add_bos = false;
  bool json = false;
  std::string text;
};

Status Tokenize(const TokenizeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, TextOrStdin(flags.text));
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  const std::vector<TokenId> ids =
      tokenizer->Encode(text, {.add_special = flags.add_bos, .parse_special = !flags.no_special});
  if (!flags.json) {
    PrintLine(StrJoin(ids, " "));
    return FlushStdout();
  }
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(tokenizer->Piece(id, /*render_special=*/true));
  PrintJsonLine({{"tokens", ids}, {"pieces", pieces}});
  return FlushStdout();
}

struct DetokenizeFlags {
  ModelFlags model;
  bool json = false;
  std::vector<TokenId> ids;
};

Status Detokenize(const DetokenizeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  for (const TokenId id : flags.ids) {
    if (id < 0 || id >= tokenizer->vocab_size()) {
      return InvalidArgument("token ", id, " is outside the vocabulary of ",
                             tokenizer->vocab_size());
    }
  }
  const std::string text = tokenizer->Decode(flags.ids, /*render_special=*/true);
  if (flags.json) {
    PrintJsonLine({{"text", text}});
  } else {
    PrintLine(text);
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeTokenizeCommand(CLI::App* app) {
  auto flags = std::make_shared<TokenizeFlags>();
  AddModelFlag(app, &flags->model);
  app->add_flag("--no-special", flags->no_special,
                "Treat control tokens written in the text (<|im_end|>) as plain text");
  app->add_flag("--add-bos", flags->add_bos,
                "Add the tokens that the model expects around the text (BOS, EOS)");
  app->add_flag("--json", flags->json, "Print one JSON object with tokens and their pieces");
  app->add_option("TEXT", flags->text, "The text; - reads stdin")->required();
  return [flags] { return Tokenize(*flags); };
}

CommandBody MakeDetokenizeCommand(CLI::App* app) {
  auto flags = std::make_shared<DetokenizeFlags>();
  AddModelFlag(app, &flags->model);
  app->add_flag("--json", flags->json, "Print one JSON object with the text");
  app->add_option("IDS", flags->ids, "Token ids")->required();
  return [flags] { return Detokenize(*flags); };
}

}  // namespace weft::cli
