#include "doors/grpc/engine_info.h"

#include <algorithm>

#include "base/clock.h"
#include "doors/host/model_host.h"
#include "engine/kv_type.h"
#include "json/json_text.h"
#include "model/hugging_face_names.h"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

// The fields that both services have under the same names.
template <typename Response>
void FillModel(const Host& host, Response* response) {
  const Model& model = host.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  const HuggingFaceNames names = HuggingFaceNamesOf(model.file());
  const auto id_or_zero = [](TokenId id) { return std::max(id, 0); };
  response->set_model_path(ModelFileName(model));
  response->set_max_context_length(static_cast<uint32_t>(model.context_tokens()));
  response->set_vocab_size(static_cast<uint32_t>(model.n_vocab()));
  response->set_served_model_name(ServedName(host.model_id()));
  response->set_model_type(std::string(names.model_type));
  response->add_architectures(std::string(names.class_name));
  for (const TokenId id : tokenizer.EndsOfGeneration()) response->add_eos_token_ids(id_or_zero(id));
  response->set_pad_token_id(id_or_zero(tokenizer.padding()));
  response->set_bos_token_id(id_or_zero(tokenizer.bos()));
  // A prompt must leave room for one token.
  response->set_max_req_input_len(static_cast<int32_t>(model.context_tokens() - 1));
}

// What the operator and the model's authors advise.
std::string AdviceJson(const SamplingAdvice& advice) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const SamplingParameter& parameter : SamplingParameters()) {
    const auto& value = advice.*parameter.advice;
    if (!value.has_value()) continue;
    const auto name = parameter.other_name.empty() ? parameter.name : parameter.other_name;
    auto& number = json[std::string(name)];
    number = *value;
    if (parameter.is_whole()) number = number.get<int64_t>();
  }
  return CompactJson(json);
}

}  // namespace

std::string ServedName(std::string_view model_id) {
  std::string name;
  for (const char c : model_id) {
    if (c != ' ') {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name;
}

void Fill(const Host& host, mlx::grpc::engine::GetModelInfoResponse* response) {
  FillModel(host, response);
  response->set_is_generation(true);
}

void Fill(const Host& host, vllm::grpc::engine::GetModelInfoResponse* response) {
  FillModel(host, response);
  response->set_is_generation(host.model().uses().text);
  response->set_default_sampling_params_json(AdviceJson(host.defaults().advice));
}

void Fill(const Host& /*host*/, const Serving& serving,
          mlx::grpc::engine::GetServerInfoResponse* response) {
  response->set_server_type("mlx-grpc");
  response->set_active_requests(static_cast<uint32_t>(serving.active_requests));
  response->set_uptime_seconds(serving.uptime_s);
}

void Fill(const Host& host, const Serving& serving,
          vllm::grpc::engine::GetServerInfoResponse* response) {
  const EngineOptions& options = host.engine().options();
  response->set_server_type("vllm-grpc");
  response->set_active_requests(static_cast<uint32_t>(serving.active_requests));
  response->set_uptime_seconds(serving.uptime_s);
  response->set_last_receive_timestamp(static_cast<double>(WallClockMicros()) * 1e-6);
  response->set_is_paused(host.drain_switch()->is_on());
  response->set_data_parallel_size(1);
  response->set_kv_cache_dtype(KvNameOf(options));
  response->set_block_size(static_cast<int32_t>(host.engine().Stats().page_tokens));
  response->set_max_num_seqs(options.max_running);
  response->set_constrained_decoding_start("first_token");
}

}  // namespace weft::serve
