// The engine of a program: its options, its memory, and the accounts that must add up.
#include <algorithm>

#include "engine/kv_type.h"
#include "engine/state/history.h"
#include "tests/property/program.h"
#include "tests/support/engine_harness.h"

namespace weft::testing {

void Program::ChooseOptions() {
  static constexpr KvType kChoices[] = {KvType::kF32, KvType::kF16, KvType::kQ5_0, KvType::kQ8_0};
  static constexpr int kPageTokens[] = {16, 32, 64};
  options_.n_threads = Uniform(1, 2);
  options_.kv_type = kChoices[Uniform(0, 3)];
  options_.page_tokens = kPageTokens[Uniform(0, 2)];
  options_.max_step_tokens = Chance(50) ? Uniform(4, 24) : Uniform(24, 128);
  options_.decode_stretch = Chance(50) ? 1.0 : 4.0;
  options_.max_running = Uniform(1, 6);
  options_.prefix_cache = Chance(75);
  options_.max_pending_events = Chance(20) ? Uniform(1, 4) : 1024;
  // While a program asks its oracle, it reads no events.
  options_.stalled_while_others_wait = kHang;
  options_.checkpoint_tokens = Chance(50) ? 0 : Uniform(1, 100);
  options_.checkpoint_share = Uniform(0, 10) / 10.0;
  options_.speculation = Chance(85) ? Speculation::kLookup : Speculation::kOff;
  options_.max_guesses = Chance(50) ? Uniform(1, 4) : Uniform(5, 24);
  if (dir_ == nullptr && Chance(70)) dir_ = std::make_unique<TempDir>();
  options_.state_dir = dir_ != nullptr ? dir_->path() : "";
  ChooseMemory();
  ChooseRows();
  ChooseDrafts();
}

// Rows take up to half of the memory. The program's sessions hold only part of that, so none is
// refused while old ones are being freed, nor after a restart with less memory.
void Program::ChooseRows() {
  if (with_rows_) options_.memory_bytes += options_.memory_bytes / 2;
  const int64_t held = RowsHeld() * RowTable::BytesOf(1, model_->row_width());
  if (with_rows_) options_.memory_bytes = std::max(options_.memory_bytes, 4 * held);
  memory_bytes_ = options_.memory_bytes;
  state_bytes_ = with_rows_ ? memory_bytes_ / 2 : memory_bytes_;
  max_rows_ = memory_bytes_ / 4 / RowTable::BytesOf(1, model_->row_width());
}

// The model drafts for itself: whatever breaks that would also break another draft model. It takes
// half of the memory. A model with a prediction head uses the head.
void Program::ChooseDrafts() {
  options_.draft_model = nullptr;
  options_.draft_at_any_cost = random_drafts_() % 4 != 0;
  const uint64_t percent = head_ != nullptr ? 90 : 40;
  // Without the same bits there is no speculation, and all memory is the model's own.
  if (options_.speculation == Speculation::kOff || !model_->same_bits()) return;
  if (random_drafts_() % 100 >= percent) return;
  options_.draft_model = head_ != nullptr ? head_ : model_;
  options_.speculation = random_drafts_() % 2 == 0 ? Speculation::kDraft : Speculation::kAuto;
  options_.memory_bytes = 2 * memory_bytes_;
}

void Program::ChooseMemory() {
  StateOptions state;
  state.kv_type = KvTypesOf(options_);
  state.page_tokens = options_.page_tokens;
  const auto probe = model_->backend().NewState(*model_->weights(), state);
  // Heads not made of whole blocks, or a backend without the type.
  const KvType type = options_.kv_type;
  if (!probe.ok() && (type == KvType::kQ8_0 || type == KvType::kQ5_0)) {
    options_.kv_type = KvType::kBF16;
    return ChooseMemory();
  }
  if (!probe.ok()) return Expect(probe.status(), "a store of state");
  layout_ = (*probe)->layout();
  options_.memory_bytes = int64_t{64} << 20;
  if (Chance(60)) {
    options_.memory_bytes = BytesFor(Uniform(30, Chance(50) ? 110 : 250));
    if (Chance(70)) options_.memory_bytes += Uniform(1, 12) * layout_.slot_bytes;
  }
}

// Max bytes that a session of n_tokens needs: its pages, one copy, one page to continue, and its
// slot.
int64_t Program::BytesFor(int64_t n_tokens) const {
  int64_t bytes = layout_.slot_bytes;
  for (const int64_t page : layout_.page_bytes) {
    bytes += page * ((n_tokens + options_.page_tokens - 1) / options_.page_tokens + 1);
  }
  return bytes;
}

void Program::Start() {
  Note("engine: threads ", options_.n_threads, ", kv ", static_cast<int>(options_.kv_type),
       ", page ", options_.page_tokens, ", step ", options_.max_step_tokens, ", running ",
       options_.max_running, ", memory ", options_.memory_bytes, " of ", BytesFor(1), " per page",
       with_rows_ ? StrCat(", rows ", max_rows_) : "", options_.prefix_cache ? ", prefixes" : "",
       ", checkpoints every ", options_.checkpoint_tokens, " in ", options_.checkpoint_share,
       options_.state_dir.empty() ? "" : ", files", ", events ", options_.max_pending_events,
       ", guesses ", options_.speculation == Speculation::kOff ? 0 : options_.max_guesses,
       options_.draft_model == nullptr ? ""
       : options_.draft_at_any_cost    ? ", drafts"
                                       : ", few drafts");
  auto engine = Engine::Start(model_, options_);
  Expect(engine.status(), "start");
  if (engine.ok()) engine_ = *std::move(engine);
}

void Program::CheckAccounts() {
  if (engine_ == nullptr) return;
  Expect(engine_->CheckIntegrity(), "integrity");
  const EngineStats stats = engine_->Stats();
  const int64_t held = testing::StateBytes(stats);
  // The test only knows that a head's share is the smaller one.
  const bool has_head = head_ != nullptr && options_.draft_model == head_;
  const int64_t most = has_head ? options_.memory_bytes : memory_bytes_;
  if (held > most || held + stats.draft_state_bytes > options_.memory_bytes) {
    Fail("pages and slots take ", held, " bytes of ", most, ", and of a draft model ",
         stats.draft_state_bytes);
  }
  const double share = options_.checkpoint_share * static_cast<double>(most);
  if (static_cast<double>(stats.checkpoints * layout_.slot_bytes) > share) {
    Fail(stats.checkpoints, " checkpoints take more than ", share, " bytes");
  }
  if (stats.row_bytes > memory_bytes_ / 2) Fail("rows take ", stats.row_bytes, " bytes");
  if (stats.pages_in_index > stats.pages_used) Fail("more pages in the index than in use");
  if (stats.pages_evictable > stats.pages_in_index) Fail("more pages to evict than in the index");
  if (!options_.prefix_cache && stats.pages_in_index + stats.checkpoints != 0) {
    Fail("an index that was not wanted");
  }
}

}  // namespace weft::testing
