// The replies of a ReplyMemory on disk, so that after a restart, too, prompts contain what was
// computed.
//
//   DIR/replies.log      a head that names the model, then one entry per reply or deleted session,
//                        each with its length and a checksum
//
// Entries are appended by a thread of its own, soon after they are given: they survive the process.
// What a crash of the machine leaves incomplete is cut off when the file is opened. The file is
// rewritten when most of it is no longer needed.
//
// Any thread. One process has the directory at a time (StateDirectory).
#ifndef WEFT_ANSWER_REPLY_LOG_H_
#define WEFT_ANSWER_REPLY_LOG_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "answer/reply_memory.h"
#include "base/files/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft::serve {

class ReplyLog {
 public:
  struct Options {
    std::string directory;
    std::string model;  // replies of another model are discarded
    // Rewritten when it is longer than this and half of it is superfluous.
    size_t rewrite_bytes = size_t{16} << 20;
    // All replies to keep, the oldest first; called by the log's thread.
    std::function<std::vector<ReplyMemory::Record>()> all;
    // Receives one sentence if writing fails; nothing is written from then on.
    std::function<void(const std::string&)> on_notice;
  };

  // Reads what is there into `found`, the oldest first. Texts of replies are not set: their tokens
  // spell them.
  static StatusOr<std::unique_ptr<ReplyLog>> Open(Options options,
                                                  std::vector<ReplyMemory::Record>* found);
  ~ReplyLog();  // writes all replies it was given

  void Append(const ReplyMemory::Record& record);
  void AppendDeletion(std::string_view domain, std::string_view session);

 private:
  ReplyLog(Options options, FileDescriptor directory);

  Status Read(std::vector<ReplyMemory::Record>* found);
  Status Rewrite();
  Status OpenForAppending();
  void Add(const std::string& entry);
  void Run();
  Status Write(std::string_view bytes);

  const Options options_;
  const FileDescriptor directory_;
  const std::string head_;
  FileDescriptor file_;      // the thread's
  size_t file_bytes_ = 0;    // likewise
  size_t needed_bytes_ = 0;  // after the last rewriting

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> waiting_ WEFT_GUARDED_BY(mutex_);
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;
  bool failed_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_REPLY_LOG_H_
