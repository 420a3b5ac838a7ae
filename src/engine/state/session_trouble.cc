#include "engine/state/session_trouble.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"

namespace weft {
namespace {

constexpr char kPayload[] = "weft/session";
constexpr std::string_view kElsewhereMark = "elsewhere ", kMovedMark = "moved",
                           kUnavailableMark = "unavailable ";

Status WithTrouble(Status status, std::string_view trouble) {
  status.SetPayload(kPayload, absl::Cord(std::string(trouble)));
  return status;
}

std::string PayloadOf(const Status& status) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() ? std::string(*payload) : "";
}

}  // namespace

Status SessionElsewhere(std::string_view owner, int64_t retry_s) {
  retry_s = std::max<int64_t>(retry_s, 1);
  return WithTrouble(
      Aborted("another server has this session: ask ", owner, ", or here again in ", retry_s, " s"),
      StrCat(kElsewhereMark, retry_s, " ", owner));
}

Status SessionMoved() {
  return WithTrouble(Aborted("another server has gone on with this session meanwhile; nothing of "
                             "this request was kept: send it again"),
                     kMovedMark);
}

Status StoreUnavailable(const Status& why) {
  return WithTrouble(Unavailable("the store of sessions does not answer, so that this session "
                                 "cannot be used or kept now; try again"),
                     StrCat(kUnavailableMark, Message(why)));
}

std::string WhyUnavailable(const Status& status) {
  if (TroubleOf(status) != SessionTrouble::kUnavailable) return "";
  return PayloadOf(status).substr(kUnavailableMark.size());
}

SessionTrouble TroubleOf(const Status& status) {
  const std::string payload = PayloadOf(status);
  if (payload.starts_with(kElsewhereMark)) return SessionTrouble::kElsewhere;
  if (payload == kMovedMark) return SessionTrouble::kMoved;
  return payload.starts_with(kUnavailableMark) ? SessionTrouble::kUnavailable
                                               : SessionTrouble::kNone;
}

std::string OwnerOf(const Status& status) {
  if (TroubleOf(status) != SessionTrouble::kElsewhere) return "";
  const std::string payload = PayloadOf(status);
  return payload.substr(payload.find(' ', kElsewhereMark.size()) + 1);
}

int64_t RetrySecondsOf(const Status& status) {
  if (TroubleOf(status) != SessionTrouble::kElsewhere) return 0;
  const std::string rest = PayloadOf(status).substr(kElsewhereMark.size());
  int64_t seconds = 1;
  return ParseInt64(rest.substr(0, rest.find(' ')), &seconds) ? seconds : 1;
}

}  // namespace weft
