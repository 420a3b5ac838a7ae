// One call of a reply: its name and its arguments, written piece by piece as a JSON object while
// they become known.
//
// Nothing is emitted before it is clear that this is a call: its name is known and the first value
// of its arguments has begun (or they are closed). From then on the writer can complete the object
// at any point. Emitting a piece releases what ReplyIo holds.
//
// A value inside a parser; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_CALL_WRITER_H_
#define WEFT_ANSWER_REPLY_CALL_WRITER_H_

#include <string>
#include <string_view>

#include "answer/reply/io.h"

namespace weft {

class CallWriter {
 public:
  static constexpr size_t kMaxDepth = 64;
  static constexpr size_t kMaxNameBytes = 256;

  explicit CallWriter(ReplyIo* io) : io_(io) {}
  CallWriter(const CallWriter&) = delete;
  CallWriter& operator=(const CallWriter&) = delete;

  // False if it cannot be a function's name, or if a name was set already.
  bool SetName(std::string_view name);
  void SetId(std::string id) { id_ = std::move(id); }
  bool has_name() const { return !name_.empty(); }

  // --- the arguments -------------------------------------------------------------------
  // JSON text between values (commas, keys, colons, white space); emitted with the value or bracket
  // that follows.
  void Between(std::string_view json) { between_ += json; }
  // Separator, key and colon, or just the separator, for formats with their own.
  void Key(std::string_view key);
  void Element();

  // False if nested too deep.
  bool Open(char bracket);
  void Close();  // the innermost bracket
  void Scalar(std::string_view json);
  void StartString();
  void StringText(std::string_view text);      // will be escaped
  void StringEscape(std::string_view escape);  // already JSON
  void EndString();
  // All arguments at once. REQUIRES: the JSON text of an object.
  void Whole(std::string_view json);

  // The arguments have been closed or completed.
  bool complete() const { return complete_; }
  // Something has been emitted: there is no way back.
  bool begun() const { return begun_; }
  // Text not emitted for lack of a name; all of it if there is no name.
  const std::string& unsaid() const { return unsaid_; }
  // Closes everything that is open as JSON needs it, and ends the call; unless the reply was cut.
  void Complete();

 private:
  void Put(std::string_view json);
  void BeginIfClear();

  ReplyIo* const io_;
  std::string name_, id_;
  std::string between_;
  std::string unsaid_;   // before the call has begun
  std::string closers_;  // for open brackets, the innermost last
  bool first_ = true;    // nothing in the innermost bracket yet
  bool in_string_ = false;
  bool clear_ = false;  // the first value has begun
  bool begun_ = false;
  bool complete_ = false;
};

// `text` escaped for use inside a JSON string.
std::string JsonEscaped(std::string_view text);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_CALL_WRITER_H_
