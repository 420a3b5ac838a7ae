#include "cli/chat/command.h"

#include <algorithm>
#include <utility>

namespace weft::cli {

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

namespace {

// Removes and returns the first word of `rest`.
std::string_view TakeWord(std::string_view* rest) {
  const size_t end = std::min(rest->find_first_of(kBlank), rest->size());
  const std::string_view word = rest->substr(0, end);
  *rest = Trim(rest->substr(end));
  return word;
}

// Parses a command's arguments from `rest` into the fields.
using ArgumentParser = Status (*)(std::string_view rest, ChatCommand* command);

Status ParseNothing(std::string_view rest, ChatCommand* command) {
  if (rest.empty()) return OkStatus();
  return InvalidArgument("it takes no arguments");
}

// Names may contain spaces if nothing follows them.
Status ParseOptionalName(std::string_view rest, ChatCommand* command) {
  command->name = std::string(rest);
  return OkStatus();
}

Status ParseName(std::string_view rest, ChatCommand* command) {
  if (rest.empty()) return InvalidArgument("it needs a name");
  return ParseOptionalName(rest, command);
}

Status ParseText(std::string_view rest, ChatCommand* command) {
  command->text = std::string(rest);
  return OkStatus();
}

Status ParseImage(std::string_view rest, ChatCommand* command) {
  if (rest.empty()) return InvalidArgument("it needs a picture's file");
  return ParseText(rest, command);
}

Status ParseNameAndText(std::string_view rest, ChatCommand* command) {
  command->name = std::string(TakeWord(&rest));
  return ParseText(rest, command);
}

Status ParseCount(std::string_view rest, ChatCommand* command) {
  command->number = 1;
  if (rest.empty()) return OkStatus();
  if (!ParseInt64(rest, &command->number) || command->number < 1) {
    return InvalidArgument("the number of exchanges must be at least 1");
  }
  return OkStatus();
}

Status ParseTrim(std::string_view rest, ChatCommand* command) {
  command->number = 0;
  return rest.empty() ? OkStatus() : ParseCount(rest, command);
}

Status ParseTemperature(std::string_view rest, ChatCommand* command) {
  command->name = "temperature";
  return ParseText(rest, command);
}

// A single number is the message, not the name.
Status ParseFork(std::string_view rest, ChatCommand* command) {
  const auto is_number = [command](std::string_view word) {
    return ParseInt64(word, &command->number) && command->number >= 0;
  };
  if (rest.empty() || is_number(rest)) return OkStatus();
  command->name = std::string(TakeWord(&rest));
  command->number = -1;
  if (rest.empty() || is_number(rest)) return OkStatus();
  return InvalidArgument("the message must be a number as shown by /history");
}

struct Entry {
  std::string_view word;
  ChatVerb verb;
  ArgumentParser parse;
};

// The kind of a command's argument, for completion.
bool TakesConversation(ChatVerb verb) {
  return verb == ChatVerb::kSwitch || verb == ChatVerb::kLoad || verb == ChatVerb::kPark ||
         verb == ChatVerb::kDrop;
}

constexpr Entry kEntries[] = {
    {"image", ChatVerb::kImage, ParseImage},
    {"new", ChatVerb::kNew, ParseNameAndText},
    {"list", ChatVerb::kList, ParseNothing},
    {"switch", ChatVerb::kSwitch, ParseName},
    {"fork", ChatVerb::kFork, ParseFork},
    {"undo", ChatVerb::kUndo, ParseCount},
    {"trim", ChatVerb::kTrim, ParseTrim},
    {"regenerate", ChatVerb::kRegenerate, ParseNothing},
    {"system", ChatVerb::kSystem, ParseText},
    {"history", ChatVerb::kHistory, ParseNothing},
    {"set", ChatVerb::kSet, ParseNameAndText},
    {"temp", ChatVerb::kSet, ParseTemperature},
    {"save", ChatVerb::kSave, ParseNothing},
    {"load", ChatVerb::kLoad, ParseName},
    {"park", ChatVerb::kPark, ParseOptionalName},
    {"rename", ChatVerb::kRename, ParseName},
    {"drop", ChatVerb::kDrop, ParseName},
    {"stats", ChatVerb::kStats, ParseNothing},
    {"help", ChatVerb::kHelp, ParseNothing},
    {"quit", ChatVerb::kQuit, ParseNothing},
    {"exit", ChatVerb::kQuit, ParseNothing},
};

constexpr ChatHelp kHelp[] = {
    {"/image FILE [MESSAGE]", "show a picture with that message, or with the next one"},
    {"/new [NAME] [SYSTEM...]", "start another conversation, with a system message"},
    {"/list", "list the conversations; * marks the current one"},
    {"/switch NAME", "switch to that conversation"},
    {"/fork [NAME] [MESSAGE]", "branch off after that message, and switch to the branch"},
    {"/undo [N]", "remove the last N exchanges"},
    {"/regenerate", "answer the last question again"},
    {"/trim [N]", "remove the oldest N exchanges, or as many as must go"},
    {"/system [TEXT]", "show or change the system message"},
    {"/history", "show the messages and their numbers"},
    {"/set [NAME [VALUE]]",
     "show the settings, or change one; 'default' restores the initial value"},
    {"/temp [T]", "show or change the temperature"},
    {"/save", "write this conversation to the state directory"},
    {"/load NAME", "load a saved conversation, and switch to it"},
    {"/park [NAME]", "park a conversation: save it and free its memory until you use it again"},
    {"/rename NAME", "rename this conversation"},
    {"/drop NAME", "delete that conversation and its files"},
    {"/stats", "show tokens, memory and speed"},
    {"/help", "this list"},
    {"/quit", "leave; Ctrl-D, or Ctrl-C twice, does the same"},
};

}  // namespace

StatusOr<ChatCommand> ParseChatLine(std::string_view line) {
  ChatCommand command;
  if (!line.starts_with('/') || line.starts_with("//")) {
    command.text = std::string(line.substr(line.starts_with('/') ? 1 : 0));
    return command;
  }
  std::string_view rest = Trim(line.substr(1));
  const std::string_view word = TakeWord(&rest);
  for (const Entry& entry : kEntries) {
    if (entry.word != word) continue;
    command.verb = entry.verb;
    WEFT_RETURN_IF_ERROR(Annotate(entry.parse(rest, &command), "/", word, ": "));
    return command;
  }
  return InvalidArgument("there is no command /", Printable(word),
                         "; /help lists them, and // begins a message with /");
}

void MessageLines::Add(std::string_view line) {
  constexpr std::string_view kQuotes = "\"\"\"";
  if (n_lines_++ == 0 && line.starts_with(kQuotes)) {
    quoted_ = true;
    line.remove_prefix(kQuotes.size());
    // Only the quotes: the message begins with the next line.
    if (Trim(line).empty()) return;
  }
  if (quoted_) {
    const std::string_view end = Trim(line);
    complete_ = end.ends_with(kQuotes);
    if (complete_) line = line.substr(0, line.rfind(kQuotes));
    StrAppend(&text_, line, complete_ ? "" : "\n");
    return;
  }
  complete_ = !line.ends_with('\\');
  StrAppend(&text_, complete_ ? line : line.substr(0, line.size() - 1), complete_ ? "" : "\n");
}

std::string MessageLines::Take() {
  if (!quoted_) return text_;
  while (text_.ends_with('\n')) text_.pop_back();
  return text_.starts_with('/') ? "/" + text_ : text_;
}

ChatCompletions CompleteChatLine(std::string_view line,
                                 const std::vector<std::string>& conversations,
                                 const std::vector<std::string>& settings) {
  ChatCompletions completions;
  if (!line.starts_with('/')) return completions;
  const auto offer = [&](std::string_view begun, std::string_view candidate) {
    if (candidate.starts_with(begun)) completions.candidates.emplace_back(candidate);
  };
  const size_t space = line.find(' ');
  completions.begin = space == line.npos ? 1 : space + 1;
  const std::string_view begun = line.substr(completions.begin);
  if (space == line.npos) {
    for (const Entry& entry : kEntries) offer(begun, entry.word);
    std::sort(completions.candidates.begin(), completions.candidates.end());
    return completions;
  }
  const std::string_view word = line.substr(1, space - 1);
  for (const Entry& entry : kEntries) {
    if (entry.word != word) continue;
    if (TakesConversation(entry.verb)) {
      for (const std::string& name : conversations) offer(begun, name);
    } else if (word == "set") {
      for (const std::string& name : settings) offer(begun, name);
    }
  }
  return completions;
}

std::span<const ChatHelp> ChatHelpLines() { return kHelp; }

}  // namespace weft::cli
