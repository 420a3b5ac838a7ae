// The messages of conversations on disk, beside the sessions of a state directory.
//
//   DIR/chat/NAME.json   one file per conversation; NAME is encoded as in session files,
//                        mode 0600, replaced atomically and durably
//
// A file holds the exact text of the messages, and their tokens for the model in use. So a
// conversation survives without its session file (its state is then recomputed), and can continue
// with another model (its tokens are then made again). The user of a store holds the state
// directory, whose lock keeps others out.
//
// Threads: one at a time.
#ifndef WEFT_CLI_CHAT_STORE_H_
#define WEFT_CLI_CHAT_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "answer/chat/chat_context.h"
#include "answer/chat/conversation.h"
#include "base/files/file_io.h"
#include "base/status.h"
#include "cli/chat/picture.h"

namespace weft::cli {

struct StoredChat {
  std::string name;
  std::string system;
  std::vector<ChatMessage> messages;  // texts only
  std::vector<ChatPicture> pictures;  // whose marks the messages have
  // The model that `context` was made with.
  std::string model_fingerprint;
  ChatContext context;
};

class ChatStore {
 public:
  // Creates its folder in the state directory, and removes what an interrupted Save left.
  static StatusOr<std::unique_ptr<ChatStore>> Open(const std::string& state_dir);

  Status Save(const StoredChat& chat);
  // NOT_FOUND, or DATA_LOSS for a file that does not hold such a conversation.
  StatusOr<StoredChat> Load(const std::string& name) const;
  // OK if there is none.
  Status Remove(const std::string& name);
  // The names, sorted.
  StatusOr<std::vector<std::string>> List() const;

 private:
  ChatStore(std::string path, FileDescriptor dir) : path_(std::move(path)), dir_(std::move(dir)) {}
  std::string PathOf(const std::string& file) const;

  const std::string path_;
  const FileDescriptor dir_;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_STORE_H_
