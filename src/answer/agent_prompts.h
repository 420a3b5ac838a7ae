// How agents begin their conversations: instructions and tools that come back with each of them.
// They are kept as messages, not as tokens, so that they can be computed before an agent comes back
// to another model, KV type or version.
//
//   DIR/agents.json
//
// Any thread. One process has the directory at a time (StateDirectory).
#ifndef WEFT_ANSWER_AGENT_PROMPTS_H_
#define WEFT_ANSWER_AGENT_PROMPTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"
#include "base/files/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct AgentPrompt {
  uint64_t id = 0;
  std::string domain;
  ChatRequest chat;  // what comes before the user speaks
};

class AgentPrompts {
 public:
  struct Options {
    std::string directory;
    // Stands for what their state depends on: the model, the KV type, the template.
    std::string form;
    size_t max_prompts = 64;             // of all domains; those not used for longest are dropped
    size_t max_bytes = size_t{1} << 20;  // of one
    size_t min_bytes = 1000;             // shorter ones are computed soon enough
    int64_t min_conversations = 2;       // before a prompt counts as one that comes back
  };

  // A damaged file counts as none.
  static StatusOr<std::unique_ptr<AgentPrompts>> Open(Options options);

  // A request was computed in the present form. Only the first one of a conversation is looked at.
  void Note(std::string_view domain, const ChatRequest& chat);

  // The prompt to compute next: it comes back, and has not been computed in the present form.
  std::optional<AgentPrompt> Next() const;
  void SetReady(uint64_t id);

  struct Counts {
    int64_t known = 0;  // that come back
    int64_t ready = 0;  // and are computed in the present form
  };
  Counts counts() const;

  // Writes the file if it would be another one.
  Status Save();

 private:
  struct Entry {
    AgentPrompt prompt;
    int64_t conversations = 0;
    int64_t used_s = 0;  // since 1970
    std::string form;    // in which it was last computed
  };

  AgentPrompts(Options options, FileDescriptor directory)
      : options_(std::move(options)), directory_(std::move(directory)) {}
  Status Read();
  bool ComesBack(const Entry& entry) const {
    return entry.conversations >= options_.min_conversations;
  }
  static nlohmann::ordered_json JsonOf(const Entry& entry);
  // Throws if the JSON is not as JsonOf makes it.
  static Entry EntryOf(const nlohmann::ordered_json& json);

  const Options options_;
  const FileDescriptor directory_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ WEFT_GUARDED_BY(mutex_);
  bool is_saved_ WEFT_GUARDED_BY(mutex_) = true;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_AGENT_PROMPTS_H_
