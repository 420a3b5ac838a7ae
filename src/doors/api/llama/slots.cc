#include "doors/api/llama/slots.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/clock.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/host/shared_sessions.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileNameBytes = 128;
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr char kModel[] = "model";
constexpr char kTokens[] = "tokens";

// Files belong to a key, like sessions.
StatusOr<std::string> PathOf(const HttpRequest& request, const std::string& folder,
                             const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (name.empty() || name.size() > kMaxFileNameBytes || name.front() == '.' || !is_plain) {
    return Misshapen("filename",
                     StrCat("must be 1 to ", kMaxFileNameBytes,
                            " letters, digits, '_', '-' and '.', not beginning with '.'"));
  }
  return StrCat(folder, "/", name, request.domain.empty() ? "" : ".", request.domain);
}

StatusOr<int64_t> SlotOf(Host& host, const HttpRequest& request) {
  int64_t slot = 0;
  const int64_t most = host.engine().options().max_running - 1;
  if (!ParseInt64(request.path_arguments[0], &slot) || slot < 0 || slot > most) {
    return InvalidArgument("there is no such slot; they are numbered from 0 to ", most);
  }
  return slot;
}

// The answer of call(session, done) for the slot's session.
template <typename Answer, typename Call>
Task<Answer> CallSlot(Host& host, const HttpRequest& request, int64_t slot, Call call) {
  return CallSession<Answer>(host.engine(), request.domain, SlotSession(slot).name,
                             std::move(call));
}

StatusOr<std::string> ReadPath(const HttpRequest& request, const std::string& folder,
                               std::string* name) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  *name = fields.String("filename").value_or("");
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  return PathOf(request, folder, *name);
}

double MillisecondsSince(int64_t start_us) {
  return static_cast<double>(NowMicros() - start_us) / 1000.0;
}

// Either the previous file or the complete new one exists at any time.
Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string aside = StrCat(path, ".", NewId("", 8), ".new");
  std::error_code error;
  const Status written = WriteFile(aside, std::as_bytes(std::span(text)));
  if (written.ok()) {
    std::filesystem::rename(aside, path, error);
    if (!error) return OkStatus();
  }
  LogLine(written.ok() ? StrCat("cannot put ", Printable(path, 300), " in place: ", error.message())
                       : Message(written));
  std::filesystem::remove(aside, error);
  return Internal("filename: the file cannot be written; the server's log says why");
}

using Tokens = std::vector<int32_t>;

// The tokens of the slot's session; none if there is no session.
Task<StatusOr<Tokens>> TokensOf(Host& host, const HttpRequest& request, int64_t slot) {
  const auto ask = [&](SessionId session, std::function<void(StatusOr<Tokens>)> done) {
    host.engine().Tokens(session, std::move(done));
  };
  auto asking = CallSlot<StatusOr<Tokens>>(host, request, slot, ask);
  StatusOr<Tokens> tokens = co_await asking;
  if (tokens.status().code() == StatusCode::kNotFound) co_return Tokens();
  co_return tokens;
}

Task<StatusOr<Json>> Save(Host& host, const HttpRequest& request, const std::string& folder,
                          int64_t slot) {
  const int64_t start_us = NowMicros();
  std::string name;
  const StatusOr<std::string> path = ReadPath(request, folder, &name);
  if (!path.ok()) co_return path.status();
  const StatusOr<Tokens> tokens = co_await TokensOf(host, request, slot);
  if (!tokens.ok()) co_return tokens.status();
  if (std::ranges::count(*tokens, kRowToken) > 0) {
    co_return InvalidArgument(
        "id_slot: the conversation has input embeddings, which the "
        "file of a slot cannot hold; a session's file can");
  }
  const std::string text =
      Json{{kModel, host.model().fingerprint()}, {kTokens, *tokens}}.dump() + "\n";
  const Status written = WriteWhole(*path, text);
  if (!written.ok()) co_return written;
  co_return Json{{"id_slot", slot},
                 {"filename", name},
                 {"n_saved", tokens->size()},
                 {"n_written", text.size()},
                 {"timings", {{"save_ms", MillisecondsSince(start_us)}}}};
}

// The tokens in a file that was saved for this model.
StatusOr<std::vector<int32_t>> TokensIn(Host& host, const std::string& text) {
  const StatusOr<Json> file = ParseJson(text, {.max_values = kMaxFileBytes});
  const auto damaged = InvalidArgument("filename: is not the file of a slot, or is damaged");
  if (!file.ok() || !file->is_object() || !file->contains(kTokens)) return damaged;
  if (StringOr(*file, kModel) != host.model().fingerprint()) {
    return InvalidArgument("filename: belongs to a conversation with another model");
  }
  const Json& list = (*file)[kTokens];
  const int64_t n_vocab = host.model().n_vocab();
  const bool are_tokens =
      list.is_array() && std::all_of(list.begin(), list.end(), [n_vocab](const Json& id) {
        return id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(n_vocab);
      });
  if (!are_tokens) return damaged;
  return list.get<std::vector<int32_t>>();
}

// Empties the slot's session; returns how many tokens it had.
Task<StatusOr<int64_t>> Erase(Host& host, const HttpRequest& request, int64_t slot) {
  int64_t n_tokens = 0;
  const auto close = [&](SessionId session, std::function<void(Status)> done) {
    const StatusOr<SessionInfo> info = host.engine().Inspect(session);
    if (!info.ok()) return done(info.status());
    n_tokens = info->n_tokens;
    host.engine().Close(session, /*forget=*/true, std::move(done));
  };
  auto closing = CallSlot<Status>(host, request, slot, close);
  const Status closed = co_await closing;
  if (closed.code() == StatusCode::kNotFound) co_return 0;
  if (!closed.ok()) co_return closed;
  co_return n_tokens;
}

// The tokens in the file at `path`; `n_read` is its size.
StatusOr<Tokens> ReadSaved(Host& host, const std::string& path, size_t* n_read) {
  const StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return InvalidArgument("filename: there is no such file, or it cannot be read");
  *n_read = text->size();
  return TokensIn(host, *text);
}

// Computes the model's state for the tokens.
Task<Status> Compute(Host& host, const HttpRequest& request, int64_t slot, Tokens tokens) {
  Ask ask{.input = Ask::Input::kPrompt,
          .session = {.name = SlotSession(slot).name, .required = true}};
  ask.turn.tokens = std::move(tokens);
  ask.turn.max_tokens = 0;
  SetOwner(request, &ask);
  PromptRecord record;
  TurnListener listener;
  auto submitting = host.answerer().Submit(std::move(ask), std::move(record), std::move(listener));
  StatusOr<std::unique_ptr<Generation>> generation = co_await submitting;
  if (!generation.ok()) co_return generation.status();
  while (true) {
    const std::optional<TurnEvent> event = co_await (*generation)->Next();
    if (!event) co_return OkStatus();
    const auto* const done = std::get_if<DoneEvent>(&*event);
    if (done != nullptr && !done->status.ok()) co_return done->status;
  }
}

Task<StatusOr<Json>> Restore(Host& host, const HttpRequest& request, const std::string& folder,
                             int64_t slot) {
  const int64_t start_us = NowMicros();
  std::string name;
  const StatusOr<std::string> path = ReadPath(request, folder, &name);
  if (!path.ok()) co_return path.status();
  size_t n_read = 0;
  StatusOr<Tokens> tokens = ReadSaved(host, *path, &n_read);
  if (!tokens.ok()) co_return tokens.status();
  const StatusOr<int64_t> n_erased = co_await Erase(host, request, slot);
  if (!n_erased.ok()) co_return n_erased.status();
  const size_t n_restored = tokens->size();
  if (n_restored > 0) {
    Task<Status> computing = Compute(host, request, slot, *std::move(tokens));
    const Status computed = co_await computing;
    if (!computed.ok()) co_return computed;
  }
  co_return Json{{"id_slot", slot},
                 {"filename", name},
                 {"n_restored", n_restored},
                 {"n_read", n_read},
                 {"timings", {{"restore_ms", MillisecondsSince(start_us)}}}};
}

Task<StatusOr<Json>> TellErased(Host& host, const HttpRequest& request, int64_t slot) {
  const StatusOr<int64_t> n_erased = co_await Erase(host, request, slot);
  if (!n_erased.ok()) co_return n_erased.status();
  co_return Json{{"id_slot", slot}, {"n_erased", *n_erased}};
}

Task<StatusOr<Json>> Refuse(Status status) { co_return status; }

Task<StatusOr<Json>> Act(Host& host, const HttpRequest& request, const std::string& folder) {
  if (folder.empty()) {
    return Refuse(
        Unimplemented("saving slots is disabled: start the server with --slot-save-path DIR, or "
                      "save a named session with /v1/sessions/{id}/park and /restore"));
  }
  const StatusOr<int64_t> slot = SlotOf(host, request);
  if (!slot.ok()) return Refuse(slot.status());
  const auto it = request.query.find("action");
  const std::string_view action = it == request.query.end() ? std::string_view() : it->second;
  if (action == "save") return Save(host, request, folder, *slot);
  if (action == "restore") return Restore(host, request, folder, *slot);
  if (action == "erase") return TellErased(host, request, *slot);
  return Refuse(InvalidArgument("action: must be save, restore or erase"));
}

Task<void> HandleSlot(Host& host, const HttpRequest& request, HttpResponder& responder,
                      const std::string& folder) {
  const StatusOr<Json> answer = co_await Act(host, request, folder);
  if (answer.ok()) {
    SendJson(responder, *answer);
  } else {
    SendError(responder, answer.status(), kLlamaErrors);
  }
}

}  // namespace

void RegisterSlotsApi(Router& router, Host& host, const std::string& folder) {
  router.AddTask("POST", "/slots/{id}", kLlamaErrors,
                 [&host, folder](const HttpRequest& request, HttpResponder& responder) {
                   return HandleSlot(host, request, responder, folder);
                 });
}

}  // namespace weft::serve
