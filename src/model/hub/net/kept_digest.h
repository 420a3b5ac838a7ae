// Verifies files that have a name already, reading each once: its digest is kept next to it, in
// FILE.sha256, and holds while the file's size and time of change stay the same.
//
// Blocks while a file is read; any thread, different files concurrently.
#ifndef WEFT_MODEL_HUB_NET_KEPT_DIGEST_H_
#define WEFT_MODEL_HUB_NET_KEPT_DIGEST_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace weft::hub {

// Called after each piece that is read; an error ends the reading.
using CheckProgressFn = std::function<Status(int64_t done_bytes, int64_t total_bytes)>;

// The SHA-256 of a file in hexadecimal digits: the kept one if it still holds, else by reading.
StatusOr<std::string> DigestOfFile(const std::string& path, const CheckProgressFn& progress);
// Keeps a digest that has just been computed. A failure costs only another reading.
void KeepDigest(const std::string& path, const std::string& hex);
// Where it is kept.
std::string KeptDigestPath(const std::string& path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_KEPT_DIGEST_H_
