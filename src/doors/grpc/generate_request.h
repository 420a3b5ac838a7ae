// Conversions from the gRPC services' messages to the engine's options. Pure functions; any thread.
#ifndef WEFT_DOORS_GRPC_GENERATE_REQUEST_H_
#define WEFT_DOORS_GRPC_GENERATE_REQUEST_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "doors/host/host.h"
#include "mlx_engine.pb.h"
#include "vllm_engine.pb.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

// INVALID_ARGUMENT names the field of ids that are no tokens.
StatusOr<std::vector<int32_t>> TokensOf(const google::protobuf::RepeatedField<uint32_t>& ids,
                                        std::string_view field);

// INVALID_ARGUMENT names the field. The engine itself checks what only it knows (the vocabulary,
// the context, the ranges of penalties). Unset fields (0, for fields without presence) take the
// server's defaults, from flags and the model's authors, or else the protocol's: temperature 1,
// everything else off.
StatusOr<TurnOptions> TurnOptionsOf(const mlx::grpc::engine::GenerateRequest& request,
                                    const RequestDefaults& defaults);
// UNIMPLEMENTED names what this service does not offer. Without the constraint.
StatusOr<TurnOptions> TurnOptionsOf(const vllm::grpc::engine::GenerateRequest& request,
                                    int64_t context_tokens, const RequestDefaults& defaults);

// What makes the mask of the request's constraint, kept for the tenant; empty if it has none. The
// model outlives the result.
std::function<StatusOr<TokenMaskFactory>()> MaskMakerOf(
    const vllm::grpc::engine::SamplingParams& params, const Model& model,
    const std::string& tenant);

}  // namespace weft::serve

#endif  // WEFT_DOORS_GRPC_GENERATE_REQUEST_H_
