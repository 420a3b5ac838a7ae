#include "cli/serve/models_file.h"

#include <algorithm>

#include "base/strings.h"

namespace weft::cli {
namespace {

bool IsBare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// The unread rest of a line.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  bool AtEnd() {
    Skip();
    return rest_.empty() || rest_.front() == '#';
  }
  bool Take(char c) {
    Skip();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Letters, digits, - _ and dots; empty if there are none.
  std::string Bare() {
    Skip();
    const auto end = std::ranges::find_if_not(rest_, IsBare);
    std::string word(rest_.begin(), end);
    rest_.remove_prefix(word.size());
    return word;
  }
  StatusOr<std::string> Name() {
    Skip();
    if (IsQuote()) return Quoted();
    std::string word = Bare();
    if (word.empty()) return Error("a name is missing");
    return word;
  }
  StatusOr<std::string> Value() {
    Skip();
    if (IsQuote()) return Quoted();
    (void)Take('+');
    std::string word = Bare();
    double number = 0;
    if (word == "true" || word == "false" || ParseDouble(word, &number)) return word;
    return Error("a value is a string in quotes, a number, true or false");
  }
  Status Error(std::string_view what) const {
    return InvalidArgument("line ", number_, ": ", what);
  }
  int number() const { return number_; }

 private:
  bool IsQuote() const { return !rest_.empty() && (rest_.front() == '"' || rest_.front() == '\''); }
  void Skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) {
      rest_.remove_prefix(1);
    }
  }
  // "..." with escapes, or '...' without.
  StatusOr<std::string> Quoted() {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && rest_.front() != quote) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\' && quote == '"') {
        const std::string_view from = "\\\"nt", to = "\\\"\n\t";
        const size_t at = rest_.empty() ? from.npos : from.find(rest_.front());
        if (at == from.npos) return Error("an escape other than \\\\ \\\" \\n \\t");
        c = to[at];
        rest_.remove_prefix(1);
      }
      text.push_back(c);
    }
    if (rest_.empty()) return Error("a string has no end");
    rest_.remove_prefix(1);
    return text;
  }

  std::string_view rest_;
  const int number_;
};

Status ReadHeader(Line* line, std::vector<ModelTable>* tables) {
  WEFT_ASSIGN_OR_RETURN(std::string name, line->Name());
  if (!line->Take(']') || !line->AtEnd()) return line->Error("a table begins as [name]");
  if (name.empty()) return line->Error("a model's name is empty");
  for (const ModelTable& table : *tables) {
    if (table.name == name) return line->Error(StrCat("a second table [", Printable(name), "]"));
  }
  tables->push_back({.name = std::move(name), .line = line->number()});
  return OkStatus();
}

Status ReadItems(Line* line, ModelTable::Value* value) {
  if (!line->Take('[')) {
    WEFT_ASSIGN_OR_RETURN(value->items.emplace_back(), line->Value());
    return OkStatus();
  }
  value->is_array = true;
  while (!line->Take(']')) {
    WEFT_ASSIGN_OR_RETURN(value->items.emplace_back(), line->Value());
    if (line->Take(',')) continue;
    if (line->Take(']')) break;
    return line->Error("an array ends with ] on the same line");
  }
  return OkStatus();
}

Status ReadValue(Line* line, ModelTable* table) {
  ModelTable::Value value{.line = line->number()};
  WEFT_ASSIGN_OR_RETURN(value.key, line->Name());
  if (value.key.empty()) return line->Error("a key is empty");
  if (!line->Take('=')) {
    return line->Error(StrCat("\"", Printable(value.key), "\" is not followed by ="));
  }
  for (const ModelTable::Value& other : table->values) {
    if (other.key == value.key) {
      return line->Error(StrCat("a second value of ", Printable(value.key)));
    }
  }
  WEFT_RETURN_IF_ERROR(ReadItems(line, &value));
  if (!line->AtEnd()) return line->Error("something follows the value");
  table->values.push_back(std::move(value));
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<ModelTable>> ParseModelsFile(std::string_view text) {
  std::vector<ModelTable> tables;
  int number = 0;
  for (std::string_view words : StrSplit(text, '\n')) {
    if (words.ends_with('\r')) words.remove_suffix(1);
    Line line(words, ++number);
    if (line.AtEnd()) continue;
    if (line.Take('[')) {
      WEFT_RETURN_IF_ERROR(ReadHeader(&line, &tables));
    } else if (tables.empty()) {
      return line.Error("a model's table comes first, such as [haiku]");
    } else {
      WEFT_RETURN_IF_ERROR(ReadValue(&line, &tables.back()));
    }
  }
  return tables;
}

}  // namespace weft::cli
