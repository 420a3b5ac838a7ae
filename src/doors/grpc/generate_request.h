// Conversions between the gRPC service's messages and the engine's options. Pure functions; any
// thread.
#ifndef WEFT_DOORS_GRPC_GENERATE_REQUEST_H_
#define WEFT_DOORS_GRPC_GENERATE_REQUEST_H_

#include "base/status.h"
#include "doors/host/host.h"
#include "mlx_engine.pb.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft::serve {

// INVALID_ARGUMENT names the field. The engine itself checks what only it knows (the vocabulary,
// the context, the ranges of penalties). Unset fields (0, for fields without presence) take the
// server's defaults, from flags and the model's authors, or else the protocol's: temperature 1,
// everything else off.
StatusOr<TurnOptions> TurnOptionsOf(const mlx::grpc::engine::GenerateRequest& request,
                                    const RequestDefaults& defaults);

// Adds the log-probabilities of one token.
void AddLogprobs(const TokenEvent& token, mlx::grpc::engine::OutputLogProbs* out);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GENERATE_REQUEST_H_
