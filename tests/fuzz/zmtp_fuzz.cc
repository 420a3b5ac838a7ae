// Fuzzing of ZMTP's reader: the bytes after a client's greeting. In whatever pieces they come, it
// reads the same.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "doors/kv_events/zmtp.h"

namespace weft::zmtp {
namespace {

struct Outcome {
  std::vector<Incoming> incoming;
  std::string refusal;
};

Outcome Read(std::string_view bytes, size_t piece) {
  Outcome outcome;
  Reader reader({"SUB"});
  for (; !bytes.empty() && outcome.refusal.empty();
       bytes.remove_prefix(std::min(piece, bytes.size()))) {
    const Status status = reader.Feed(bytes.substr(0, piece), &outcome.incoming);
    if (!status.ok()) outcome.refusal = Message(status);
  }
  return outcome;
}

void Try(std::string_view bytes) {
  const Outcome whole = Read(bytes, bytes.size()), pieces = Read(bytes, 3);
  WEFT_CHECK(whole.refusal == pieces.refusal, "pieces are refused differently");
  WEFT_CHECK(whole.incoming.size() == pieces.incoming.size(), "pieces give other messages");
  for (size_t i = 0; i < whole.incoming.size(); ++i) {
    const Incoming &one = whole.incoming[i], &other = pieces.incoming[i];
    WEFT_CHECK(one.command == other.command && one.frames == other.frames,
               "pieces give another message");
    (void)SubscriptionOf(one);
  }
}

}  // namespace
}  // namespace weft::zmtp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  weft::zmtp::Try(bytes);
  weft::zmtp::Try(weft::zmtp::Hello("SUB") + bytes);
  return 0;
}
