#include "doors/api/fields/cache_report.h"

#include <algorithm>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

// The vendors' word for a change of the prompt; empty if nothing changed.
struct VendorsReason {
  const char* anthropic = "";
  const char* open_ai = "";
};

VendorsReason ReasonFor(CacheReason reason) {
  switch (reason) {
    case CacheReason::kSystemChanged:
      return {"system_changed", "input_changed"};
    case CacheReason::kToolsChanged:
    case CacheReason::kToolsReordered:
      return {"tools_changed", "tools_changed"};
    case CacheReason::kMessagesChanged:
    case CacheReason::kReplyChanged:
    case CacheReason::kRenderedAnew:
      return {"messages_changed", "input_changed"};
    case CacheReason::kOtherModel:
      return {"model_changed", "model_changed"};
    default:
      return {};
  }
}

// Tokens after the first difference.
int64_t TokensAfter(const CacheReport& report) {
  return report.prompt_tokens - std::max<int64_t>(report.differs_at, 0);
}

}  // namespace

bool WantsCacheReport(const HttpRequest& request, ApiFields* fields) {
  const std::string_view header = request.Header("X-Weft-Cache-Report");
  const bool asked = !header.empty() && header != "0" && !EqualIgnoringCase(header, "false");
  return fields->Bool("cache_report").value_or(asked);
}

ordered_json CacheReportJson(const CacheReport& report) {
  ordered_json json = {
      {"prompt_tokens", report.prompt_tokens}, {"found_tokens", report.found_tokens},
      {"disk_tokens", report.disk_tokens},     {"computed_tokens", report.computed_tokens},
      {"common_tokens", report.common_tokens}, {"reason", NameOf(report.reason)}};
  if (report.differs_at >= 0) {
    ordered_json difference = {{"token", report.differs_at}, {"item", report.item}};
    if (!report.name.empty()) difference["name"] = report.name;
    difference["change"] = report.change;
    difference["before"] = report.before;
    difference["now"] = report.now;
    json["difference"] = std::move(difference);
  }
  json["sentence"] = report.sentence;
  return json;
}

void AddCacheReport(const std::shared_ptr<const CacheReport>& report, ordered_json* object) {
  if (report != nullptr) (*object)["cache_report"] = CacheReportJson(*report);
}

std::string CacheHeader(const CacheReport& report) {
  return StrCat("found=", report.found_tokens, "; disk=", report.disk_tokens,
                "; computed=", report.computed_tokens, "; reason=", NameOf(report.reason));
}

ordered_json AnthropicDiagnostics(const CacheReport& report) {
  const std::string_view type = ReasonFor(report.reason).anthropic;
  const auto reason = [](ordered_json why) {
    return ordered_json{{"cache_miss_reason", std::move(why)}};
  };
  if (!type.empty()) {
    return reason({{"type", type}, {"cache_missed_input_tokens", TokensAfter(report)}});
  }
  switch (report.reason) {
    case CacheReason::kFirstPrompt:
      return reason({{"type", "previous_message_not_found"}});
    case CacheReason::kVariableChanged:
    case CacheReason::kRecomputed:
      return reason({{"type", "unavailable"}});
    default:
      return nullptr;
  }
}

ordered_json OpenAiDiagnostics(const CacheReport& report) {
  const std::string_view reason = ReasonFor(report.reason).open_ai;
  if (!reason.empty()) {
    return {{"type", "cache_miss"},
            {"reason", reason},
            {"cache_missed_tokens", TokensAfter(report)},
            {"comparison_reusable_tokens", report.common_tokens}};
  }
  switch (report.reason) {
    case CacheReason::kNothingMissed:
      return {{"type", "cache_hit"}};
    case CacheReason::kFirstPrompt:
      return {{"type", "comparison_response_not_found"}};
    default:
      return {{"type", "unavailable"}};
  }
}

}  // namespace weft::serve
