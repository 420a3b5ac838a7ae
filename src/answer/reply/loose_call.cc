#include "answer/reply/loose_call.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxWraps = 4;  // objects around the one with the name
constexpr size_t kMaxIdBytes = 256;
// After a bracket: what one model family writes before its calls.
constexpr std::string_view kMark = "TOOL_CALLS]";

enum class Member {
  kNone,
  kName,
  kArguments,
  kFunction,  // a name, or an object with one
  kList,      // list of calls
  kId,
  kType,
};

struct Key {
  std::string_view text;
  Member member;
};
constexpr Key kKeys[] = {
    {"name", Member::kName},
    {"tool_name", Member::kName},
    {"function_name", Member::kName},
    {"function", Member::kFunction},
    {"tool", Member::kFunction},
    {"action", Member::kFunction},
    {"call", Member::kFunction},
    {"tool_call", Member::kFunction},
    {"function_call", Member::kFunction},
    {"calls", Member::kList},
    {"tool_calls", Member::kList},
    {"function_calls", Member::kList},
    {"arguments", Member::kArguments},
    {"parameters", Member::kArguments},
    {"args", Member::kArguments},
    {"params", Member::kArguments},
    {"input", Member::kArguments},
    {"tool_input", Member::kArguments},
    {"action_input", Member::kArguments},
    {"id", Member::kId},
    {"call_id", Member::kId},
    {"tool_call_id", Member::kId},
    {"type", Member::kType},
};
// Accepted values of "type".
constexpr std::string_view kTypes[] = {"function", "tool_use", "tool_call", "function_call",
                                       "tool"};

struct Reader {
  ReplyIo& io;
  const ParameterTypes& tools;
  std::vector<LooseCall>* calls;
};

// A call being read.
struct Draft {
  LooseCall call;
  bool lists_calls = false;
  bool is_python = false;  // uses Python quoting
};

Member MemberOf(std::string_view key) {
  for (const Key& known : kKeys) {
    if (known.text == key) return known.member;
  }
  return Member::kNone;
}

// The only key accepted for arguments that come first: many documents have an "input".
constexpr std::string_view kFirstArguments = "arguments";

bool MayBeKey(std::string_view prefix, bool has_name) {
  for (const Key& known : kKeys) {
    if (!known.text.starts_with(prefix)) continue;
    if (has_name || known.member != Member::kArguments || known.text == kFirstArguments) {
      return true;
    }
  }
  return false;
}

bool MayBeType(std::string_view prefix) {
  for (const std::string_view type : kTypes) {
    if (type.starts_with(prefix)) return true;
  }
  return false;
}

// A quoted word; `may_be` must accept its every prefix.
template <typename MayBe>
ReplyTask<bool> TakeWord(ReplyIo& io, MayBe may_be, std::string* word) {
  const int quote = co_await io.Peek();
  if (quote != '"' && quote != '\'') co_return false;
  io.Take();
  while (true) {
    const int c = co_await io.Peek();
    if (c < 0) co_return false;
    if (c == quote) break;
    *word += static_cast<char>(c);
    if (!may_be(*word)) co_return false;
    io.Take();
  }
  io.Take();
  co_return true;
}

ReplyTask<bool> TakeKey(ReplyIo& io, Draft* draft, Member* member) {
  const int quote = co_await io.Peek();
  std::string key;
  const bool has_name = !draft->call.name.empty();
  const auto may_be = [has_name](std::string_view prefix) { return MayBeKey(prefix, has_name); };
  bool ok = co_await TakeWord(io, may_be, &key);
  if (!ok) co_return false;
  *member = MemberOf(key);
  if (*member == Member::kNone) co_return false;
  draft->is_python = quote == '\'';
  co_await TakeSpace(io);
  ok = co_await TakeText(io, ":");
  if (ok) co_await TakeSpace(io);
  co_return ok;
}

ReplyTask<bool> TakeOfferedName(const Reader& in, LooseCall* call) {
  if (!call->name.empty()) co_return false;
  const auto may_be = [&in](std::string_view prefix) { return in.tools.OffersLike(prefix); };
  const bool ok = co_await TakeWord(in.io, may_be, &call->name);
  co_return ok&& in.tools.Offers(call->name);
}

ReplyTask<bool> TakeId(ReplyIo& io, std::string* id) {
  const int c = co_await io.Peek();
  bool ok = false;
  if (c == '"' || c == '\'') {
    const auto is_short = [](std::string_view prefix) { return prefix.size() <= kMaxIdBytes; };
    id->clear();
    ok = co_await TakeWord(io, is_short, id);
  } else {
    std::string scalar;  // a number carries no meaning here
    ok = co_await TakeJsonScalar(io, &scalar);
  }
  co_return ok;
}

// An object, or a string that contains one.
ReplyTask<bool> TakeArguments(ReplyIo& io, Draft* draft) {
  const int c = co_await io.Peek();
  bool ok = false;
  if (c == '{') {
    CallWriter writer(&io);  // without a name it emits nothing
    if (draft->is_python) {
      ok = co_await CopyPythonValue(io, writer);
    } else {
      ok = co_await CopyJsonObject(io, writer);
    }
    draft->call.arguments = writer.unsaid();
  } else if (c == '"') {
    std::string text;
    ok = co_await TakeJsonString(io, &text);
    draft->call.arguments = ParameterTypes::ToJson(text, ParameterTypes::kObject);
    ok = ok && draft->call.arguments->starts_with('{');
  }
  co_return ok;
}

// A tool's description is not a call: its "parameters" are a schema.
bool IsSchema(const LooseCall& call, const ParameterTypes& tools) {
  if (tools.Declares(call.name, "properties")) return false;
  const Json value = Json::parse(*call.arguments, nullptr, /*allow_exceptions=*/false);
  return value.is_object() && value.contains("properties") &&
         (value["properties"].is_object() || value.value("type", Json()) == "object");
}

bool HasAll(const Draft& draft) {
  return draft.lists_calls || (!draft.call.name.empty() && draft.call.arguments.has_value());
}

ReplyTask<bool> ReadObject(const Reader& in, int depth, Draft* draft);
ReplyTask<bool> ReadListRest(const Reader& in);

ReplyTask<bool> ReadMember(const Reader& in, int depth, Draft* draft) {
  Member member = Member::kNone;
  bool ok = co_await TakeKey(in.io, draft, &member);
  if (!ok || draft->lists_calls) co_return false;
  const int c = co_await in.io.Peek();
  std::string word;
  switch (member) {
    case Member::kFunction:
      if (c == '{') {
        ok = depth < kMaxWraps && draft->call.name.empty();
        if (ok) ok = co_await ReadObject(in, depth + 1, draft);
        break;
      }
      [[fallthrough]];
    case Member::kName:
      ok = co_await TakeOfferedName(in, &draft->call);
      break;
    case Member::kArguments:
      ok = !draft->call.arguments.has_value();
      if (ok) ok = co_await TakeArguments(in.io, draft);
      break;
    case Member::kList:
      ok = c == '[' && depth == 0 && draft->call.name.empty() && !draft->call.arguments;
      if (ok) ok = co_await TakeText(in.io, "[");
      if (ok) ok = co_await ReadListRest(in);
      draft->lists_calls = true;
      break;
    case Member::kId:
      ok = co_await TakeId(in.io, &draft->call.id);
      break;
    default:
      ok = co_await TakeWord(in.io, MayBeType, &word);
      break;
  }
  co_return ok;
}

// If a call is otherwise complete, its last brackets may be missing at the end of the reply, or
// before the end of surrounding markup.
bool EndsWithout(int c) { return c == ReplyIo::kEnd || c == '`' || c == '<'; }

ReplyTask<bool> ReadObject(const Reader& in, int depth, Draft* draft) {
  bool ok = co_await TakeText(in.io, "{");
  if (!ok) co_return false;
  co_await TakeSpace(in.io);
  int c = co_await in.io.Peek();
  const bool doubled = c == '{';
  if (doubled) in.io.Take();
  for (bool first = true;; first = false) {
    co_await TakeSpace(in.io);
    c = co_await in.io.Peek();
    if (c == ',' && !first) {
      in.io.Take();
      co_await TakeSpace(in.io);
      c = co_await in.io.Peek();
    } else if (c != '}' && !first) {
      co_return HasAll(*draft) && EndsWithout(c);
    }
    if (c == '}') break;
    ok = co_await ReadMember(in, depth, draft);
    if (!ok) co_return false;
  }
  in.io.Take();
  if (doubled) {
    c = co_await in.io.Peek();
    if (c == '}') in.io.Take();
  }
  co_return true;
}

ReplyTask<bool> ReadOne(const Reader& in) {
  Draft draft;
  const bool ok = co_await ReadObject(in, 0, &draft);
  if (!ok || !HasAll(draft)) co_return false;
  if (draft.lists_calls) co_return true;
  if (IsSchema(draft.call, in.tools)) co_return false;
  in.calls->push_back(std::move(draft.call));
  co_return true;
}

// At least one call, after the opening bracket.
ReplyTask<bool> ReadListRest(const Reader& in) {
  bool ok = false;
  for (bool first = true;; first = false) {
    co_await TakeSpace(in.io);
    int c = co_await in.io.Peek();
    if (c == ',' && !first) {
      in.io.Take();
      co_await TakeSpace(in.io);
      c = co_await in.io.Peek();
    } else if (c != ']' && !first) {
      co_return EndsWithout(c);
    }
    if (c == ']' && !first) break;
    ok = co_await ReadOne(in);
    if (!ok) co_return false;
  }
  in.io.Take();
  co_return true;
}

// Unwraps {"name": the function, "arguments": {...}} where only the arguments were expected.
std::string Unwrapped(const std::string& name, std::string arguments) {
  const Json value = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() || value.value("name", Json()) != name) return arguments;
  for (const char* const key : {"arguments", "parameters"}) {
    if (value.size() == 2 && value.contains(key) && value[key].is_object()) {
      return value[key].dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
    }
  }
  return arguments;
}

}  // namespace

ReplyTask<bool> ReadLooseCalls(ReplyIo& io, const ParameterTypes& tools,
                               std::vector<LooseCall>* calls) {
  const Reader in{.io = io, .tools = tools, .calls = calls};
  const int c = co_await io.Peek();
  bool ok = false;
  if (c == '[') {
    io.Take();
    const int next = co_await io.Peek();
    if (next == kMark[0]) {
      ok = co_await TakeText(io, kMark);
      if (ok) co_await TakeSpace(io);
      if (ok) ok = co_await ReadLooseCalls(io, tools, calls);
    } else {
      ok = co_await ReadListRest(in);
    }
  } else {
    ok = co_await ReadOne(in);
  }
  co_return ok;
}

ReplyTask<bool> ReadLooseArguments(ReplyIo& io, const ParameterTypes& tools, const TagSyntax& tags,
                                   LooseCall* call) {
  co_await TakeSpace(io);
  const int c = co_await io.Peek();
  CallWriter writer(&io);
  bool ok = false;
  if (c == '<') {
    ok = co_await ReadTaggedParameters(io, writer, tags, tools, call->name);
  } else {
    ok = co_await CopyJsonObject(io, writer);
  }
  if (ok) call->arguments = Unwrapped(call->name, writer.unsaid());
  co_return ok && !IsSchema(*call, tools);
}

void GiveOutCalls(const std::vector<LooseCall>& calls, ReplyIo& io) {
  for (const LooseCall& call : calls) {
    io.BeginCall(call.name, call.id);
    io.Arguments(*call.arguments);
    io.EndCall();
  }
  io.Forget();
}

}  // namespace weft
