// One call of a reply: its name, and its arguments as they become known, written as a
// JSON object piece by piece.
//
// Nothing is given out before it is clear that this is a call: its name is known and the
// first value of its arguments has begun (or they are closed). From then on the writer
// can complete the object at any place. Every piece given out settles what ReplyIo holds.
//
// A value of a parser; one thread at a time.
#ifndef WEFT_REPLY_CALL_WRITER_H_
#define WEFT_REPLY_CALL_WRITER_H_

#include <string>
#include <string_view>

#include "reply/io.h"

namespace weft {

class CallWriter {
 public:
  static constexpr size_t kMaxDepth = 64;
  static constexpr size_t kMaxNameBytes = 256;

  explicit CallWriter(ReplyIo* io) : io_(io) {}
  CallWriter(const CallWriter&) = delete;
  CallWriter& operator=(const CallWriter&) = delete;

  // False for what cannot be the name of a function, or when there is one.
  bool SetName(std::string_view name);
  void SetId(std::string id) { id_ = std::move(id); }
  bool has_name() const { return !name_.empty(); }

  // --- the arguments -------------------------------------------------------------------
  // JSON text between values (commas, keys, colons, white space); given out with the
  // value or bracket that follows it.
  void Between(std::string_view json) { between_ += json; }
  // Separator, key and colon, or separator alone, where the format has its own.
  void Key(std::string_view key);
  void Element();

  // False when it is nested too deep.
  bool Open(char bracket);
  void Close();  // the innermost bracket
  void Scalar(std::string_view json);
  void StartString();
  void StringText(std::string_view text);      // is escaped
  void StringEscape(std::string_view escape);  // is JSON already
  void EndString();
  // All of them at once; REQUIRES: JSON text of an object.
  void Whole(std::string_view json);

  // The arguments are closed, or completed.
  bool complete() const { return complete_; }
  // Something was given out: there is no way back.
  bool begun() const { return begun_; }
  // What was written and not given out, for want of a name: all of it when there is none.
  const std::string& unsaid() const { return unsaid_; }
  // Closes what is open as JSON needs it, and ends the call.
  void Complete();

 private:
  void Put(std::string_view json);
  void BeginIfClear();

  ReplyIo* const io_;
  std::string name_, id_;
  std::string between_;
  std::string unsaid_;   // before the call has begun
  std::string closers_;  // of open brackets, the innermost last
  bool first_ = true;    // nothing is in the innermost bracket yet
  bool in_string_ = false;
  bool clear_ = false;  // the first value has begun
  bool begun_ = false;
  bool complete_ = false;
};

// `text` as JSON text writes it within quotes.
std::string JsonEscaped(std::string_view text);

}  // namespace weft

#endif  // WEFT_REPLY_CALL_WRITER_H_
