#include "doors/api/model_wish.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "doors/api/fields/error_shapes.h"
#include "doors/http/router.h"
#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;

// Longer than any server runs.
constexpr double kMaxSeconds = 1e9;

milliseconds OfSeconds(double seconds) {
  if (!(seconds >= 0)) return milliseconds(-1);
  return milliseconds(std::llround(std::min(seconds, kMaxSeconds) * 1000));
}

double SecondsOf(std::string_view unit) {
  if (unit == "h") return 3600;
  if (unit == "m") return 60;
  if (unit == "s") return 1;
  if (unit == "ms") return 1e-3;
  return unit == "us" || unit == "ns" ? 1e-6 : 0;
}

// What a query says of a switch: "1", "true"; nothing if it says nothing of it.
std::optional<bool> Switch(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return std::nullopt;
  return found->second == "1" || found->second == "true" || found->second == "on";
}

// Members of the outermost object; stops where nothing else can matter.
class TopMembers : public nlohmann::json_sax<nlohmann::json> {
 public:
  enum class Wanted { kModel, kModelAndKeepAlive, kStream };
  explicit TopMembers(Wanted wanted)
      : is_ollama_(wanted == Wanted::kModelAndKeepAlive),
        wants_stream_(wanted == Wanted::kStream) {}

  std::optional<std::string> model;
  std::optional<std::string> name;  // Ollama's other word for it
  std::optional<milliseconds> keep_alive;
  bool stream = false;

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ == 1 && key_ == "stream") stream = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool string(string_t& value) override {
    if (depth_ != 1) return depth_ > 0;
    if (key_ == "model") model = value;
    if (key_ == "name" && is_ollama_) name = value;
    if (key_ == "keep_alive" && is_ollama_) keep_alive = ReadKeepAlive(value);
    return !IsDone();
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_ > 0; }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool end_object() override { return --depth_ > 0; }
  bool start_array(size_t) override { return depth_ > 0 && ++depth_ > 0; }
  bool end_array() override { return --depth_ > 0; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Number(double value) {
    if (depth_ == 1 && key_ == "keep_alive" && is_ollama_) keep_alive = OfSeconds(value);
    return depth_ > 0 && !IsDone();
  }
  bool IsDone() const { return !wants_stream_ && model.has_value() && (!is_ollama_ || keep_alive); }

  const bool is_ollama_, wants_stream_;
  int64_t depth_ = 0;
  std::string key_;
};

}  // namespace

std::optional<milliseconds> ReadKeepAlive(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  while (!text.empty()) {
    const size_t n_digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number(text.substr(0, n_digits));
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0') return std::nullopt;
    text.remove_prefix(n_digits);
    const size_t n_letters = std::min(text.find_first_of("0123456789."), text.size());
    const double unit = n_letters == 0 ? 1 : SecondsOf(text.substr(0, n_letters));
    if (unit == 0) return std::nullopt;
    text.remove_prefix(n_letters);
    seconds += value * unit;
  }
  return is_negative ? milliseconds(-1) : OfSeconds(seconds);
}

bool WantsStream(const HttpRequest& request) {
  if (request.body.empty()) return false;
  TopMembers members(TopMembers::Wanted::kStream);
  (void)nlohmann::json::sax_parse(request.body, &members);
  return members.stream;
}

ModelWish ReadModelWish(const HttpRequest& request, bool may_load) {
  ModelWish wish;
  const bool is_ollama = request.route != nullptr && request.route->shape == kOllamaErrors;
  TopMembers members(is_ollama ? TopMembers::Wanted::kModelAndKeepAlive
                               : TopMembers::Wanted::kModel);
  if (!request.body.empty()) {
    (void)nlohmann::json::sax_parse(request.body, &members);
    wish.keep_alive = members.keep_alive;
  }
  const auto in_query = request.query.find("model");
  if (members.model || members.name) {
    wish.name = members.model.value_or(members.name.value_or(""));
  } else if (in_query != request.query.end()) {
    wish.name = in_query->second;
  }
  wish.may_load = Switch(request, "autoload").value_or(may_load);
  wish.counts = request.route == nullptr || !request.route->is_watched;
  return wish;
}

}  // namespace weft::serve
