#include "api/llama/slots.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "api/support.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/strings.h"

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

StatusOr<SessionId> FindSlot(Host& host, const HttpRequest& request, int64_t slot) {
  return host.engine().FindSession(request.domain, SlotSession(slot).name);
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

StatusOr<Json> Save(Host& host, const HttpRequest& request, const std::string& folder,
                    int64_t slot) {
  const int64_t start_us = NowMicros();
  std::string name;
  WEFT_ASSIGN_OR_RETURN(const std::string path, ReadPath(request, folder, &name));
  std::vector<int32_t> tokens;
  const StatusOr<SessionId> session = FindSlot(host, request, slot);
  if (session.ok()) {
    WEFT_ASSIGN_OR_RETURN(tokens, host.engine().Tokens(*session));
  } else if (session.status().code() != StatusCode::kNotFound) {
    return session.status();
  }
  const std::string text =
      Json{{kModel, host.model().fingerprint()}, {kTokens, tokens}}.dump() + "\n";
  WEFT_RETURN_IF_ERROR(WriteWhole(path, text));
  return Json{{"id_slot", slot},
              {"filename", name},
              {"n_saved", tokens.size()},
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

// Empties the slot's session.
Status Erase(Host& host, const HttpRequest& request, int64_t slot, int64_t* n_erased) {
  const StatusOr<SessionId> session = FindSlot(host, request, slot);
  if (session.status().code() == StatusCode::kNotFound) return OkStatus();
  WEFT_RETURN_IF_ERROR(session.status());
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, host.engine().Inspect(*session));
  *n_erased = info.n_tokens;
  return host.engine().Close(*session, /*forget=*/true);
}

StatusOr<Json> Restore(Host& host, const HttpRequest& request, const std::string& folder,
                       int64_t slot) {
  const int64_t start_us = NowMicros();
  std::string name;
  WEFT_ASSIGN_OR_RETURN(const std::string path, ReadPath(request, folder, &name));
  const StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return InvalidArgument("filename: there is no such file, or it cannot be read");
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, TokensIn(host, *text));
  int64_t n_erased = 0;
  WEFT_RETURN_IF_ERROR(Erase(host, request, slot, &n_erased));
  const size_t n_restored = tokens.size();
  if (n_restored > 0) {
    GenerationRequest turn{.domain = request.domain, .session = SlotSession(slot).name};
    turn.turn.tokens = std::move(tokens);
    turn.turn.max_tokens = 0;  // only computes the model's state for the tokens
    turn.turn.label = request.id;
    WEFT_ASSIGN_OR_RETURN(const auto generation, host.Generate(std::move(turn)));
    while (const auto event = generation->Next()) {
      if (const auto* done = std::get_if<DoneEvent>(&*event)) WEFT_RETURN_IF_ERROR(done->status);
    }
  }
  return Json{{"id_slot", slot},
              {"filename", name},
              {"n_restored", n_restored},
              {"n_read", text->size()},
              {"timings", {{"restore_ms", MillisecondsSince(start_us)}}}};
}

StatusOr<Json> Act(Host& host, const HttpRequest& request, const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const int64_t slot, SlotOf(host, request));
  const auto it = request.query.find("action");
  const std::string_view action = it == request.query.end() ? std::string_view() : it->second;
  if (action == "save") return Save(host, request, folder, slot);
  if (action == "restore") return Restore(host, request, folder, slot);
  if (action != "erase") return InvalidArgument("action: must be save, restore or erase");
  int64_t n_erased = 0;
  WEFT_RETURN_IF_ERROR(Erase(host, request, slot, &n_erased));
  return Json{{"id_slot", slot}, {"n_erased", n_erased}};
}

}  // namespace

void RegisterSlotsApi(Router& router, Host& host, const std::string& folder) {
  router.Add(
      "POST", "/slots/{id}", ErrorShape::kLlama,
      [&host, folder](const HttpRequest& request, HttpResponder& responder) {
        StatusOr<Json> answer =
            folder.empty()
                ? Unimplemented(
                      "saving slots is disabled: start the server with --slot-save-path DIR, or "
                      "save a named session with /v1/sessions/{id}/park and /restore")
                : Act(host, request, folder);
        if (!answer.ok()) return SendError(responder, answer.status(), ErrorShape::kLlama);
        SendJson(responder, *answer);
      });
}

}  // namespace weft::serve
