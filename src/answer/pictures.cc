#include "answer/pictures.h"

#include <algorithm>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "engine/vision/prepare.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "picture/picture.h"

namespace weft::serve {
namespace {

using vision::EncodedPicture;
using vision::PictureKey;

// Patches of a step: enough for the kernels, and few enough that a step's blocks are short.
constexpr int64_t kStepRows = 1024;
// Max files that are remembered, each by its hash.
constexpr size_t kMaxKnown = 4096;

constexpr char kShutDown[] = "the server is shutting down";
constexpr char kLeft[] = "the client left";

// Returns the result of `work`, or an error if memory runs out.
template <typename Work>
auto WithinMemory(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for a picture of that size; send a smaller one");
  }
}

// A file beyond the limits is INVALID_ARGUMENT, because trying again cannot help.
StatusOr<picture::Picture> Decode(const PictureFile& file) {
  auto decoded = picture::DecodePicture(std::as_bytes(std::span(file.bytes)), picture::Limits());
  if (decoded.status().code() != StatusCode::kResourceExhausted) return decoded;
  return InvalidArgument(Message(decoded.status()));
}

}  // namespace

// --- shared with the work that the engine does ---------------------------------------------

struct Pictures::Shared {
  // A file's hash, and its tenant.
  using FileOf = std::tuple<uint64_t, uint64_t, std::string>;
  static FileOf Of(const PictureFile& file, std::string_view tenant) {
    return {file.hash_high, file.hash_low, std::string(tenant)};
  }

  explicit Shared(int64_t cache_bytes) : cache(cache_bytes) {}

  // True if the waiter was answered or will be: the picture is in the cache or being encoded.
  bool Answer(const PictureKey& key, Waiter& waiter);
  // Remembers the file's picture. True if the job was answered or will be; otherwise its encoding
  // is now under way.
  bool Enter(Job& job, const PictureKey& key);
  void Finish(const PictureKey& key, StatusOr<EncodedPicture> encoded, int64_t us);
  // Ends an encoding if all who wait for it have left. False if it is to go on.
  bool GiveUp(const PictureKey& key);
  // The next tenant's next job. REQUIRES: there is one.
  Job TakeJob() WEFT_REQUIRES(mutex);

  Mutex measuring;  // held while a picture is decoded for its size; before `mutex`
  mutable Mutex mutex;
  CondVar arrived;
  bool ends WEFT_GUARDED_BY(mutex) = false;
  // By tenant, none of them empty; and whose turn it is.
  std::map<std::string, std::deque<Job>, std::less<>> jobs WEFT_GUARDED_BY(mutex);
  std::deque<std::string> turns WEFT_GUARDED_BY(mutex);
  std::map<FileOf, PictureKey> known WEFT_GUARDED_BY(mutex);
  std::map<FileOf, std::pair<int, int>> sizes WEFT_GUARDED_BY(mutex);  // width and height
  std::map<PictureKey, std::vector<Waiter>> under_way WEFT_GUARDED_BY(mutex);
  vision::PictureCache cache WEFT_GUARDED_BY(mutex);
  PictureStats stats WEFT_GUARDED_BY(mutex);
};

bool Pictures::Shared::Answer(const PictureKey& key, Waiter& waiter) {
  Encoded found;
  {
    MutexLock lock(&mutex);
    if (const auto it = under_way.find(key); it != under_way.end()) {
      ++stats.shared;
      it->second.push_back(std::move(waiter));
      return true;
    }
    found = cache.Find(key);
  }
  if (found == nullptr) return false;
  waiter.done(std::move(found));
  return true;
}

bool Pictures::Shared::Enter(Job& job, const PictureKey& key) {
  {
    MutexLock lock(&mutex);
    if (known.size() >= kMaxKnown) known.clear();
    known[Of(*job.file, job.tenant)] = key;
  }
  if (Answer(key, job.waiter)) return true;
  MutexLock lock(&mutex);
  under_way[key].push_back(std::move(job.waiter));
  return false;
}

void Pictures::Shared::Finish(const PictureKey& key, StatusOr<EncodedPicture> encoded, int64_t us) {
  std::vector<Waiter> waiting;
  StatusOr<Encoded> result = Encoded();
  if (!encoded.ok()) result = encoded.status();
  {
    MutexLock lock(&mutex);
    if (const auto it = under_way.find(key); it != under_way.end()) {
      waiting = std::move(it->second);
      under_way.erase(it);
    }
    stats.encode_us += us;
    if (encoded.ok()) {
      ++stats.encoded;
      result = cache.Put(key, *std::move(encoded));
    }
  }
  for (const Waiter& waiter : waiting) waiter.done(result);
}

bool Pictures::Shared::GiveUp(const PictureKey& key) {
  std::vector<Waiter> waiting;
  {
    MutexLock lock(&mutex);
    const auto it = under_way.find(key);
    const auto has_left = [](const Waiter& waiter) { return waiter.left.stop_requested(); };
    if (it == under_way.end() || !std::ranges::all_of(it->second, has_left)) return false;
    waiting = std::move(it->second);
    under_way.erase(it);
    ++stats.given_up;
  }
  for (const Waiter& waiter : waiting) waiter.done(Cancelled(kLeft));
  return true;
}

Pictures::Job Pictures::Shared::TakeJob() {
  const std::string tenant = std::move(turns.front());
  turns.pop_front();
  const auto own = jobs.find(tenant);
  Job job = std::move(own->second.front());
  own->second.pop_front();
  if (own->second.empty()) {
    jobs.erase(own);
  } else {
    turns.push_back(tenant);
  }
  return job;
}

// One picture's encoding. If the engine shuts down first, those who wait get an error.
class Pictures::Work : public SideWork {
 public:
  Work(std::shared_ptr<const vision::PictureEncoder> encoder, std::shared_ptr<Shared> shared,
       std::string tenant, const PictureKey& key, vision::PreparedPicture prepared, int n_threads)
      : encoder_(std::move(encoder)),
        shared_(std::move(shared)),
        tenant_(std::move(tenant)),
        key_(key),
        prepared_(std::move(prepared)),
        n_threads_(n_threads) {}
  ~Work() override {
    if (!is_done_) End(Unavailable(kShutDown));
  }

  std::string_view tenant() const override { return tenant_; }
  bool Advance(const Executor& executor, const std::function<bool()>& pause) override {
    if (shared_->GiveUp(key_)) {
      is_done_ = true;
      return true;
    }
    const int64_t begin_us = NowMicros();
    const StatusOr<bool> done = WithinMemory([&] { return TryAdvance(executor, pause); });
    us_ += NowMicros() - begin_us;
    if (done.ok() && !*done) return false;
    if (!done.ok()) {
      End(done.status());
      return true;
    }
    End(EncodedPicture{.views = encoding_->TakeEmbeddings(),
                       .tile_rows = prepared_.tile_rows,
                       .tile_columns = prepared_.tile_columns});
    return true;
  }

 private:
  StatusOr<bool> TryAdvance(const Executor& executor, const std::function<bool()>& pause) {
    if (encoding_ == nullptr) {
      std::vector<const vision::Grid*> views;
      for (const vision::Grid& view : prepared_.views) views.push_back(&view);
      ExecutorOptions options;
      options.n_threads = n_threads_;
      options.max_step_tokens = kStepRows;
      options.shares_threads_with = &executor;
      WEFT_ASSIGN_OR_RETURN(encoding_, encoder_->Begin(std::move(views), options));
    }
    return encoding_->Advance([&] { return pause(); });
  }
  void End(StatusOr<EncodedPicture> encoded) {
    is_done_ = true;
    shared_->Finish(key_, std::move(encoded), us_);
  }

  const std::shared_ptr<const vision::PictureEncoder> encoder_;
  const std::shared_ptr<Shared> shared_;
  const std::string tenant_;
  const PictureKey key_;
  const vision::PreparedPicture prepared_;
  const int n_threads_;
  std::unique_ptr<vision::Encoding> encoding_;
  int64_t us_ = 0;
  bool is_done_ = false;
};

// --- decoding -------------------------------------------------------------------------------

Pictures::Pictures(std::shared_ptr<const vision::PictureEncoder> encoder, Engine* engine,
                   int64_t cache_bytes)
    : encoder_(std::move(encoder)),
      engine_(engine),
      cache_bytes_(cache_bytes),
      shared_(std::make_shared<Shared>(cache_bytes)),
      thread_([this] { Run(); }) {}

Pictures::~Pictures() {
  {
    MutexLock lock(&shared_->mutex);
    shared_->ends = true;
    shared_->arrived.NotifyAll();
  }
  thread_.join();
}

void Pictures::Encode(std::string_view tenant, const std::shared_ptr<const PictureFile>& file,
                      std::stop_token left, Done done) {
  Waiter waiter{std::move(left), std::move(done)};
  std::optional<PictureKey> key;
  {
    MutexLock lock(&shared_->mutex);
    const auto it = shared_->known.find(Shared::Of(*file, tenant));
    if (it != shared_->known.end()) key = it->second;
  }
  if (key && shared_->Answer(*key, waiter)) return;
  MutexLock lock(&shared_->mutex);
  std::deque<Job>& own = shared_->jobs[std::string(tenant)];
  if (own.empty()) shared_->turns.emplace_back(tenant);
  own.push_back({std::string(tenant), file, std::move(waiter)});
  shared_->arrived.NotifyOne();
}

void Pictures::Run() {
  while (true) {
    Job job;
    bool ends;
    {
      MutexLock lock(&shared_->mutex);
      while (shared_->jobs.empty() && !shared_->ends) shared_->arrived.Wait(&shared_->mutex);
      if (shared_->jobs.empty()) return;
      ends = shared_->ends;
      job = shared_->TakeJob();
    }
    if (ends) {
      job.waiter.done(Unavailable(kShutDown));
    } else if (job.waiter.left.stop_requested()) {
      job.waiter.done(Cancelled(kLeft));
    } else {
      Prepare(std::move(job));
    }
  }
}

void Pictures::Prepare(Job job) {
  StatusOr<picture::Picture> decoded = WithinMemory([&] { return Decode(*job.file); });
  if (!decoded.ok()) return job.waiter.done(decoded.status());
  const PicturePreparation& preparation = spec().preparation;
  const PictureKey key = vision::KeyOf(*decoded, preparation, job.tenant);
  if (shared_->Enter(job, key)) return;
  auto prepared =
      WithinMemory([&] { return vision::PreparePicture(preparation, *std::move(decoded)); });
  if (!prepared.ok()) return shared_->Finish(key, prepared.status(), 0);
  engine_->RunBeside(std::make_shared<Work>(encoder_, shared_, std::move(job.tenant), key,
                                            *std::move(prepared), engine_->options().n_threads));
}

StatusOr<std::pair<int, int>> Pictures::SizeOf(std::string_view tenant,
                                               const PictureFile& file) const {
  MutexLock one_at_a_time(&shared_->measuring);
  const Shared::FileOf key = Shared::Of(file, tenant);
  {
    MutexLock lock(&shared_->mutex);
    const auto it = shared_->sizes.find(key);
    if (it != shared_->sizes.end()) return it->second;
  }
  WEFT_ASSIGN_OR_RETURN(const picture::Picture decoded, WithinMemory([&] { return Decode(file); }));
  MutexLock lock(&shared_->mutex);
  if (shared_->sizes.size() >= kMaxKnown) shared_->sizes.clear();
  return shared_->sizes[key] = {decoded.width, decoded.height};
}

StatusOr<EncodedPicture> Pictures::Measure(std::string_view tenant, const PictureFile& file) const {
  WEFT_ASSIGN_OR_RETURN(const auto size, SizeOf(tenant, file));
  const PicturePreparation& preparation = spec().preparation;
  WEFT_ASSIGN_OR_RETURN(const vision::PicturePlan plan,
                        vision::PlanPicture(preparation, size.first, size.second));
  const auto view = [&](int64_t width, int64_t height) {
    return vision::Grid((height + preparation.unit - 1) / preparation.unit,
                        (width + preparation.unit - 1) / preparation.unit, /*its_width=*/1);
  };
  EncodedPicture empty{.tile_rows = plan.tile_rows, .tile_columns = plan.tile_columns};
  const int64_t n_tiles = plan.tile_rows * plan.tile_columns, side = preparation.side;
  for (int64_t i = 0; i < n_tiles; ++i) empty.views.push_back(view(side, side));
  const vision::PicturePlan::Size last = plan.resizes.back();
  empty.views.push_back(n_tiles > 0 ? view(side, side) : view(last.width, last.height));
  return empty;
}

EmbeddedRows Pictures::RowsOf(std::string mark, const EncodedPicture& picture) const {
  EmbeddedRows rows{.mark = std::move(mark), .is_picture = true};
  const float scale = engine_->model().spec().embedding_scale;  // the model takes it back
  std::span<const float> row_end = encoder_->row_end();
  // Cut to the embeddings' width: a measured picture has one value per embedding.
  if (!row_end.empty()) row_end = row_end.first(static_cast<size_t>(picture.views[0].width));
  for (vision::SpanPart& part : ArrangeSpan(spec().frame, row_end, picture)) {
    for (float& value : part.rows) value /= scale;
    rows.parts.push_back({std::move(part.text), std::move(part.rows), part.form});
  }
  return rows;
}

PictureStats Pictures::stats() const {
  MutexLock lock(&shared_->mutex);
  PictureStats stats = shared_->stats;
  const vision::PictureCache::Stats cache = shared_->cache.stats();
  stats.found = cache.hits;
  stats.cached = cache.pictures;
  stats.cached_bytes = cache.bytes;
  stats.weight_bytes = encoder_->memory_bytes();
  return stats;
}

void AdmitPictures(const PictureSpec& spec, const Model& model, EngineOptions* options) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t of_context = model.context_tokens() * model.row_width() * int64_t{sizeof(float)};
  options->max_row_bytes = std::max(options->max_row_bytes, std::min(of_context, kMost));
  if (!spec.frame.mutual) return;
  const int64_t side = (spec.preparation.side + spec.preparation.unit - 1) / spec.preparation.unit;
  options->max_step_tokens = std::max(options->max_step_tokens, side * side);
}

// --- projectors -----------------------------------------------------------------------------

Status CheckProjector(const PictureSpec& spec, const Model& model) {
  WEFT_RETURN_IF_ERROR(model.CheckTakesRows());
  const PictureFrame& frame = spec.frame;
  if (frame.mutual || frame.on_grid) {
    WEFT_RETURN_IF_ERROR(model.CheckTakesForm(
        {.grid_rows = frame.on_grid, .grid_columns = frame.on_grid, .mutual = frame.mutual}));
  }
  if (spec.width != model.row_width()) {
    return InvalidArgument("its embeddings have ", spec.width, " values, and the model's ",
                           model.row_width(), ": it is the projector of another model");
  }
  if ((model.spec().embedding_scale != 1) != spec.beside_scaled_tokens) {
    return InvalidArgument("the model ", spec.beside_scaled_tokens ? "does not scale" : "scales",
                           " its embeddings, unlike every model of this projector: it is the "
                           "projector of another model");
  }
  if (frame.on_grid && !HasAxes(model.spec())) {
    return InvalidArgument(
        "the model has no positions for the rows and columns of pictures "
        "(rope.dimension_sections): it is the projector of another model");
  }
  return OkStatus();
}

Status CheckVocabulary(const PictureSpec& spec, const Model& model) {
  const PictureFrame& frame = spec.frame;
  for (const std::string& text : {frame.before, frame.after}) {
    for (size_t at = text.find_first_of("<["); at != text.npos; at = text.find_first_of("<[", at)) {
      const size_t end = text.find(text[at] == '<' ? '>' : ']', at);
      if (end == text.npos) break;
      const std::string token = text.substr(at, end + 1 - at);
      if (model.Encode(token, /*add_special=*/false, /*parse_special=*/true).size() != 1) {
        return InvalidArgument("the model's vocabulary has no token ", token);
      }
      at = end;
    }
  }
  return OkStatus();
}

}  // namespace weft::serve
