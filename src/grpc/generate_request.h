// The gRPC service's messages and the engine's options, one made of the other. Pure
// functions; any thread.
#ifndef WEFT_GRPC_GENERATE_REQUEST_H_
#define WEFT_GRPC_GENERATE_REQUEST_H_

#include "base/status.h"
#include "host/host.h"
#include "mlx_engine.pb.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft::serve {

// INVALID_ARGUMENT names the field. What only the engine can know (the vocabulary, the
// context, the ranges of penalties) it checks itself.
// What a field leaves open (0, where it has no other way) is the server's, by flags and the model's
// makers, and where they say nothing the protocol's: temperature 1, everything else off.
StatusOr<TurnOptions> TurnOptionsOf(const mlx::grpc::engine::GenerateRequest& request,
                                    const RequestDefaults& defaults);

// Adds the log-probabilities of one token.
void AddLogprobs(const TokenEvent& token, mlx::grpc::engine::OutputLogProbs* out);

}  // namespace weft::serve

#endif  // WEFT_GRPC_GENERATE_REQUEST_H_
