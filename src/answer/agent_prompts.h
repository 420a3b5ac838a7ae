// The prompts of agents: system messages and tools that come back with each conversation. They are
// kept as messages, not as tokens, so that another model, KV type or version can compute them
// before the agent comes back.
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
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"
#include "base/files/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"

namespace weft::serve {

struct AgentPrompt {
  uint64_t id = 0;
  std::string tenant;
  ChatRequest chat;  // what comes before the user speaks
};

class AgentPrompts {
 public:
  struct Options {
    std::string directory;
    // Stands for what their state depends on: the model, the KV type, the template and so on.
    std::string form;
    // The prompt that was not used for longest gives way.
    size_t max_prompts = 64, max_prompts_of_tenant = 32;
    size_t max_bytes = size_t{1} << 20;  // longer prompts are not kept
    size_t min_bytes = 1000;             // nor shorter ones, which are prefilled soon enough
    int64_t min_conversations = 2;       // before a prompt counts as one that comes back
    int64_t max_age_s = 14 * 24 * 3600;  // without a conversation
    int64_t now_s = 0;                   // since 1970; 0: the system's time
  };

  // A damaged file counts as none.
  static StatusOr<std::unique_ptr<AgentPrompts>> Open(Options options);

  // A conversation may begin. Returns its prompt's id, for SetReady; 0 if it is none to keep.
  uint64_t Note(std::string_view tenant, const ChatRequest& chat);
  // It is computed in the present form.
  void SetReady(uint64_t id);

  // The prompt to compute next, the one used last: it comes back, is not computed in the present
  // form, and is none of `skipped`.
  std::optional<AgentPrompt> Next(const std::set<uint64_t>& skipped = {}) const;

  struct Counts {
    int64_t known = 0;  // that come back
    int64_t ready = 0;  // and are computed in the present form
  };
  Counts counts() const;

  // Writes the file if it would be another one. Does not wait for the disk: what a crash of the
  // machine damages counts as none.
  Status Save();

 private:
  struct Entry {
    uint64_t id = 0;
    std::string tenant;
    std::shared_ptr<const std::string> chat;  // as JSON
    int64_t conversations = 0;
    int64_t used_s = 0;  // since 1970
    std::string form;    // in which it was last computed
  };

  AgentPrompts(Options options, FileDescriptor directory)
      : options_(std::move(options)), directory_(std::move(directory)) {}
  int64_t Now() const;
  Status Read();
  void MakeRoom(std::string_view tenant) WEFT_REQUIRES(mutex_);
  bool ComesBack(const Entry& entry) const {
    return entry.conversations >= options_.min_conversations;
  }
  bool IsReady(const Entry& entry) const { return entry.form == options_.form; }

  const Options options_;
  const FileDescriptor directory_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ WEFT_GUARDED_BY(mutex_);
  bool is_saved_ WEFT_GUARDED_BY(mutex_) = true;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_AGENT_PROMPTS_H_
