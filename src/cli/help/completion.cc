// Completion scripts for three shells. The scripts are self-contained: pressing Tab runs no
// program.
#include <algorithm>

#include "base/strings.h"
#include "cli/help/command_tree.h"

namespace weft::cli {
namespace {

// `text` with a backslash before each character of `special`.
std::string Escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != special.npos) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

// Quotes any text as one word for a Bourne shell.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

// "weft sessions fork" -> "_weft_sessions_fork", a valid name in every shell.
std::string FunctionName(const CommandInfo& command) {
  std::string name = "_" + command.path;
  for (char& c : name) {
    if (c == ' ' || c == '-') c = '_';
  }
  return name;
}

// "  'a' | 'b') BODY ;;\n" of a case statement; nothing if there are no patterns.
void AppendCase(std::string* out, const std::vector<std::string>& patterns, std::string_view body) {
  if (!patterns.empty()) StrAppend(out, "    ", StrJoin(patterns, " | "), ") ", body, " ;;\n");
}

// The values of an option. The script matches on `path option`.
std::string BashValues(const std::vector<const CommandInfo*>& commands) {
  std::string out;
  std::vector<std::string> files, others;
  for (const CommandInfo* command : commands) {
    for (const OptionInfo& option : command->options) {
      std::vector<std::string> patterns;
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) {
        patterns.push_back(Quoted(StrCat(command->path, " ", name)));
      }
      if (!option.choices.empty()) {
        AppendCase(&out, patterns, StrCat("words=", Quoted(StrJoin(option.choices, " "))));
      } else {
        std::vector<std::string>& all = option.is_text ? files : others;
        all.insert(all.end(), patterns.begin(), patterns.end());
      }
    }
  }
  AppendCase(&out, files, "files=1");
  AppendCase(&out, others, "return");
  return out;
}

// Everything that may come next in a command: subcommands, options, positional arguments.
void AppendBashWords(const CommandInfo& command, std::string* out) {
  std::vector<std::string> words;
  bool has_files = false;
  for (const CommandInfo& sub : command.commands) words.push_back(sub.name);
  for (const OptionInfo& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
    if (!option.names.empty()) continue;
    words.insert(words.end(), option.choices.begin(), option.choices.end());
    has_files = has_files || option.is_text;
  }
  AppendCase(out, {Quoted(command.path)},
             StrCat("words=", Quoted(StrJoin(words, " ")), has_files ? " files=1" : ""));
}

// An option in the form of zsh's _arguments: '(-m --model)'{-m,--model=}'[help]:TEXT:_files'.
std::string ZshSpec(const OptionInfo& option) {
  std::string value;
  if (!option.value.empty()) {
    value = StrCat(":", option.value, ":");
    if (!option.choices.empty()) {
      StrAppend(&value, "(", StrJoin(option.choices, " "), ")");
    } else if (option.is_text) {
      value += "_files";
    }
  }
  if (option.names.empty()) return Quoted((option.may_repeat ? "*" : "") + value);
  const std::string help = StrCat("[", Escaped(option.help, "[]\\"), "]", value);
  std::vector<std::string> names = option.names;
  for (std::string& name : names) {
    if (!option.value.empty() && name.starts_with("--")) name += "=";
  }
  if (option.may_repeat) {
    // A repeatable option does not exclude itself; each name gets its own spec.
    std::vector<std::string> specs;
    for (const std::string& name : names) specs.push_back(Quoted(StrCat("*", name, help)));
    return StrJoin(specs, " ");
  }
  if (names.size() == 1) return Quoted(names[0] + help);
  return StrCat("'(", StrJoin(option.names, " "), ")'{", StrJoin(names, ","), "}", Quoted(help));
}

void AppendZshFunction(const CommandInfo& command, std::string* out) {
  const bool is_leaf = command.commands.empty();
  StrAppend(out, FunctionName(command), "() {\n");
  if (!is_leaf) *out += "  local state line\n  local -a commands\n";
  StrAppend(out, "  _arguments ", is_leaf ? "" : "-C ", ":");
  for (const OptionInfo& option : command.options) StrAppend(out, " \\\n    ", ZshSpec(option));
  if (!is_leaf) {
    *out += " \\\n    '1: :->command' \\\n    '*:: :->rest'\n  case $state in\n    command)\n";
    *out += "      commands=(\n";
    for (const CommandInfo& sub : command.commands) {
      StrAppend(out, "        ", Quoted(StrCat(sub.name, ":", Escaped(sub.summary, ":\\"))), "\n");
    }
    *out += "      )\n      _describe command commands ;;\n    rest)\n      case $line[1] in\n";
    for (const CommandInfo& sub : command.commands) {
      StrAppend(out, "        ", sub.name, ") ", FunctionName(sub), " ;;\n");
    }
    *out += "      esac ;;\n  esac";
  }
  *out += "\n}\n\n";
}

std::string FishQuoted(std::string_view text) { return StrCat("'", Escaped(text, "\\'"), "'"); }

// When fish should offer the completions of `command`: its words are present, and none of its
// subcommands.
std::string FishCondition(const CommandInfo& command) {
  const std::vector<std::string_view> words = StrSplit(command.path, ' ');
  std::vector<std::string> parts;
  for (size_t i = 1; i < words.size(); ++i) {
    parts.push_back(StrCat("__fish_seen_subcommand_from ", words[i]));
  }
  if (!command.commands.empty()) {
    std::vector<std::string_view> names;
    for (const CommandInfo& sub : command.commands) names.emplace_back(sub.name);
    parts.push_back(StrCat("not __fish_seen_subcommand_from ", StrJoin(names, " ")));
  }
  return FishQuoted(StrJoin(parts, "; and "));
}

void AppendFishOption(const OptionInfo& option, std::string_view begin, std::string* out) {
  std::string words;
  for (const std::string_view name : option.names) {
    const bool is_long = name.starts_with("--");
    StrAppend(&words, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
  }
  // -F: the value may be a file; -x: it is not.
  if (!option.names.empty() && !option.value.empty()) words += option.is_text ? " -r -F" : " -x";
  if (!option.choices.empty()) StrAppend(&words, " -a ", FishQuoted(StrJoin(option.choices, " ")));
  if (!words.empty()) StrAppend(out, begin, words, " -d ", FishQuoted(option.help), "\n");
}

void AppendFishCommand(const CommandInfo& command, std::string_view program, std::string* out) {
  const std::string begin = StrCat("complete -c ", program, " -n ", FishCondition(command));
  const bool has_files =
      std::any_of(command.options.begin(), command.options.end(),
                  [](const OptionInfo& option) { return option.names.empty() && option.is_text; });
  if (!has_files) StrAppend(out, begin, " -f\n");
  for (const CommandInfo& sub : command.commands) {
    StrAppend(out, begin, " -a ", sub.name, " -d ", FishQuoted(sub.summary), "\n");
  }
  for (const OptionInfo& option : command.options) AppendFishOption(option, begin, out);
}

}  // namespace

std::string BashCompletion(const CommandInfo& root) {
  const std::vector<const CommandInfo*> commands = AllCommands(root);
  std::vector<std::string> paths;
  for (const CommandInfo* command : commands) {
    if (command != &root) paths.push_back(Quoted(command->path));
  }
  std::string out = StrCat("# Completion of ", root.name, " for bash, made by '", root.name,
                           " completion bash'.\n", FunctionName(root), "() {\n");
  StrAppend(&out,
            "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n",
            "  local path=", root.name, " word words='' files=''\n", R"(  COMPREPLY=()
  # To bash, --option=value is three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
)");
  AppendCase(&out, paths, "path+=\" $word\"");
  out += "    esac\n  done\n  case \"$path $previous\" in\n" + BashValues(commands);
  out += "    *) case $path in\n";
  for (const CommandInfo* command : commands) AppendBashWords(*command, &out);
  StrAppend(&out, R"(    esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  # Bash's own file names where no word fits.
  if [[ -n $files ]]; then compopt -o default 2>/dev/null; fi
}
complete -F )",
            FunctionName(root), " ", root.name, "\n");
  return out;
}

std::string ZshCompletion(const CommandInfo& root) {
  std::string out = StrCat("#compdef ", root.name, "\n# Completion of ", root.name,
                           " for zsh, made by '", root.name, " completion zsh'.\n\n");
  for (const CommandInfo* command : AllCommands(root)) AppendZshFunction(*command, &out);
  const std::string name = FunctionName(root);
  StrAppend(&out,
            "# Loaded by zsh from its search path, or sourced.\nif [[ $funcstack[1] == ", name,
            " ]]; then\n  ", name, " \"$@\"\nelse\n  compdef ", name, " ", root.name, "\nfi\n");
  return out;
}

std::string FishCompletion(const CommandInfo& root) {
  std::string out = StrCat("# Completion of ", root.name, " for fish, made by '", root.name,
                           " completion fish'.\n");
  for (const CommandInfo* command : AllCommands(root)) AppendFishCommand(*command, root.name, &out);
  return out;
}

}  // namespace weft::cli
