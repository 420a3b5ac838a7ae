#include "answer/picture_encoding.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "answer/error_details.h"
#include "async/signal.h"
#include "base/mutex.h"

namespace weft::serve {
namespace {

// Whether a message has the picture: clients of some APIs let the oldest messages go.
bool IsIn(const Ask& ask, const AskedPicture& picture) {
  const auto has = [&](const std::string& part) { return part.find(picture.mark) != part.npos; };
  if (has(ask.text)) return true;
  return std::ranges::any_of(ask.chat.conversation.messages, [&](const ChatMessage& message) {
    return std::ranges::any_of(message.parts, has);
  });
}

// Adds the picture's embeddings to `n_rows`, which must stay below the context's size.
Status AddRowsOf(const vision::EncodedPicture& picture, int64_t context_tokens, int64_t* n_rows) {
  for (const vision::Grid& view : picture.views) *n_rows += view.count();
  if (*n_rows < context_tokens) return OkStatus();
  return WithContext(OutOfRange("the pictures are longer than the context"), *n_rows,
                     context_tokens);
}

// The same number of embeddings, with one value for each.
EmbeddedRows Narrow(const EmbeddedRows& rows, int64_t row_width) {
  EmbeddedRows narrow{.mark = rows.mark, .is_picture = rows.is_picture};
  for (const EmbeddedRows::Part& part : rows.parts) {
    const size_t n = part.rows.size() / static_cast<size_t>(row_width);
    narrow.parts.push_back({.text = part.text, .rows = std::vector<float>(n), .form = part.form});
  }
  return narrow;
}

// An encoding's answer, which may come when nobody waits for it any more.
class Encoded {
 public:
  Signal& signal() { return signal_; }
  void Set(StatusOr<Pictures::Encoded> answer) {
    {
      MutexLock lock(&mutex_);
      answer_.emplace(std::move(answer));
    }
    signal_.Notify();
  }
  std::optional<StatusOr<Pictures::Encoded>> Take() {
    MutexLock lock(&mutex_);
    return std::exchange(answer_, std::nullopt);
  }

 private:
  Signal signal_;
  Mutex mutex_;
  std::optional<StatusOr<Pictures::Encoded>> answer_ WEFT_GUARDED_BY(mutex_);
};

// Tells a client that its stream is alive.
class Teller {
 public:
  using TimePoint = TaskPool::Clock::time_point;

  explicit Teller(const PictureWait& wait)
      : wait_(wait), last_(TaskPool::Clock::now()), patience_(wait.signs.begin) {}

  // When the next sign is due; never, if there are none.
  std::optional<TimePoint> next() const {
    if (!wait_.signs.send || patience_.count() <= 0) return std::nullopt;
    return last_ + patience_;
  }
  void TellIfDue() {
    const std::optional<TimePoint> due = next();
    if (!due || TaskPool::Clock::now() < *due) return;
    if (!usage_) usage_ = wait_.usage();
    wait_.signs.send(*usage_);
    last_ = TaskPool::Clock::now();
    patience_ = wait_.signs.interval;
  }

 private:
  const PictureWait& wait_;
  TimePoint last_;
  std::chrono::milliseconds patience_;
  std::optional<AnswerUsage> usage_;
};

Task<StatusOr<Pictures::Encoded>> EncodeOne(Pictures& pictures, const Ask& ask,
                                            const AskedPicture& asked, std::stop_token left,
                                            Teller& teller) {
  const auto encoded = std::make_shared<Encoded>();
  const std::stop_callback wake(left, encoded->signal().Notifier());
  pictures.Encode(ask.domain, asked.file, left, [encoded](StatusOr<Pictures::Encoded> answer) {
    encoded->Set(std::move(answer));
  });
  while (!left.stop_requested()) {
    std::optional<StatusOr<Pictures::Encoded>> answer = encoded->Take();
    if (answer) co_return *std::move(answer);
    co_await encoded->signal().WaitUntil(teller.next());
    teller.TellIfDue();
  }
  co_return Cancelled("the client left");
}

}  // namespace

Task<Status> EncodePictures(Pictures& pictures, int64_t context_tokens, PictureWait wait,
                            Ask& ask) {
  int64_t n_rows = 0;
  Teller teller(wait);
  for (AskedPicture& asked : ask.pictures) {
    if (!IsIn(ask, asked)) continue;
    auto encoding = EncodeOne(pictures, ask, asked, wait.left, teller);
    const StatusOr<Pictures::Encoded> encoded = co_await encoding;
    if (!encoded.ok()) {
      co_return WithParam(Annotate(encoded.status(), asked.place, ": "), asked.place);
    }
    const Status fits = AddRowsOf(**encoded, context_tokens, &n_rows);
    if (!fits.ok()) co_return fits;
    ask.rows.push_back(pictures.RowsOf(asked.mark, **encoded));
    asked.file = nullptr;
  }
  ask.pictures.clear();
  co_return OkStatus();
}

StatusOr<std::vector<EmbeddedRows>> MeasureRows(const Pictures* pictures, const Model& model,
                                                const Ask& ask) {
  std::vector<EmbeddedRows> rows;
  for (const EmbeddedRows& own : ask.rows) rows.push_back(Narrow(own, model.row_width()));
  int64_t n_rows = 0;
  for (const AskedPicture& asked : ask.pictures) {
    const bool is_encoded = asked.file == nullptr;
    if (is_encoded || !IsIn(ask, asked)) continue;
    const auto picture = pictures->Measure(ask.domain, *asked.file);
    if (!picture.ok()) return WithParam(Annotate(picture.status(), asked.place, ": "), asked.place);
    WEFT_RETURN_IF_ERROR(AddRowsOf(*picture, model.context_tokens(), &n_rows));
    rows.push_back(pictures->RowsOf(asked.mark, *picture));
  }
  return rows;
}

}  // namespace weft::serve
