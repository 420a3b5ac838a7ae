#include "compute/split/expert_spec.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

namespace weft::split {

ExpertSplit SplitExperts(const ModelSpec& spec, int n_layers) {
  ExpertSplit parts{.device = spec, .host = {}};
  ModelSpec &device = parts.device, &host = parts.host;
  device.prediction_head = nullptr;
  host.architecture = spec.architecture;
  host.n_vocab = spec.n_vocab;
  host.d_model = spec.d_model;
  host.embedding = spec.embedding;  // never read
  const size_t n = std::min(static_cast<size_t>(n_layers), device.layers.size());
  for (size_t i = 0; i < n; ++i) {
    Layer experts;
    for (Block& block : device.layers[i].blocks) {
      for (Path& path : block.paths) {
        auto* const op = std::get_if<MixtureOfExperts>(&path.op);
        if (op == nullptr) continue;
        MixtureOfExperts theirs = *op;
        theirs.router = {};
        theirs.router_norm = {};
        theirs.selection_bias = {};
        op->gate = op->up = op->down = {};
        Block alone;
        alone.paths.push_back(Path{.pre = {}, .op = std::move(theirs), .post = {}});
        experts.blocks.push_back(std::move(alone));
      }
    }
    if (!experts.blocks.empty()) host.layers.push_back(std::move(experts));
  }
  return parts;
}

int LayersWithExperts(const ModelSpec& spec, int n_layers) {
  int n = std::min(n_layers, static_cast<int>(spec.layers.size()));
  const auto has_mixture = [&](int i) {
    return std::ranges::any_of(spec.layers[static_cast<size_t>(i)].blocks, [](const Block& block) {
      return std::ranges::any_of(block.paths, [](const Path& path) {
        return std::holds_alternative<MixtureOfExperts>(path.op);
      });
    });
  };
  while (n > 0 && !has_mixture(n - 1)) --n;
  return n;
}

}  // namespace weft::split
