// The conversations of one weft chat, side by side on one engine.
//
// A conversation is its messages and a named engine session that holds their tokens and state. The
// messages are authoritative: they determine what the model reads for a turn, and the session is
// extended, shortened or recomputed to match. With a state directory the messages are written after
// every change, and the session's state by Save, Park and Leave.
//
// One thread. The engine must outlive the room; the room does not shut it down.
#ifndef WEFT_CLI_CHAT_ROOM_H_
#define WEFT_CLI_CHAT_ROOM_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "answer/answer.h"
#include "answer/answerer.h"
#include "answer/chat/chat_context.h"
#include "answer/thinking.h"
#include "async/task.h"
#include "async/task_pool.h"
#include "base/status.h"
#include "cli/chat/picture.h"
#include "cli/chat/store.h"
#include "cli/flags/reply_flags.h"
#include "weft/engine.h"

namespace weft::cli {

// A conversation that is open here.
struct OpenChat {
  std::string name;
  std::string system;
  std::vector<ChatMessage> messages;  // alternating questions and answers
  // Whose marks the messages have. If there are any, `context` is empty: prompts are made anew for
  // each turn, and the engine finds what it has computed of them.
  std::vector<ChatPicture> pictures;
  std::string attached;  // marks of those that the next question begins with
  ChatContext context;
  SessionId session;
  std::optional<TurnUsage> last_turn;
};

// All of an answer.
struct ChatAnswer {
  std::string text;
  FinishReason reason = FinishReason::kStop;
  Status status;  // not OK: it failed
};

class ChatRoom {
 public:
  // Reports what a user should know although nothing failed.
  using Notify = std::function<void(std::string_view text)>;

  // `pictures`: null if the model sees none.
  static StatusOr<std::unique_ptr<ChatRoom>> Create(Engine* engine,
                                                    std::shared_ptr<const Model> model,
                                                    std::shared_ptr<serve::Pictures> pictures,
                                                    Notify notify);

  // The active conversation. REQUIRES (as do all methods below except List): a successful New or
  // Open.
  const OpenChat& current() const { return *current_; }

  // On success, each of these makes the named conversation current. ALREADY_EXISTS for a name in
  // use; an empty name is replaced by a free one.
  Status New(std::string name, const std::string& system);
  // Opens one that is already open or saved in the state directory; NOT_FOUND otherwise.
  Status Open(const std::string& name);
  // Creates a conversation with the first `n_messages` of the current one (-1: all), which must end
  // with an answer.
  Status Fork(std::string name, int64_t n_messages);

  // Removes the last `n_exchanges` questions with their answers.
  Status Undo(int64_t n_exchanges);
  // Removes the oldest `n_exchanges`, or with 0 as many as needed to leave room for `question` and
  // a quarter of the context after it. Returns how many were removed.
  StatusOr<int64_t> Trim(int64_t n_exchanges, const std::string& question);
  Status SetSystem(const std::string& system);
  // Whether and for how long answers begin with a thought, if the template and the model support
  // it; and the template's variables.
  void SetReasoning(const ReplyFlags& flags);
  // The adapters of new conversations. One that has begun keeps those that it was begun with.
  void SetAdapters(std::vector<AdapterScale> adapters) { adapters_ = std::move(adapters); }
  Status Save();
  Status Park(const std::string& name);
  Status Rename(const std::string& name);
  // Deletes a conversation and its files. If it is the current one, another takes its place.
  Status Drop(const std::string& name);

  // The next question begins with the picture of the file. Returns its name.
  StatusOr<std::string> Attach(const std::string& path);
  // The question after the pictures that were attached, which no longer are.
  std::string WithAttached(const std::string& question);

  // How Ask waits for its task, which belongs into the pool. CANCELLED once `left` stops, also
  // while pictures are encoded.
  struct Waiting {
    using Begun = StatusOr<std::unique_ptr<serve::Answer>>;
    std::stop_token left;
    std::function<Begun(Task<Begun>)> wait;
  };
  // One turn: call Ask, then Finish once the answer has ended. If it failed, or was cancelled
  // before the model said anything, its question is removed. The pictures of a cancelled one are
  // attached to the next. Finish returns the answer's status, or that of writing the messages.
  Waiting::Begun Ask(const std::string& question, TurnOptions options, const Waiting& waiting);
  Status Finish(const serve::Answer& answer, ChatAnswer ended);
  // For the tasks that read answers.
  TaskPool& pool() { return pool_; }

  struct Listed {
    std::string name;
    bool is_current = false;
    // Null unless it is open here; others are only in the state directory.
    const OpenChat* conversation = nullptr;
    std::optional<SessionInfo> session;
  };
  StatusOr<std::vector<Listed>> List();

  // Saves everything unsaved. Tries all, and returns the first error.
  Status Leave();

 private:
  ChatRoom(Engine* engine, std::shared_ptr<const Model> model,
           std::unique_ptr<serve::Answerer> answerer, Notify notify);

  OpenChat* Find(const std::string& name);
  StatusOr<bool> Exists(const std::string& name);
  StatusOr<std::string> FreeName(const std::string& wanted);
  OpenChat* Add(OpenChat conversation);
  Status Load(const std::string& name);
  Status RestoreSession(OpenChat* conversation, bool has_messages);
  // Says so if a session goes on with other adapters than new conversations.
  void TellAdapters(const SessionInfo& session) const;
  StatusOr<ChatContext> UsableContext(const StoredChat& stored) const;
  // The context of a conversation cut to its first `n_messages`.
  ChatContext ContextOf(const OpenChat& conversation, size_t n_messages) const;
  // The prompt of messages; with `for_answer` it ends where the model continues. `system` may be
  // empty. Errors come from the template, for example if it takes no system message.
  StatusOr<ChatPrompt> RenderMessages(const std::string& system, std::vector<ChatMessage> messages,
                                      bool for_answer) const;
  // The conversation's messages from `first` on, followed by a question: as a request, and as the
  // length of its prompt.
  ChatRequest RequestOf(const OpenChat& conversation, size_t first,
                        const std::string& question) const;
  StatusOr<int64_t> SizeOf(const OpenChat& conversation, size_t first,
                           const std::string& question) const;
  ChatRequest RequestOf(const std::string& system, std::vector<ChatMessage> messages,
                        bool for_answer) const;
  static std::vector<serve::AskedPicture> PicturesIn(const OpenChat& conversation);
  // Sets the prompt of a turn: the tokens of `context`, or what the pictures' conversation says.
  Status SetPrompt(const OpenChat& conversation, const std::string& question, ChatContext* context,
                   serve::Ask* ask) const;
  Status Store(const OpenChat& conversation);

  Engine* const engine_;
  const std::shared_ptr<const Model> model_;
  const Notify notify_;
  const std::unique_ptr<serve::Answerer> answerer_;
  const PromptEncoder encoder_;
  ChatRequest reasoning_;  // without a conversation
  serve::ThoughtLimit thought_;
  std::vector<AdapterScale> adapters_;
  std::unique_ptr<ChatStore> store_;  // null without a state directory
  std::map<std::string, OpenChat> open_;
  OpenChat* current_ = nullptr;
  TaskPool pool_{{.max_threads = 1}};
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_ROOM_H_
