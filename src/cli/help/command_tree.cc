#include "cli/help/command_tree.h"

#include <utility>

#include "base/strings.h"

namespace weft::cli {
namespace {

// The parser shows a type as "TEXT", one with limits as "INT:INT in [0 - 8]", and one with choices
// as "TEXT:{cpu,reference}".
void ReadType(std::string_view type, OptionInfo* info) {
  const size_t end = type.find_first_of(": ");
  info->value = std::string(type.substr(0, end));
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  if (close != type.npos) {
    for (const std::string_view choice : StrSplit(type.substr(open + 1, close - open - 1), ',')) {
      info->choices.emplace_back(choice);
    }
  }
  info->is_text = info->value == "TEXT" && info->choices.empty();
}

// The parser gives a command without a footer that of the program, `program_footer`.
CommandInfo Describe(const CLI::App& app, const std::string& parent,
                     const std::string& program_footer) {
  CommandInfo info;
  info.name = app.get_name();
  info.path = parent.empty() ? info.name : StrCat(parent, " ", info.name);
  info.summary = app.get_description();
  while (info.summary.ends_with('\n')) info.summary.pop_back();
  if (app.get_footer() != program_footer) info.footer = app.get_footer();
  // Items without a group are hidden from --help.
  const auto is_shown = [](const auto* item) { return !item->get_group().empty(); };
  for (const CLI::Option* option : app.get_options(is_shown)) {
    info.options.push_back(DescribeOption(*option));
    if (!option->get_positional() || info.options.back().names.empty()) continue;
    // One that may also be given without its name, as in "run PROMPT", is two.
    OptionInfo positional = info.options.back();
    positional.names.clear();
    positional.value = option->get_name(/*positional=*/true);
    info.options.push_back(std::move(positional));
  }
  for (const CLI::App* sub : app.get_subcommands(is_shown)) {
    info.commands.push_back(Describe(*sub, info.path, program_footer));
  }
  return info;
}

void Collect(const CommandInfo& info, std::vector<const CommandInfo*>* all) {
  all->push_back(&info);
  for (const CommandInfo& command : info.commands) Collect(command, all);
}

}  // namespace

OptionInfo DescribeOption(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) ReadType(option.get_type_name(), &info);
  if (info.names.empty()) info.value = option.get_name(/*positional=*/true);
  info.help = option.get_description();
  info.default_value = option.get_default_str();
  info.is_required = option.get_required();
  info.may_repeat = option.get_items_expected_max() > 1;
  return info;
}

CommandInfo DescribeCommand(const CLI::App& app) {
  CommandInfo info = Describe(app, "", app.get_footer());
  info.footer = app.get_footer();
  return info;
}

std::vector<const CommandInfo*> AllCommands(const CommandInfo& root) {
  std::vector<const CommandInfo*> all;
  Collect(root, &all);
  return all;
}

}  // namespace weft::cli
