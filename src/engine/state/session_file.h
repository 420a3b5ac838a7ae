// A session as bytes: the contents of a parked or saved conversation, and its file format.
// docs/file-formats.md describes the format byte by byte.
//
// A file has three parts. The head says whose session it is and of which model, and holds its
// tokens; it is small, and damage to it is an error. So is damage to the rows, which are input
// embeddings. The state holds pages, the slot and checkpoints; it is large, streamed page by page
// through callbacks, and can always be recomputed from the tokens: damage to it costs time, never a
// conversation.
//
// Nothing read is trusted: every section has a checksum, and every size is checked before memory is
// allocated for it.
//
// Threads: functions are pure; a SessionReader belongs to one thread at a time.
#ifndef WEFT_ENGINE_STATE_SESSION_FILE_H_
#define WEFT_ENGINE_STATE_SESSION_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_io.h"
#include "base/status.h"
#include "base/tokens.h"

namespace weft {

// A 128-bit hash as identity.
struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Fingerprint&) const = default;
  std::string ToHex() const;  // 32 digits
};
Fingerprint FingerprintOf(std::span<const std::byte> bytes);
Fingerprint FingerprintOf(std::string_view text);

struct SessionHead {
  std::string domain;
  std::string name;
  Fingerprint model;       // the weights and how they are used
  Fingerprint layout;      // the form of the backend's state
  std::string kv_type;     // "f16"; part of the layout, named separately for messages
  int64_t created_us = 0;  // since 1970
  int64_t updated_us = 0;
  std::vector<TokenId> tokens;  // kAnyRow where a row stands
  int64_t row_values = 0;       // per row; 0 if there are none
  // The adapters that the tokens are computed with.
  struct Adapter {
    std::string name;     // for messages
    Fingerprint content;  // of its file
    float scale = 1;
    bool operator==(const Adapter&) const = default;
  };
  std::vector<Adapter> adapters;
  // The position from which on one of them acts that waited for its invocation.
  std::optional<int64_t> adapter_from;
  // Rows that belong together, such as a picture's, as RowForm has them.
  struct Span {
    int64_t first = 0, n_rows = 0;  // positions
    int64_t grid_rows = 0, grid_columns = 0;
    bool mutual = false;
    bool operator==(const Span&) const = default;
  };
  std::vector<Span> spans;  // ascending

  // The state covers the first `state_tokens` tokens; 0: there is none, and the following fields
  // are empty too.
  int64_t state_tokens = 0;
  int page_tokens = 0;
  struct Group {
    int64_t page_bytes = 0;
    int64_t first_page = 0;  // earlier ones are out of the window and absent
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;
  int64_t slot_bytes = 0;  // 0: the model has no recurrent state
  // The positions of further checkpoints of recurrent state, besides the slot after state_tokens.
  // Ascending, multiples of page_tokens, less than state_tokens.
  std::vector<int64_t> checkpoints;

  int64_t n_rows() const { return std::ranges::count_if(tokens, IsRow); }
  // One past the last page of every group.
  int64_t end_page() const {
    return page_tokens > 0 ? (state_tokens + page_tokens - 1) / page_tokens : 0;
  }
};

// Limits of the format; the writer refuses more, the reader allocates no memory for more.
inline constexpr int64_t kMaxSessionTokens = int64_t{1} << 26;
inline constexpr size_t kMaxReservedBytes = size_t{16} << 20;
inline constexpr size_t kMaxSessionNameBytes = 128;                // name and domain each
inline constexpr int64_t kMaxStatePartBytes = int64_t{512} << 20;  // one page, or the slot
inline constexpr size_t kMaxSessionGroups = 64;
inline constexpr size_t kMaxSessionCheckpoints = 1024;
inline constexpr size_t kMaxSessionAdapters = 64;
inline constexpr int64_t kMaxRowValues = int64_t{1} << 20;
inline constexpr size_t kMaxSessionSpans = 1024;

// The group numbers that stand for the slot, the checkpoints and the rows in the callbacks.
inline constexpr int kSlotPart = -1;
inline constexpr int kCheckpointPart = -2;
inline constexpr int kRowPart = -3;

// Supplies the bytes of a page (entry `page` of the group's table), of the slot, or of checkpoint
// or row number `page`.
using StateSource = std::function<Status(int group, int64_t page, std::span<std::byte> out)>;
// Receives the same parts.
using StateSink = std::function<Status(int group, int64_t page, std::span<const std::byte> in)>;
using ByteSink = std::function<Status(std::span<const std::byte> bytes)>;

// Writes a session's bytes in order. Requests the rows, then pages group by group, in ascending
// order, then the slot, then the checkpoints. INVALID_ARGUMENT, before anything is written, for a
// head that exceeds the limits or is inconsistent; otherwise the first error of `source` or `sink`.
// Sections are compressed if that saves at least 5 %.
Status WriteSession(const SessionHead& head, const StateSource& source, const ByteSink& sink);

class SessionReader {
 public:
  // Reads and verifies the head.
  //   INVALID_ARGUMENT  not a session file at all
  //   UNIMPLEMENTED     a format version that this program does not know
  //   DATA_LOSS         damaged
  static StatusOr<std::unique_ptr<SessionReader>> Open(std::unique_ptr<ByteSource> source);

  const SessionHead& head() const { return head_; }
  uint64_t file_bytes() const { return source_->size(); }

  // FAILED_PRECONDITION, naming both sides, unless the file matches this model or this layout. A
  // file of the same model in another layout still provides its tokens.
  Status CheckModel(const Fingerprint& model) const;
  Status CheckLayout(const Fingerprint& layout, std::string_view kv_type) const;

  // Delivers the rows, each once it is verified. DATA_LOSS: a row is damaged, and nothing can bring
  // it back. An error of `sink` is returned unchanged.
  Status ReadRows(const StateSink& sink);
  // Delivers the state, each part once it is verified, in the order of WriteSession. DATA_LOSS: the
  // state is damaged; discard all delivered parts and recompute the state from head().tokens. An
  // error of `sink` is returned unchanged. If head().state_tokens == 0, delivers nothing and
  // verifies the end mark. REQUIRES: if the head has rows, they were read.
  Status ReadState(const StateSink& sink) const;

 private:
  SessionReader(std::unique_ptr<ByteSource> source, SessionHead head, uint64_t offset)
      : source_(std::move(source)), head_(std::move(head)), offset_(offset) {}
  Status Damaged(const Status& why) const;

  const std::unique_ptr<ByteSource> source_;
  const SessionHead head_;
  uint64_t offset_;  // of the next byte to read
};

}  // namespace weft

#endif  // WEFT_ENGINE_STATE_SESSION_FILE_H_
