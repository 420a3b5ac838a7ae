#include "compute/gpu/mixture_exchange.h"

#include <algorithm>
#include <variant>

#include "base/check.h"

namespace weft::gpu {

namespace {

constexpr int64_t kValueBytes = 4;

// Max experts per row of the mixtures that the host computes; 0: there are none.
int64_t MostUsedOnHost(const ModelSpec& spec) {
  int64_t most = 0;
  ForEachPath(spec, [&](const Path& path) {
    const auto* op = std::get_if<MixtureOfExperts>(&path.op);
    if (op != nullptr && !op->up) most = std::max<int64_t>(most, op->n_used);
  });
  return most;
}

}  // namespace

StatusOr<std::unique_ptr<MixtureExchange>> MixtureExchange::New(device::Device* device,
                                                                const ModelSpec& spec,
                                                                HostExperts* experts,
                                                                int64_t max_rows) {
  const int64_t n_used = MostUsedOnHost(spec);
  if (n_used == 0) return std::unique_ptr<MixtureExchange>();
  WEFT_CHECK(experts != nullptr, "somebody computes the experts that the weights lack");
  std::unique_ptr<MixtureExchange> exchange(new MixtureExchange(spec.d_model, experts));
  for (auto* rows : {&exchange->rows_, &exchange->given_}) {
    WEFT_ASSIGN_OR_RETURN(*rows, device->AllocatePinned(max_rows * spec.d_model * kValueBytes));
  }
  for (auto* pairs : {&exchange->choices_, &exchange->weights_}) {
    WEFT_ASSIGN_OR_RETURN(*pairs, device->AllocatePinned(max_rows * n_used * kValueBytes));
  }
  return exchange;
}

void MixtureExchange::EnqueueRoutes(const HostMixture& mixture, int64_t n_rows,
                                    device::Stream* stream) {
  const auto fetch = [&](device::Memory* to, const void* from, int64_t n_values) {
    stream->CopyToHost(to->data(), static_cast<const std::byte*>(from), n_values * kValueBytes);
  };
  WEFT_CHECK(mixture.x.stride == width_ && mixture.out.stride == width_, "rows lie side by side");
  fetch(rows_.get(), mixture.x.values, n_rows * width_);
  fetch(choices_.get(), mixture.experts, n_rows * mixture.n_used);
  fetch(weights_.get(), mixture.weights, n_rows * mixture.n_used);
}

Status MixtureExchange::Compute(const HostMixture& mixture, int64_t n_rows,
                                device::Stream* stream) {
  // After an error the routes may be garbage.
  WEFT_RETURN_IF_ERROR(stream->TakeError());
  const RoutedRows rows = {n_rows, rows_->As<float>(), choices_->As<int32_t>(),
                           weights_->As<float>()};
  WEFT_RETURN_IF_ERROR(experts_.Compute(mixture.number, rows, given_->As<float>()));
  stream->CopyToDevice(reinterpret_cast<std::byte*>(mixture.out.values), given_->data(),
                       n_rows * width_ * kValueBytes);
  return OkStatus();
}

}  // namespace weft::gpu
