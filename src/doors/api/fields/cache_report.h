// "Why was this not cached?" in requests and answers: Weft's own report, and the same in the forms
// of Anthropic's and OpenAI's cache diagnostics. Any thread.
#ifndef WEFT_DOORS_API_FIELDS_CACHE_REPORT_H_
#define WEFT_DOORS_API_FIELDS_CACHE_REPORT_H_

#include <string>

#include "answer/cache_report.h"
#include "doors/api/fields/support.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Whether the request asks for a report: `cache_report` in its body, or X-Weft-Cache-Report: 1.
bool WantsCacheReport(const HttpRequest& request, ApiFields* fields);

nlohmann::ordered_json CacheReportJson(const CacheReport& report);
// Adds it as `cache_report`, if there is one.
void AddCacheReport(const std::shared_ptr<const CacheReport>& report,
                    nlohmann::ordered_json* object);
// For every answer: "found=1950; disk=0; computed=37; reason=nothing_missed".
inline constexpr char kCacheHeader[] = "X-Weft-Cache";
std::string CacheHeader(const CacheReport& report);

// Anthropic's `diagnostics`: null if nothing differs. The prompt is compared with the most similar
// one of the key, whichever `previous_message_id` the request names.
nlohmann::ordered_json AnthropicDiagnostics(const CacheReport& report);
// OpenAI's `prompt_cache_diagnostics`, likewise.
nlohmann::ordered_json OpenAiDiagnostics(const CacheReport& report);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_CACHE_REPORT_H_
