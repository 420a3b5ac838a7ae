// String methods that search or test: find, count, startswith, isdigit.
#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/interpreter.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

// The part of the text between the optional arguments start and end.
struct Window {
  std::string_view text;
  int64_t first_char;  // code points before it

  static StatusOr<Window> Take(const Value& self, Arguments* args) {
    const Value* const start = args->Take("start");
    const Value* const end = args->Take("end");
    WEFT_RETURN_IF_ERROR(args->Finish());
    Window window{self.text(), 0};
    const auto given = [](const Value* v) { return v != nullptr && !v->is_none(); };
    if (!given(start) && !given(end)) return window;
    for (const Value* bound : {start, end}) {
      if (given(bound) && !bound->is_integral()) {
        return InvalidArgument("a position in a string must be an integer");
      }
    }
    const int64_t n = CountChars(self.text());
    const auto clamp = [n](int64_t at) {
      return at < 0 ? std::max<int64_t>(at < -n ? 0 : at + n, 0) : at;
    };
    const int64_t from = given(start) ? clamp(start->integer()) : 0;
    const int64_t to = given(end) ? std::min(clamp(end->integer()), n) : n;
    if (from > n || from > to) return Window{std::string_view(), -1};
    const size_t at = ByteOffset(self.text(), from);
    window.first_char = from;
    window.text = self.text().substr(at, ByteOffset(self.text().substr(at), to - from));
    return window;
  }
  bool impossible() const { return first_char < 0; }
};

template <bool kFromRight, bool kMustExist>
StatusOr<Value> FindMethodImpl(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view wanted, args->RequireString("sub"));
  WEFT_ASSIGN_OR_RETURN(const Window window, Window::Take(self, args));
  in->meter()->SpendBytes(self.text().size());
  size_t at = std::string_view::npos;
  if (!window.impossible()) {
    at = kFromRight ? FindLastText(in->meter(), window.text, wanted)
                    : FindText(in->meter(), window.text, wanted);
  }
  if (at != std::string_view::npos) {
    return Value::Int(window.first_char + CountChars(window.text.substr(0, at)));
  }
  if (kMustExist) return InvalidArgument("the substring was not found");
  return Value::Int(-1);
}

StatusOr<Value> CountMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view wanted, args->RequireString("sub"));
  WEFT_ASSIGN_OR_RETURN(const Window window, Window::Take(self, args));
  in->meter()->SpendBytes(self.text().size());
  if (window.impossible()) return Value::Int(0);
  if (wanted.empty()) return Value::Int(CountChars(window.text) + 1);
  int64_t count = 0;
  for (size_t at = 0;
       (at = FindText(in->meter(), window.text, wanted, at)) != std::string_view::npos;) {
    if (!in->meter()->ok()) return in->meter()->status();
    ++count;
    at += wanted.size();
  }
  return Value::Int(count);
}

// startswith and endswith: with a string, or any of a tuple.
template <bool kStart>
StatusOr<Value> AffixMethod(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_ASSIGN_OR_RETURN(const Value* const wanted, args->Require("prefix"));
  WEFT_ASSIGN_OR_RETURN(const Window window, Window::Take(self, args));
  const auto has = [&](const Value& affix) {
    in->meter()->SpendBytes(affix.text().size());
    return !window.impossible() &&
           (kStart ? window.text.starts_with(affix.text()) : window.text.ends_with(affix.text()));
  };
  if (wanted->is_string()) return Value::Bool(has(*wanted));
  if (!wanted->is_list_of(ListKind::kTuple)) {
    return InvalidArgument("startswith and endswith take a string or a tuple of them");
  }
  for (const Value& affix : wanted->list().items) {
    if (!affix.is_string()) return InvalidArgument("the tuple must hold strings");
    if (has(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

// Whether the text is not empty and all of its code points are of the class.
template <bool (*kClass)(char32_t)>
StatusOr<Value> AllAre(Interpreter* in, const Value& self, Arguments* args) {
  WEFT_RETURN_IF_ERROR(args->Finish());
  in->meter()->SpendChars(self.text().size());
  std::string_view rest = self.text();
  if (rest.empty()) return Value::Bool(false);
  for (; !rest.empty(); rest.remove_prefix(CharBytes(rest))) {
    if (!kClass(FirstChar(rest))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

bool IsAlphaNumeric(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

constexpr MethodEntry kMethods[] = {
    {"startswith", AffixMethod<true>},      {"endswith", AffixMethod<false>},
    {"find", FindMethodImpl<false, false>}, {"rfind", FindMethodImpl<true, false>},
    {"index", FindMethodImpl<false, true>}, {"count", CountMethod},
    {"isalpha", AllAre<IsAlpha>},           {"isalnum", AllAre<IsAlphaNumeric>},
    {"isdigit", AllAre<IsDecimal>},         {"isspace", AllAre<IsSpace>},
};

}  // namespace

std::span<const MethodEntry> StringSearchMethods() { return kMethods; }

}  // namespace weft::jinja
