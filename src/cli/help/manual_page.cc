// The manual page: one for the program and all of its commands.
#include "base/strings.h"
#include "cli/help/command_tree.h"

namespace weft::cli {
namespace {

// Escapes a line of text for troff.
std::string Roff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out = "\\&";
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string Bold(std::string_view text) { return StrCat("\\fB", Roff(text), "\\fR"); }
std::string Italic(std::string_view text) { return StrCat("\\fI", Roff(text), "\\fR"); }

// Fills paragraphs; indented lines are kept as they are.
void AppendText(std::string_view text, std::string* out) {
  bool is_literal = false;
  bool is_new_paragraph = true;
  for (const std::string_view line : StrSplit(text, '\n')) {
    if (line.empty()) {
      is_new_paragraph = true;
      continue;
    }
    const bool literal = line.starts_with(' ');
    if (is_literal && !literal) *out += ".EE\n";
    if (is_new_paragraph || literal != is_literal) *out += ".PP\n";
    if (literal && !is_literal) *out += ".EX\n";
    is_literal = literal;
    is_new_paragraph = false;
    StrAppend(out, Roff(line), "\n");
  }
  if (is_literal) *out += ".EE\n";
}

void AppendOption(const OptionInfo& option, std::string* out) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(Bold(name));
  StrAppend(out, ".TP\n", StrJoin(names, ", "));
  if (!option.value.empty()) {
    StrAppend(out, names.empty() ? "" : " ",
              Italic(option.choices.empty() ? option.value : StrJoin(option.choices, "|")));
  }
  StrAppend(out, "\n", Roff(option.help), ".");
  if (!option.default_value.empty()) StrAppend(out, " Default: ", Roff(option.default_value), ".");
  *out += "\n";
}

// "weft run [OPTIONS] --model TEXT PROMPT": the required arguments, and OPTIONS for the others.
void AppendSynopsis(const CommandInfo& command, std::string* out) {
  StrAppend(out, Bold(command.path), " [", Italic("OPTIONS"), "]");
  for (const OptionInfo& option : command.options) {
    if (!option.is_required && !option.names.empty()) continue;
    std::string text = option.names.empty() ? "" : Bold(option.names.back());
    if (!option.value.empty()) {
      StrAppend(&text, text.empty() ? "" : " ", Italic(option.value));
    }
    if (option.may_repeat) text += " ...";
    *out += option.is_required ? StrCat(" ", text) : StrCat(" [", text, "]");
  }
  *out += "\n";
}

}  // namespace

std::string ManualPage(const CommandInfo& root, std::string_view version) {
  std::string title = root.name;
  for (char& c : title) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  std::string out = StrCat(".TH ", title, " 1 \"\" \"", root.name, " ", version,
                           "\" \"User Commands\"\n.SH NAME\n", root.name,
                           " \\- many conversations on one language model\n.SH SYNOPSIS\n");
  std::vector<const CommandInfo*> leaves;
  for (const CommandInfo* command : AllCommands(root)) {
    if (command->commands.empty()) leaves.push_back(command);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (i > 0) out += ".br\n";
    AppendSynopsis(*leaves[i], &out);
  }
  StrAppend(&out, ".SH DESCRIPTION\n", Roff(root.summary), "\n");
  AppendText(root.footer, &out);
  out += ".SH OPTIONS\n";
  for (const OptionInfo& option : root.options) AppendOption(option, &out);
  out += ".SH COMMANDS\n";
  for (const CommandInfo* command : AllCommands(root)) {
    if (command == &root) continue;
    StrAppend(&out, ".SS ", Roff(command->path), "\n", Roff(command->summary), ".\n");
    for (const OptionInfo& option : command->options) AppendOption(option, &out);
    AppendText(command->footer, &out);
  }
  return out;
}

}  // namespace weft::cli
