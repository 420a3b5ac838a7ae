// Options of an engine, a session and a turn. Every member has a default, so callers can name just
// those they set without compiler warnings about the rest.
#ifndef WEFT_OPTIONS_H_
#define WEFT_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "weft/shared_store.h"

namespace weft {

class Model;
class StepGate;

// Limits on a turn's lists that the engine scans for every token while all sessions wait. Longer
// lists are INVALID_ARGUMENT, whichever API a turn comes through.
inline constexpr size_t kMaxLogitBiases = 4096;
inline constexpr size_t kMaxStopTokens = 4096;
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 1024;
inline constexpr size_t kMaxPromptChunks = 65536;
inline constexpr size_t kMaxPredictionTokens = 131072;
inline constexpr size_t kMaxPrefixMarks = 16;

// Stands for a row (PromptPart) in Engine::Tokens.
inline constexpr int32_t kRowToken = -2;

// kQ5_0 and kQ4_0: levels of 5 and 4 bits, after a rotation of each head.
enum class KvType { kF32, kF16, kBF16, kQ8_0, kQ5_0, kQ4_0 };

// Whether steps may guess the next tokens of an answer and verify the guesses. Guesses change how
// fast an answer comes, never its tokens, its probabilities or any state.
enum class Speculation {
  kOff,
  kLookup,  // guesses come from text: the conversation, others of its domain, and
            // TurnOptions::prediction
  kDraft,   // guesses come from EngineOptions::draft_model (which may be the model's own head),
            // and TurnOptions::prediction
  kAuto,    // from whichever of these are available
};

struct EngineOptions {
  int n_threads = 0;              // compute threads including the engine's own; 0: one per core
  KvType kv_type = KvType::kF16;  // of keys, and of values unless `kv_values` says otherwise
  // Floats have the same type for both; kQ8_0, kQ5_0 and kQ4_0 go with each other.
  std::optional<KvType> kv_values = {};
  int page_tokens = 0;  // positions per page; 0: the backend's choice
  // Bytes for pages and slots; a device with memory of its own gives no more than it has. 0: half
  // of the machine's free memory when the engine starts, or most of such a device's.
  int64_t memory_bytes = 0;
  int max_running = 32;  // turns in one step
  // Turns waiting, of a tenant alone; one more gives RESOURCE_EXHAUSTED. Tenants with turns each
  // have their share of it.
  int max_queued = 256;
  // Weights of tenants (TurnOptions::tenant), each above 0; all others have 1. Running turns'
  // places, the queue and the time of steps are shared by them; a tenant alone has everything.
  std::map<std::string, double, std::less<>> share_weights = {};
  int max_sessions = 4096;
  int max_sessions_per_domain = 0;  // keeps one domain from taking all; 0: max_sessions
  // Most rows in one step; also the size of the compute scratch.
  int64_t max_step_tokens = 512;
  // While sessions decode, prompts get the time between two decode steps. That time stretches the
  // decode interval to at most this many times that of decoding alone, and never beyond twice a
  // decode step plus `step_ms`. (A few prompt rows are always taken, so that prompts never starve.)
  double decode_stretch = 3.0;
  // How often, in milliseconds, work on a prompt can be interrupted for decoding, short requests or
  // cancellation (approximate).
  int step_ms = 50;
  // Where parked sessions are stored. If empty, parking is refused and memory pressure reduces idle
  // sessions to their tokens.
  std::string state_dir = {};
  // `state_dir` also holds, in blocks, the computed state of sessions and of prompts that recur or
  // are long, so that it need not be computed again after a restart. This limits its bytes and
  // those of session files; the least useful blocks go first, and a session that would not fit
  // even without blocks is not parked. 0: the smaller of 10 GB and a tenth of the free space; -1:
  // none, only tokens are stored.
  int64_t state_disk_bytes = 0;
  // Most bytes of such state written per hour, half of them for prompts; 0: half of its budget.
  int64_t state_disk_bytes_per_hour = 0;
  // A turn of a named session sends its last event once the session's tokens are in `state_dir`
  // (or could not be written), so that a crash after it loses nothing. Costs one write to disk per
  // turn, ahead of blocks. Needs `state_dir`.
  bool durable = false;
  // A store that other servers use too. Named sessions then have their tokens there instead of in
  // `state_dir`, which holds blocks alone, and turns are durable. Needs `state_dir`.
  SharedStoreOptions shared = {};
  // How long saving sessions may take at shutdown, after the turns have ended.
  std::chrono::milliseconds save_grace{30000};
  // Receives one sentence per event that concerns the operator but no caller, e.g. a full disk.
  // Called on the engine's threads; must return quickly.
  std::function<void(const std::string&)> on_notice = {};
  // Events a turn buffers for a consumer that does not read. Beyond that the turn is paused until
  // half of them are read, and cut off after `stalled_consumer_timeout`.
  int max_pending_events = 1024;
  std::chrono::milliseconds stalled_consumer_timeout{60000};
  // The same timeout while other turns wait for its place.
  std::chrono::milliseconds stalled_while_others_wait{3000};
  // Whether isolation domains share prefixes.
  bool share_prefixes_across_domains = false;
  // Whether to find and keep shared prefixes at all.
  bool prefix_cache = true;
  // Models with recurrent state can resume only from a checkpoint, a stored copy of it. Checkpoints
  // are taken at the ends of prompts and turns, and every `checkpoint_tokens` tokens (0: as many as
  // make a checkpoint no larger than the pages between two of them, from 256 to 1024). They take at
  // most `checkpoint_share` of the memory. With share 0, or without the prefix cache, there are
  // none, and a session that goes back recomputes from its first token.
  int64_t checkpoint_tokens = 0;
  double checkpoint_share = 0.5;
  // Engine::options() says kOff where the backend's results depend on which rows share a step.
  Speculation speculation = Speculation::kLookup;
  int max_guesses = 16;  // per answer and step
  // A smaller model with the same vocabulary that guesses what the model says next; or the model's
  // own prediction head (Model::LoadHead). Its state takes its share of memory_bytes: enough that
  // both can hold the same number of tokens.
  std::shared_ptr<const Model> draft_model = {};
  // Draft and verify even where that does not pay; for tests and measurements.
  bool draft_at_any_cost = false;
  // Shared with engines that compute on the same cores or device, so that they take turns
  // (weft/step_gate.h). Null: this engine computes whenever it has work.
  std::shared_ptr<StepGate> gate = {};
  // Most bytes of vectors in place of tokens (PromptPart) in one session. They are part of
  // memory_bytes; those of all sessions together take at most half of it.
  int64_t max_row_bytes = int64_t{64} << 20;
};

struct SessionOptions {
  // Chosen by the client; unique within its domain. Empty: anonymous.
  std::string name = {};
  // The owner. Names and prefixes of one domain are invisible to all others.
  std::string domain = {};
};

struct SamplingOptions {
  // temperature, top_k, top_p and so on, with Weft's defaults.
#define WEFT_SAMPLING_PARAMETER(type, member, own, name, ...) type member = own;
#include "weft/sampling_parameters.inc"
#undef WEFT_SAMPLING_PARAMETER
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // -infinity bans a token
  // Randomness is a function of (seed, position): equal seeds give equal output. If unset, the
  // engine draws a seed and reports it.
  std::optional<uint64_t> seed = {};

  static SamplingOptions Greedy() {
    SamplingOptions options;
    options.temperature = 0;
    return options;
  }
};

// Restricts which tokens may be sampled next; grammars and schemas use it (weft/constraint.h).
// Called on the engine thread before each sample, for one choice of one turn; again for the same
// one where a step is given up and begun anew.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Bit `id % 32` of word `id / 32` says whether token `id` may come next. All bits are set on
  // entry; clear those of forbidden tokens. `generated` extends the one of the previous call.
  virtual void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) = 0;
  // Tokens that must come next whatever the model says: they are taken without asking it, and
  // computed together. Apply must allow each of them.
  virtual std::vector<int32_t> Forced(std::span<const int32_t> /*generated*/) { return {}; }
  // Why the last Apply allowed nothing: the error that ends the choice. OK where it has no reason
  // of its own.
  virtual absl::Status Problem() const { return absl::OkStatus(); }
};
using TokenMaskFactory = std::function<std::unique_ptr<TokenMask>(int choice)>;

// Limits on the guesses for one turn.
struct SpeculationOptions {
  int most = -1;              // per step; 0: none; -1: EngineOptions::max_guesses
  int least = 0;              // a guess of fewer tokens is dropped
  float min_probability = 0;  // a guess ends before a token less likely to be right than this
};

// How the rows of a part belong together. By default each stands alone, like a token. Otherwise
// sessions can only be forked and cut before or after all of them.
struct RowForm {
  // Above 0: the rows are a picture's, which stand on a grid in reading order. Models whose ropes
  // have axes turn them by their places on it; what follows is as far from the picture's beginning
  // as its longer side.
  int64_t grid_rows = 0, grid_columns = 0;
  // The rows attend to each other, also to later ones. They are computed in one step.
  bool mutual = false;

  bool stands_alone() const { return grid_rows == 0 && !mutual; }
  bool operator==(const RowForm&) const = default;
};

// A part of a prompt: tokens, followed by rows: vectors that stand in for tokens. A row has
// Model::row_width() finite numbers: what the model's embedding gives for a token, before anything
// is done to it (some models scale it); in models whose first layers add more to a picture's rows,
// what each of these adds follows. So the rows from Model::RowsOf give the same bits as their
// tokens. Rows count as tokens. Nothing is guessed from them, and no penalty counts them.
struct PromptPart {
  std::vector<int32_t> tokens = {};
  std::vector<float> rows = {};
  RowForm form = {};
};

// The first `n_tokens` of a turn's prompt, to which its client means to come back. Recurrent models
// leave a checkpoint exactly there. Until `keep_for` has passed, the prefix is evicted after the
// others of its domain; beside other domains it is as old as its own domain's last use.
struct PrefixMark {
  int64_t n_tokens = 0;
  std::chrono::seconds keep_for{300};  // at most a week
};

// A LoRA adapter of the model (ModelOptions::adapters), and how strongly it acts. 0: not at all.
struct AdapterScale {
  std::string name = {};
  float scale = 1;
};

struct TurnOptions {
  std::vector<int32_t> tokens = {};
  // What follows them. Shared, because options are copied.
  std::shared_ptr<const std::vector<PromptPart>> parts = {};
  // How many positions `tokens` and `parts` take, and how many of these are rows.
  int64_t PromptSize(int64_t row_width) const {
    int64_t n = static_cast<int64_t>(tokens.size()) + PromptRows(row_width);
    if (parts == nullptr) return n;
    for (const PromptPart& part : *parts) n += static_cast<int64_t>(part.tokens.size());
    return n;
  }
  int64_t PromptRows(int64_t row_width) const {
    if (parts == nullptr) return 0;
    int64_t n_values = 0;
    for (const PromptPart& part : *parts) n_values += static_cast<int64_t>(part.rows.size());
    return n_values / row_width;
  }
  std::vector<PrefixMark> prefix_marks = {};
  // False: tokens and parts are appended to the session. True: they are the whole context; the
  // session keeps their common prefix and discards the rest.
  bool tokens_are_whole_context = false;

  // The adapters that the session's tokens are computed with. A session that has tokens keeps its
  // own; if these are more than a default, and others, the turn is FAILED_PRECONDITION.
  std::vector<AdapterScale> adapters = {};
  bool adapters_are_default = true;

  // Report the text's vector (ModelUses) in StartedEvent. Requires max_tokens 0.
  bool vector = false;
  int64_t max_tokens = -1;  // to generate; -1: until the context is full; 0: none
  // Until this many tokens are generated only max_tokens may end the turn: end and stop tokens are
  // banned, and a stop string that begins before then is ordinary text.
  int64_t min_tokens = 0;
  int n_choices = 1;  // more than one forks after the prompt
  SamplingOptions sampling = {};
  std::vector<int32_t> stop_tokens = {};  // beside the model's own end-of-generation tokens
  std::vector<std::string> stop_strings = {};
  bool ignore_eos = false;  // the model's end tokens are banned instead of obeyed
  // End a turn that repeats itself before the context is full. Has no effect if the model's end
  // tokens are banned.
  bool end_loops = true;
  // Control tokens to include in the text because the reply parser needs them. All others produce
  // no text, and neither do end-of-generation tokens.
  std::vector<int32_t> shown_control_tokens = {};
  int top_logprobs = -1;  // -1: none; 0: the chosen token's; n: also the n best
  // True: log-probabilities are those of the draw, after bias, penalties, mask, cuts and
  // temperature, and the best are among the tokens that could be drawn. False: they are the model's
  // own.
  bool logprobs_of_draw = false;
  // Log-probability of every prompt token given its predecessors (and its alternatives, as above).
  // Such a turn recomputes its whole prompt.
  bool prompt_logprobs = false;
  bool report_progress = false;  // ProgressEvents, while the prompt is computed
  TokenMaskFactory token_mask = {};
  SpeculationOptions speculation = {};
  // What the answer probably contains, for example the file that it edits.
  std::vector<int32_t> prediction = {};
  // Guesses what the choice says after `generated`. Asked before all other sources; its guesses are
  // always verified if there is room. Called on the engine thread before each step; must return
  // quickly.
  std::function<std::vector<int32_t>(int choice, std::span<const int32_t> generated)> guess = {};

  // Whose turn it is, for fair shares; empty: its session's domain.
  std::string tenant = {};
  int priority = 0;        // higher first, among the tenant's own
  std::string label = {};  // shown in TurnInfo, to help find a request there
  // The turn ends with DEADLINE_EXCEEDED at this time; unset: never.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  // Receives the raw logits of every prompt position, row by row, on the engine thread; must return
  // quickly. Recomputes the whole prompt.
  std::function<void(int64_t position, std::span<const float> logits)> on_prompt_logits = {};
  // Sizes of the prompt's chunks, repeated cyclically; empty: the engine's choice. Results never
  // depend on it; it exists to demonstrate that.
  std::vector<int64_t> prompt_chunks = {};
};

}  // namespace weft

#endif  // WEFT_OPTIONS_H_
