#include "doors/grpc/generate_form.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "doors/grpc/generate_request.h"
#include "doors/grpc/rpc_call.h"
#include "mlx_engine.pb.h"
#include "vllm_engine.pb.h"

namespace weft::serve {
namespace {

// --- log-probabilities -------------------------------------------------------------------

template <typename LogProbs>
void AddAlternatives(std::span<const TokenLogprob> alternatives, int most, LogProbs* out) {
  const auto n = std::min(alternatives.size(), static_cast<size_t>(std::max(most, 0)));
  auto* const top = out->add_top_logprobs();
  for (const TokenLogprob& alternative : alternatives.first(n)) {
    top->add_values(alternative.logprob);
    top->add_token_ids(static_cast<uint32_t>(alternative.token));
  }
}

// `always`: an empty list of alternatives is there too.
template <typename OutputLogProbs>
void AddToken(const TokenEvent& token, int most, bool always, OutputLogProbs* out) {
  out->add_token_ids(static_cast<uint32_t>(token.token));
  out->add_token_logprobs(token.logprob);
  if (always || most > 0) AddAlternatives(token.alternatives, most, out);
}

// --- the two services ------------------------------------------------------------------

struct MlxTypes {
  using Response = mlx::grpc::engine::GenerateResponse;
  using Complete = mlx::grpc::engine::GenerateComplete;
  static constexpr bool kAlwaysAlternatives = true;

  static void SetStop(const DoneEvent& done, Complete* complete) {
    if (done.stop_token < 0) return;
    complete->set_matched_stop_token_id(static_cast<uint32_t>(done.stop_token));
  }
  template <typename Message>
  static void AddPrompt(const std::vector<StartedEvent::PromptToken>&, int, Message*) {}
};

struct VllmTypes {
  using Response = vllm::grpc::engine::GenerateResponse;
  using Complete = vllm::grpc::engine::GenerateComplete;
  static constexpr bool kAlwaysAlternatives = false;

  static void SetStop(const DoneEvent& done, Complete* complete) {
    if (done.reason == FinishReason::kStopString) {
      complete->set_matched_stop_str(done.stop_string);
    } else if (done.stop_token >= 0) {
      complete->set_matched_token_id(static_cast<uint32_t>(done.stop_token));
    }
    complete->set_spec_accepted_tokens(static_cast<uint32_t>(done.usage.accepted_guesses));
    complete->set_spec_draft_tokens(static_cast<uint32_t>(done.usage.guessed_tokens));
  }
  template <typename Message>
  static void AddPrompt(const std::vector<StartedEvent::PromptToken>& prompt, int most,
                        Message* message) {
    auto* const out = message->mutable_input_logprobs();
    for (size_t i = 0; i < prompt.size(); ++i) {
      out->add_token_ids(static_cast<uint32_t>(prompt[i].token.token));
      auto* const logprob = out->add_token_logprobs();
      if (i > 0) logprob->set_value(prompt[i].token.logprob);
      if (most > 0) AddAlternatives(prompt[i].alternatives, i > 0 ? most : 0, out);
    }
  }
};

template <typename Types>
class WriterOf final : public GenerateWriter {
 public:
  WriterOf(const GenerateAsk& ask, int n_choices, int64_t prompt_tokens)
      : streams_(ask.streams),
        answer_logprobs_(ask.answer_logprobs),
        prompt_logprobs_(ask.prompt_logprobs),
        prompt_tokens_(prompt_tokens),
        choices_(static_cast<size_t>(n_choices)) {}

  void Start(const StartedEvent& started) override {
    cached_tokens_ = started.cached_tokens;
    if (prompt_logprobs_ >= 0) prompt_ = started.prompt_logprobs;
  }

  std::optional<grpc::ByteBuffer> Token(const TokenEvent& token) override {
    Choice& choice = choices_[static_cast<size_t>(token.choice)];
    ++choice.completion_tokens;
    if (!streams_) {
      choice.complete.add_output_ids(static_cast<uint32_t>(token.token));
      AddLogprobs(token, &choice.complete);
      return std::nullopt;
    }
    typename Types::Response response;
    auto& chunk = *response.mutable_chunk();
    chunk.add_token_ids(static_cast<uint32_t>(token.token));
    Count(choice, token.choice, &chunk);
    AddLogprobs(token, &chunk);
    AddPrompt(&choice, &chunk);
    return BytesOf(response);
  }

  grpc::ByteBuffer Done(const DoneEvent& done) override {
    Choice& choice = choices_[static_cast<size_t>(done.choice)];
    typename Types::Response response;
    auto& complete = *response.mutable_complete();
    complete = std::move(choice.complete);
    complete.set_finish_reason(IsCut(done.reason) ? "length" : "stop");
    Count(choice, done.choice, &complete);
    AddPrompt(&choice, &complete);
    Types::SetStop(done, &complete);
    return BytesOf(response);
  }

 private:
  struct Choice {
    int64_t completion_tokens = 0;
    bool has_prompt = false;            // its log-probabilities were sent
    typename Types::Complete complete;  // its final message, if nothing is streamed
  };

  template <typename Message>
  void Count(const Choice& choice, int index, Message* message) const {
    message->set_prompt_tokens(static_cast<uint32_t>(prompt_tokens_));
    message->set_completion_tokens(static_cast<uint32_t>(choice.completion_tokens));
    message->set_cached_tokens(static_cast<uint32_t>(cached_tokens_));
    message->set_index(static_cast<uint32_t>(index));
  }
  template <typename Message>
  void AddLogprobs(const TokenEvent& token, Message* message) const {
    if (answer_logprobs_ < 0) return;
    AddToken(token, answer_logprobs_, Types::kAlwaysAlternatives,
             message->mutable_output_logprobs());
  }
  template <typename Message>
  void AddPrompt(Choice* choice, Message* message) const {
    if (prompt_logprobs_ < 0 || std::exchange(choice->has_prompt, true)) return;
    Types::AddPrompt(prompt_, prompt_logprobs_, message);
  }

  const bool streams_;
  const int answer_logprobs_, prompt_logprobs_;
  const int64_t prompt_tokens_;
  int64_t cached_tokens_ = 0;
  std::vector<StartedEvent::PromptToken> prompt_;
  std::vector<Choice> choices_;
};

class Mlx final : public GenerateForm {
 public:
  StatusOr<GenerateAsk> Read(grpc::ByteBuffer* message, Host& host,
                             const std::string& /*tenant*/) const override {
    mlx::grpc::engine::GenerateRequest request;
    WEFT_RETURN_IF_ERROR(ParseMessage(message, &request));
    GenerateAsk ask{.id = request.request_id(), .streams = request.stream()};
    WEFT_ASSIGN_OR_RETURN(ask.turn, TurnOptionsOf(request, host.defaults()));
    ask.answer_logprobs = ask.turn.top_logprobs;
    return ask;
  }
  std::unique_ptr<GenerateWriter> NewWriter(const GenerateAsk& ask, int n_choices,
                                            int64_t prompt_tokens) const override {
    return std::make_unique<WriterOf<MlxTypes>>(ask, n_choices, prompt_tokens);
  }
};

class Vllm final : public GenerateForm {
 public:
  StatusOr<GenerateAsk> Read(grpc::ByteBuffer* message, Host& host,
                             const std::string& tenant) const override {
    vllm::grpc::engine::GenerateRequest request;
    WEFT_RETURN_IF_ERROR(ParseMessage(message, &request));
    const auto& params = request.sampling_params();
    GenerateAsk ask{.id = request.request_id(), .streams = request.stream()};
    WEFT_ASSIGN_OR_RETURN(ask.turn,
                          TurnOptionsOf(request, host.model().context_tokens(), host.defaults()));
    if (params.has_logprobs()) ask.answer_logprobs = params.logprobs();
    if (params.has_prompt_logprobs()) ask.prompt_logprobs = params.prompt_logprobs();
    ask.make_mask = MaskMakerOf(params, host.model(), tenant);
    return ask;
  }
  std::unique_ptr<GenerateWriter> NewWriter(const GenerateAsk& ask, int n_choices,
                                            int64_t prompt_tokens) const override {
    return std::make_unique<WriterOf<VllmTypes>>(ask, n_choices, prompt_tokens);
  }
};

}  // namespace

const GenerateForm& MlxForm() {
  static const Mlx form;
  return form;
}

const GenerateForm& VllmForm() {
  static const Vllm form;
  return form;
}

}  // namespace weft::serve
