#include "cli/help/usage.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/terminal.h"
#include "cli/help/command_tree.h"

namespace weft::cli {
namespace {

constexpr size_t kDescriptionColumn = 30;
constexpr size_t kMaxColumns = 96;
constexpr size_t kMinColumns = 60;

// The window's width within the two limits; the larger one if stdout is no terminal.
size_t LineColumns() {
  const auto window = WindowOf(STDOUT_FILENO);
  return window ? std::clamp(window->columns, kMinColumns, kMaxColumns) : kMaxColumns;
}

// A name and, from its column on, a description.
std::string Described(std::string left, std::string_view description) {
  if (description.empty()) return StrCat(left, "\n");
  if (left.size() + 1 < kDescriptionColumn) {
    left.append(kDescriptionColumn - left.size(), ' ');
  } else {
    StrAppend(&left, "\n", std::string(kDescriptionColumn, ' '));
  }
  return StrCat(left, Fill(description, LineColumns(), kDescriptionColumn, kDescriptionColumn),
                "\n");
}

std::string ValueOf(const OptionInfo& info) {
  if (info.choices.empty()) return info.value;
  std::string all;
  for (const std::string& choice : info.choices) StrAppend(&all, all.empty() ? "" : "|", choice);
  return all;
}

// Edit distance: letters to insert, drop or replace.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The nearest of `names` if it is close enough to be a typo; otherwise empty.
std::string Meant(std::string_view typed, const std::vector<std::string>& names) {
  std::string nearest;
  size_t least = 1 + std::max<size_t>(1, typed.size() / 3);
  for (const std::string& name : names) {
    const size_t distance = Distance(typed, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

// The command that the words on the command line lead to.
CommandInfo Reached(const CLI::App& app) {
  CommandInfo info = DescribeCommand(app);
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    const auto found =
        std::find_if(info.commands.begin(), info.commands.end(),
                     [at](const CommandInfo& command) { return command.name == at->get_name(); });
    if (found == info.commands.end()) break;
    CommandInfo next = std::move(*found);
    info = std::move(next);
  }
  return info;
}

std::string UnknownWord(const CommandInfo& command, std::vector<std::string> words) {
  const auto option = std::find_if(words.begin(), words.end(),
                                   [](const std::string& word) { return word.starts_with('-'); });
  std::vector<std::string> names;
  std::string what;
  if (option != words.end()) {
    std::swap(*option, words.front());
    words.front() = words.front().substr(0, words.front().find('='));
    for (const OptionInfo& info : command.options) {
      names.insert(names.end(), info.names.begin(), info.names.end());
    }
    what = "there is no option ";
  } else {
    for (const CommandInfo& info : command.commands) names.push_back(info.name);
    what = names.empty() ? "one argument too many: " : "there is no command ";
  }
  const std::string meant = Meant(words.front(), names);
  return StrCat(what, Printable(words.front(), 100), meant.empty() ? "" : "; did you mean ", meant,
                meant.empty() ? "" : "?");
}

// The parser's "1 to 8", or "0.000000 to 1.500000", as in "between 0 and 1.5".
std::string Limits(std::string_view said) {
  std::string out;
  for (const std::string_view limit :
       {said.substr(0, said.find(" to ")), said.substr(said.find(" to ") + 4)}) {
    std::string_view shown = limit;
    if (shown.find('.') != shown.npos) {
      shown = shown.substr(0, shown.find_last_not_of('0') + 1);
      if (shown.ends_with('.')) shown.remove_suffix(1);
    }
    StrAppend(&out, out.empty() ? "" : " and ", shown);
  }
  return out;
}

// The parser's "OPTION: VALUE not in {a,b}" as a sentence; empty if it said something else.
std::string NoneOfTheChoices(const std::string& said) {
  constexpr std::string_view kChoices = " not in {";
  const size_t end = said.find(kChoices);
  const size_t begin = said.find(": ");
  if (end == said.npos || begin >= end || !said.ends_with('}')) return "";
  const size_t from = end + kChoices.size();
  std::string choices;
  for (const char c : said.substr(from, said.size() - 1 - from)) {
    StrAppend(&choices, c == ',' ? ", " : std::string(1, c));
  }
  return StrCat(said.substr(0, begin), ": ",
                Printable(said.substr(begin + 2, end - begin - 2), 100), " is none of ", choices);
}

// A sentence for values that an option cannot take; otherwise the parser's own.
std::string WrongValue(const std::string& said) {
  if (std::string choices = NoneOfTheChoices(said); !choices.empty()) return choices;
  constexpr std::string_view kConversion = "Could not convert: ";
  constexpr std::string_view kRange = " not in range ";
  std::string option, value, limits;
  if (said.starts_with(kConversion)) {
    const std::string rest = said.substr(kConversion.size());
    const size_t middle = rest.find(" = ");
    if (middle == rest.npos) return said;
    option = rest.substr(0, middle);
    value = rest.substr(middle + 3);
  } else if (const size_t end = said.find(kRange); end != said.npos) {
    const size_t begin = said.find(": Value ");
    if (begin == said.npos || begin > end) return said;
    option = said.substr(0, begin);
    value = said.substr(begin + 8, end - begin - 8);
    limits = said.substr(end + kRange.size());
  }
  double number = 0;
  if (value.empty()) return said;
  if (!ParseDouble(value, &number)) {
    return StrCat(option, ": ", Printable(value, 100), " is not a number");
  }
  // The limits of whole numbers have no decimals.
  const bool is_whole = limits.find('.') == limits.npos;
  if (is_whole && value.find('.') != value.npos) {
    return StrCat(option, ": ", Printable(value, 100), " is not a whole number");
  }
  if (limits.empty()) return said;
  return StrCat(option, ": ", Printable(value, 100), " is not between ", Limits(limits));
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  const OptionInfo info = DescribeOption(*option);
  std::string left = StrCat("  ", make_option_name(option, is_positional));
  if (!is_positional && !info.value.empty()) StrAppend(&left, " ", ValueOf(info));
  if (info.may_repeat) StrAppend(&left, " ...");
  if (!info.default_value.empty()) StrAppend(&left, " (", info.default_value, ")");
  if (info.is_required) StrAppend(&left, " REQUIRED");
  return Described(std::move(left), info.help);
}

std::string HelpFormatter::make_subcommand(const CLI::App* sub) const {
  return Described(StrCat("  ", sub->get_display_name(true)), sub->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return FillParagraphs(Formatter::make_description(app), LineColumns());
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  const std::string footer = app->get_footer();
  return footer.empty() ? "" : StrCat(FillParagraphs(footer, LineColumns()), "\n");
}

std::string UsageSentence(const CLI::App& app, const CLI::ParseError& error) {
  const CommandInfo command = Reached(app);
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const std::string what =
      is_unknown && !words.empty() ? UnknownWord(command, words) : WrongValue(error.what());
  return StrCat(command.path, ": ", what, what.ends_with('?') ? " '" : "; '", command.path,
                " --help' lists ", command.commands.empty() ? "its options" : "the commands");
}

}  // namespace weft::cli
