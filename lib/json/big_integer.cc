#include "json/big_integer.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Builds the document from parse events. nlohmann dictates the method names.
class Builder {
 public:
  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(Json::number_integer_t value) { return Add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Add(value); }
  bool number_float(Json::number_float_t value, const std::string& written) {
    return Add(NumberAsWritten(value, written));
  }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // never occurs in text
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    member_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

  Json Take() { return std::move(root_); }

 private:
  Json* Place() {
    if (open_.empty()) return &root_;
    return open_.back()->is_array() ? &open_.back()->emplace_back() : member_;
  }
  bool Add(Json value) {
    *Place() = std::move(value);
    return true;
  }
  bool Open(Json value) {
    Json* const place = Place();
    *place = std::move(value);
    open_.push_back(place);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // stable: only the innermost grows
  Json* member_ = nullptr;
};

}  // namespace

Json NumberAsWritten(double value, std::string_view written) {
  const std::string_view digits = written.substr(written.starts_with('-') ? 1 : 0);
  if (digits.find_first_not_of("0123456789") != digits.npos) return value;
  return Json::binary({written.begin(), written.end()});
}

bool IsBigInteger(const Json& value) { return value.is_binary(); }

std::string BigIntegerDigits(const Json& value) {
  const Json::binary_t& digits = value.get_binary();
  return {digits.begin(), digits.end()};
}

bool HasBigInteger(const Json& value) {
  if (value.is_structured()) return std::any_of(value.begin(), value.end(), HasBigInteger);
  return IsBigInteger(value);
}

Json ParseKeepingIntegers(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return Json(Json::value_t::discarded);
  }
  return builder.Take();
}

}  // namespace weft
