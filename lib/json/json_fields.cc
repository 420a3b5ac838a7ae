#include "json/json_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Looking a member up among those read so far takes linear time, so an object of a million members
// would take hours. This limits the comparisons for one document to about a second.
constexpr size_t kMaxComparisons = 20'000'000;

// Builds the document from parse events and stops at the first limit. nlohmann dictates the method
// names.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return Add(nullptr) != nullptr; }
  bool boolean(bool value) { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& written) {
    return Add(NumberAsWritten(value, written)) != nullptr;
  }
  bool string(string_t& value) { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) { return false; }  // never occurs in text
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(string_t& name) {
    Json& object = *open_.back();
    comparisons_ += object.size();
    if (comparisons_ > kMaxComparisons) return Fail("too many members in its objects");
    member_ = &object[std::move(name)];
    return true;
  }

  template <typename Exception>
  bool parse_error(size_t position, const std::string&, const Exception& error) {
    // Error 406: a number beyond the range of a double.
    if (error.id == 406) return Fail("a number too large for a double", position);
    return Fail("no valid JSON", position);
  }

  StatusOr<Json> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }
  void FailAtEnd() { Fail("no valid JSON"); }

 private:
  Json* Add(Json value) {
    if (++n_values_ > limits_.max_values) {
      Fail(StrCat("more than the ", limits_.max_values, " values allowed"));
      return nullptr;
    }
    Json* place = &root_;
    if (!open_.empty()) {
      place = open_.back()->is_array() ? &open_.back()->emplace_back() : member_;
    }
    *place = std::move(value);
    return place;
  }
  bool Open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Fail(StrCat("nested deeper than the ", limits_.max_depth, " levels allowed"));
    }
    Json* const place = Add(std::move(value));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Fail(std::string_view what, size_t position = 0) {
    if (!status_.ok()) return false;
    std::string message = StrCat("the body is ", what);
    if (what.starts_with("too many") || what.starts_with("a number") ||
        what.starts_with("more than")) {
      message = StrCat("the body has ", what);
    }
    if (position > 0) StrAppend(&message, " at byte ", position);
    status_ = InvalidArgument(message);
    return false;
  }

  const JsonLimits limits_;
  Json root_;
  // The open containers. Pointers stay valid: only the innermost grows.
  std::vector<Json*> open_;
  Json* member_ = nullptr;
  size_t n_values_ = 0;
  size_t comparisons_ = 0;
  Status status_;
};

std::string NumberText(double value) { return StrCat(value); }

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.empty()) return InvalidArgument("the body is empty; it must be JSON");
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) builder.FailAtEnd();
  return builder.Take();
}

JsonFields::JsonFields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string where = path_.empty() ? "the body" : path_.substr(0, path_.size() - 1);
  failed_field_ = path_.empty() ? "" : where;
  status_ = InvalidArgument(where, " must be a JSON object");
}

const Json* JsonFields::Take(std::string_view name) {
  if (!status_.ok()) return nullptr;
  seen_.emplace(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::Fail(std::string_view name, std::string_view what) {
  if (!status_.ok()) return;
  failed_field_ = StrCat(path_, name);
  status_ = InvalidArgument(failed_field_, " ", what);
}

std::optional<bool> JsonFields::Bool(std::string_view name) {
  const Json* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, "must be true or false");
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(std::string_view name, int64_t min, int64_t max) {
  const Json* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (value->is_number_unsigned()) {
    const uint64_t raw = value->get<uint64_t>();
    if (raw <= static_cast<uint64_t>(INT64_MAX)) number = static_cast<int64_t>(raw);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    // Clients in languages that only know doubles write 5.0.
    const double raw = value->get<double>();
    if (std::trunc(raw) == raw && std::abs(raw) < 9e15) number = static_cast<int64_t>(raw);
  }
  if (number.has_value() && *number >= min && *number <= max) return number;
  if (min == INT64_MIN && max == INT64_MAX) {
    Fail(name, "must be an integer");
  } else if (max == INT64_MAX) {
    Fail(name, StrCat("must be an integer of at least ", min));
  } else {
    Fail(name, StrCat("must be an integer between ", min, " and ", max));
  }
  return std::nullopt;
}

std::optional<double> JsonFields::Number(std::string_view name, double min, double max) {
  const Json* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  Fail(name, StrCat("must be a number between ", NumberText(min), " and ", NumberText(max)));
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(std::string_view name) {
  const Json* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, "must be a string");
  return std::nullopt;
}

std::optional<std::vector<std::string>> JsonFields::Strings(std::string_view name,
                                                            size_t max_count) {
  const Json* const value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  const bool strings =
      value->is_array() &&
      std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); });
  if (!strings) {
    Fail(name, "must be a string or an array of strings");
    return std::nullopt;
  }
  if (value->size() > max_count) {
    Fail(name, StrCat("has ", value->size(), " strings; at most ", max_count, " are allowed"));
    return std::nullopt;
  }
  return value->get<std::vector<std::string>>();
}

const Json* JsonFields::Value(std::string_view name) { return Take(name); }

void JsonFields::Refuse(std::string_view name, std::string_view why, const Json& harmless) {
  const Json* const value = Take(name);
  if (value != nullptr && *value != harmless) Fail(name, why);
}

void JsonFields::CannotMatter(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) seen_.emplace(name);
}

Status JsonFields::Finish(std::vector<std::string>* unknown) {
  if (!status_.ok()) return status_;
  for (const auto& [name, value] : object_.items()) {
    if (!seen_.contains(name)) unknown->push_back(StrCat(path_, name));
  }
  return OkStatus();
}

}  // namespace weft
