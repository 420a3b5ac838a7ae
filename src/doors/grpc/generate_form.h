// The forms of Generate: the messages of each engine service. A call reads its request through one
// and writes the engine's events through it; nothing else of a request depends on the service.
#ifndef WEFT_DOORS_GRPC_GENERATE_FORM_H_
#define WEFT_DOORS_GRPC_GENERATE_FORM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft::serve {

struct GenerateAsk {
  std::string id = {};  // the client's
  TurnOptions turn = {};
  bool streams = false;
  // Alternatives per token of the answer and of the prompt; -1: no log-probabilities.
  int answer_logprobs = -1, prompt_logprobs = -1;
  // Makes the turn's token mask, which may take a while. Empty: there is none.
  std::function<StatusOr<TokenMaskFactory>()> make_mask = {};
};

// The messages of one request's answer. One task.
class GenerateWriter {
 public:
  virtual ~GenerateWriter() = default;

  virtual void Start(const StartedEvent& started) = 0;
  // Nothing if the answer is not streamed.
  virtual std::optional<grpc::ByteBuffer> Token(const TokenEvent& token) = 0;
  // Of a choice that has ended well.
  virtual grpc::ByteBuffer Done(const DoneEvent& done) = 0;
};

// A service's; any thread.
class GenerateForm {
 public:
  virtual ~GenerateForm() = default;

  // INVALID_ARGUMENT and UNIMPLEMENTED name the field. `tenant`: for whom constraints are cached.
  virtual StatusOr<GenerateAsk> Read(grpc::ByteBuffer* message, Host& host,
                                     const std::string& tenant) const = 0;
  // `ask` without its turn.
  virtual std::unique_ptr<GenerateWriter> NewWriter(const GenerateAsk& ask, int n_choices,
                                                    int64_t prompt_tokens) const = 0;
};

const GenerateForm& MlxForm();
const GenerateForm& VllmForm();

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GENERATE_FORM_H_
