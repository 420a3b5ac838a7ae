#include "doors/stores/store_probe.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/new_id.h"
#include "base/strings.h"

namespace weft::stores {
namespace {

using Condition = ObjectStore::Condition;
using Object = ObjectStore::Object;

// A store may put writers off that come at once; a later try tells who was first.
constexpr int kTries = 4;
constexpr std::chrono::milliseconds kPause{20};
// One contest may end well by luck.
constexpr int kRounds = 3;
// Bodies of another length for each writer, so that a mixture of two would be seen.
constexpr size_t kBodyBytes = 4096;

bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

bool IsRefused(const Status& status) { return status.code() == StatusCode::kFailedPrecondition; }

template <typename... Pieces>
Status Broken(const Pieces&... what) {
  return InvalidArgument("the store ", what...,
                         ": conversations would be lost; use one with conditional writes, such as "
                         "Amazon S3 or versitygw");
}

Status CannotBeProbed(const Status& status) {
  return Annotate(status, "the store cannot be probed: ");
}

// One of several threads that write at once, and the store's answer to it.
struct Writer {
  std::string body;
  StatusOr<std::string> result = Internal("not written");
  bool was_put_off = false;  // its first try may have been written nevertheless
};

class Probe {
 public:
  Probe(ObjectStore& store, int n_concurrent)
      : store_(store), n_concurrent_(n_concurrent), name_(NewId("probe/", 20)) {}
  // Whatever was found: nothing stays.
  ~Probe() { (void)store_.Remove(name_); }

  Status Run() {
    WEFT_RETURN_IF_ERROR(CheckAbsent("before it was written"));
    for (int round = 0; round < kRounds; ++round) WEFT_RETURN_IF_ERROR(RunRound());
    return OkStatus();
  }

 private:
  // From an object that is absent to one that is absent again.
  Status RunRound() {
    WEFT_ASSIGN_OR_RETURN(const Object first, RunContest(Condition::Absent(), "create"));
    WEFT_ASSIGN_OR_RETURN(const Object second,
                          RunContest(Condition::Unchanged(first.tag), "replace"));
    if (first.tag == second.tag) return Broken("gives two versions of an object one ETag");
    WEFT_RETURN_IF_ERROR(
        CheckRefused(first.tag, "lets a writer replace a version that it has not seen"));
    WEFT_ASSIGN_OR_RETURN(const std::string last, Replace(second.tag));
    const Status removed = store_.Remove(name_);
    WEFT_RETURN_IF_ERROR(Annotate(removed, "the store does not remove an object: "));
    WEFT_RETURN_IF_ERROR(CheckAbsent("after it was removed"));
    return CheckRefused(last, "lets a writer replace an object that is gone");
  }

  // All at once, over connections that are open already: the time that those take would keep the
  // writers apart. A writer that is put off tries again.
  std::vector<Writer> WriteAtOnce(const Condition& condition, std::string_view deed) {
    ++n_contests_;
    std::vector<Writer> writers(static_cast<size_t>(n_concurrent_));
    std::latch connect(n_concurrent_), start(n_concurrent_);
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < writers.size(); ++i) {
      writers[i].body = StrCat(deed, " ", n_contests_, " ", i, " ");
      writers[i].body.append(kBodyBytes + i, static_cast<char>('a' + i % 26));
      threads.emplace_back([this, &condition, &connect, &start, writer = &writers[i]] {
        connect.arrive_and_wait();
        (void)store_.Get(name_);
        start.arrive_and_wait();
        for (int n = 0; n < kTries; ++n) {
          writer->result = store_.Put(name_, writer->body, condition);
          if (!IsTransient(writer->result.status())) return;
          writer->was_put_off = true;
          std::this_thread::sleep_for(kPause * (n + 1));
        }
      });
    }
    threads.clear();  // joins them
    return writers;
  }

  // Answers with the winner's object.
  StatusOr<Object> RunContest(const Condition& condition, std::string_view deed) {
    const std::vector<Writer> writers = WriteAtOnce(condition, deed);
    const Writer* winner = nullptr;
    for (const Writer& writer : writers) {
      if (writer.result.ok()) {
        if (winner != nullptr) return Broken("lets two writers ", deed, " one object");
        winner = &writer;
      } else if (!IsRefused(writer.result.status())) {
        return CannotBeProbed(writer.result.status());
      }
    }
    WEFT_ASSIGN_OR_RETURN(Object object, Read());
    if (winner == nullptr) {
      const bool answer_was_lost = std::ranges::any_of(writers, [&](const Writer& writer) {
        return writer.was_put_off && writer.body == object.body;
      });
      if (answer_was_lost) return object;
      return Broken("lets none of several writers ", deed, " an object");
    }
    if (object.body != winner->body) {
      return Broken("keeps another body than that of the writer that could ", deed, " it");
    }
    if (object.tag != *winner->result) return Broken("gives readers another ETag than the writer");
    return object;
  }

  // A write with the tag of an older version. `fault`: if the store takes it.
  Status CheckRefused(const std::string& tag, std::string_view fault) {
    Status status;
    for (int n = 0; n < kTries; ++n) {
      status = store_.Put(name_, "stale", Condition::Unchanged(tag)).status();
      if (!IsTransient(status)) break;
      std::this_thread::sleep_for(kPause * (n + 1));
    }
    if (status.ok()) return Broken(fault);
    return IsRefused(status) ? OkStatus() : CannotBeProbed(status);
  }

  // Answers with the new tag.
  StatusOr<std::string> Replace(const std::string& tag) {
    const auto put = store_.Put(name_, "third", Condition::Unchanged(tag));
    if (IsRefused(put.status())) return Broken("refuses a writer that has seen the last version");
    WEFT_RETURN_IF_ERROR(CannotBeProbed(put.status()));
    WEFT_ASSIGN_OR_RETURN(const Object object, Read());
    if (object.body != "third" || object.tag != *put) {
      return Broken("shows an old version after a new one was written");
    }
    return *put;
  }

  StatusOr<Object> Read() {
    auto object = store_.Get(name_);
    if (object.status().code() == StatusCode::kNotFound) {
      return Broken("does not show an object that was written");
    }
    if (!object.ok()) return CannotBeProbed(object.status());
    return object;
  }

  Status CheckAbsent(std::string_view when) {
    const Status status = store_.Get(name_).status();
    if (status.ok()) return Broken("shows an object ", when);
    if (status.code() == StatusCode::kNotFound) return OkStatus();
    return CannotBeProbed(status);
  }

  ObjectStore& store_;
  const int n_concurrent_;
  const std::string name_;
  int n_contests_ = 0;  // no two have a body in common
};

}  // namespace

Status ProbeStore(ObjectStore& store, int n_concurrent) { return Probe(store, n_concurrent).Run(); }

}  // namespace weft::stores
