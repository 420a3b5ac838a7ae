// Which sessions the worker is reading or writing something for. Meanwhile no turn of such a
// session starts, and calls that need its file wait. Engine thread only.
#ifndef WEFT_ENGINE_STORAGE_FILE_WORKS_H_
#define WEFT_ENGINE_STORAGE_FILE_WORKS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "engine/sessions/publisher.h"
#include "engine/sessions/session_table.h"

namespace weft {

class FileWorks {
 public:
  // Runs a callback on the engine thread, soon.
  using PostBack = std::function<void(std::function<void()>)>;

  // The pointers must outlive the object.
  FileWorks(const SessionTable* sessions, Publisher* publisher, PostBack post_back)
      : sessions_(*sessions), publisher_(publisher), post_back_(std::move(post_back)) {}

  // REQUIRES: there is none for the session.
  void Begin(Session* session, FileWork work) {
    session->file_work.kind_.Become(work);
    BeginAfterClose(session->id);
    publisher_->Touch(session);
  }
  // For the file of a session that is gone, or about to go.
  void BeginAfterClose(SessionId id) { at_work_.insert(id.value); }
  // The session may be closed by now. Callbacks that waited for the work run next, as if just
  // posted.
  void End(SessionId id) {
    if (const auto found = at_work_.find(id.value); found != at_work_.end()) at_work_.erase(found);
    Session* const session = sessions_.Find(id);
    if (session == nullptr) return;
    publisher_->Touch(session);
    session->file_work.kind_.Become(FileWork::kNone);
    for (auto& waiting : session->file_work.waiting_) post_back_(std::move(waiting));
    session->file_work.waiting_.clear();
  }
  // Calls `then` once the present work of the session has ended.
  void After(Session* session, std::function<void()> then) {
    session->file_work.waiting_.push_back(std::move(then));
  }
  bool any() const { return !at_work_.empty(); }

 private:
  const SessionTable& sessions_;
  Publisher* const publisher_;
  const PostBack post_back_;
  std::multiset<uint64_t> at_work_;  // handles
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_FILE_WORKS_H_
