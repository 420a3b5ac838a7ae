// What a caller can ask for: of an engine, a session, a turn. Each member has a value of its own,
// so that a caller names those that he means and no compiler warns about the others.
#ifndef WEFT_OPTIONS_H_
#define WEFT_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// How long the lists of a turn may be that the engine looks at for every token, while all
// sessions wait. Whichever way a turn comes in, a longer one is INVALID_ARGUMENT.
inline constexpr size_t kMaxLogitBiases = 4096;
inline constexpr size_t kMaxStopTokens = 4096;
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 1024;
inline constexpr size_t kMaxPromptChunks = 65536;

enum class KvType { kF32, kF16, kBF16, kQ8_0 };

struct EngineOptions {
  int n_threads = 0;  // compute threads, the engine's own included; 0: one per core
  KvType kv_type = KvType::kF16;
  int page_tokens = 0;  // positions per page; 0: the backend's choice
  // Bytes that pages and slots may take. 0: half of what the machine has free
  // when the engine starts.
  int64_t memory_bytes = 0;
  int max_running = 32;  // turns in a step
  int max_queued = 256;  // turns waiting; one more is RESOURCE_EXHAUSTED
  int max_sessions = 4096;
  int max_sessions_per_domain = 0;  // so that none takes what all need; 0: max_sessions
  // Rows of one step at most; also the size of the compute scratch.
  int64_t max_step_tokens = 512;
  // While sessions decode, prompts have the time between two of their steps: as much as
  // makes their rhythm at most this many times that of decoding alone, and no more than
  // twice a step of decoding and `step_ms`. (Some rows of a prompt are always taken, so that
  // it is never starved.)
  double decode_stretch = 3.0;
  // Work on a prompt can be interrupted about this often, for whoever decodes, asks
  // something short, or cancels.
  int step_ms = 50;
  // Where parked sessions are kept; empty: parking is refused, and memory pressure
  // drops idle sessions to their tokens.
  std::string state_dir = {};
  // Beside sessions, which are written there whenever they changed, `state_dir` has the state
  // of sessions, and of prompts that come back or are long, in blocks: what was computed is read
  // there after a restart. It takes at most so many bytes, what is least useful goes first. 0:
  // the smaller of 10 GB and a tenth of what is free; -1: no such state, tokens alone.
  int64_t state_disk_bytes = 0;
  // And at most so many are written to it in an hour, half of them for prompts; 0: half of its
  // bytes.
  int64_t state_disk_bytes_per_hour = 0;
  // How long sessions may take to be saved at the end, after the turns.
  std::chrono::milliseconds save_grace{30000};
  // Told in a sentence what an operator should know and no caller is told, such as a full disk.
  // On the engine's threads; it must return quickly.
  std::function<void(const std::string&)> on_notice = {};
  // Events a turn holds for a consumer that does not read; then the turn is paused
  // until half of them are read, and cut after `stalled_consumer_timeout`.
  int max_pending_events = 1024;
  std::chrono::milliseconds stalled_consumer_timeout{60000};
  // The same while other turns wait for its place.
  std::chrono::milliseconds stalled_while_others_wait{3000};
  // Prefixes are shared between isolation domains only when this is set.
  bool share_prefixes_across_domains = false;
  // Look for and keep shared prefixes at all.
  bool prefix_cache = true;
  // Models with recurrent state can start again only where a copy of it was kept, a
  // checkpoint: at the ends of prompts and turns, and every so many tokens (0: as many as
  // take the memory of a checkpoint in pages, between 256 and 1024). Checkpoints take at
  // most this share of the memory; with 0, or without the prefix cache, there are none,
  // and a session that goes back computes from its first token.
  int64_t checkpoint_tokens = 0;
  double checkpoint_share = 0.5;
};

struct SessionOptions {
  // Chosen by the client; unique within its domain. Empty: anonymous.
  std::string name = {};
  // Whose it is. Names and prefixes of one domain are invisible to every other.
  std::string domain = {};
};

struct SamplingOptions {
  float temperature = 0.8f;         // 0: greedy
  int top_k = 40;                   // 0: off
  float top_p = 0.95f;              // 1: off
  float min_p = 0.05f;              // 0: off
  float repetition_penalty = 1.0f;  // 1: off
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int penalty_window = 64;  // last tokens looked at; -1: the whole context
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // -infinity bans a token
  // Randomness is a function of (seed, position): equal seeds give equal output.
  // Unset: the engine draws one, and reports it.
  std::optional<uint64_t> seed = {};

  static SamplingOptions Greedy() {
    SamplingOptions options;
    options.temperature = 0;
    return options;
  }
};

// Restricts what may be sampled next: the place of grammars and schemas (weft/constraint.h). Called
// on the engine thread before each sample, for one choice of one turn.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Bit `id % 32` of word `id / 32` says whether token `id` may come next. All are set; it clears
  // those that must not. `generated` begins with that of the call before.
  virtual void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) = 0;
  // Tokens that come next whatever the model says: they are taken without asking it, and computed
  // together. Each must be one that Apply would allow.
  virtual std::vector<int32_t> Forced(std::span<const int32_t> /*generated*/) { return {}; }
};
using TokenMaskFactory = std::function<std::unique_ptr<TokenMask>(int choice)>;

struct TurnOptions {
  std::vector<int32_t> tokens = {};
  // False: `tokens` are appended to the session. True: they are the whole context;
  // the session keeps what it shares with them from the start and forgets the rest.
  bool tokens_are_whole_context = false;

  int64_t max_tokens = -1;  // to generate; -1: until the context is full; 0: none
  // Of those, how many come before anything but max_tokens may end the turn: until then end
  // and stop tokens are banned, and stop strings that begin are text like any other.
  int64_t min_tokens = 0;
  int n_choices = 1;  // more than one forks after the prompt
  SamplingOptions sampling = {};
  std::vector<int32_t> stop_tokens = {};  // beside the model's own end-of-generation tokens
  std::vector<std::string> stop_strings = {};
  bool ignore_eos = false;  // the model's end tokens are banned, not obeyed
  // A turn whose text has come to repeat itself ends before the context is full. Not where
  // the model's end tokens are banned.
  bool end_loops = true;
  // Control tokens that are written out in the text, where what takes a reply apart needs
  // them. All others give none, and so do end-of-generation tokens.
  std::vector<int32_t> shown_control_tokens = {};
  int top_logprobs = -1;  // -1: none; 0: of the chosen; n: and the n best
  // Log-probabilities of sampled tokens are those of the draw, after bias, penalties, mask,
  // cuts and temperature, and the best are those that could be drawn. Otherwise they are
  // the model's own.
  bool logprobs_of_draw = false;
  // Log-probability of every prompt token given those before it (and its
  // alternatives, as above). Such a turn computes its whole prompt anew.
  bool prompt_logprobs = false;
  bool report_progress = false;  // ProgressEvents, while the prompt is computed
  TokenMaskFactory token_mask = {};

  int priority = 0;        // higher first
  std::string label = {};  // shown in TurnInfo, for whoever looks for a request there
  // The turn ends with DEADLINE_EXCEEDED at this time; unset: never.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  // Raw logits of every prompt position, row by row, on the engine thread; it must
  // return quickly. Computes the whole prompt anew.
  std::function<void(int64_t position, std::span<const float> logits)> on_prompt_logits = {};
  // Sizes of the prompt's chunks, repeated cyclically; empty: the engine's choice.
  // Results do not depend on it; it exists to show that.
  std::vector<int64_t> prompt_chunks = {};
};

}  // namespace weft

#endif  // WEFT_OPTIONS_H_
