#include "compute/split/split_spec.h"

#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "base/check.h"

namespace weft::split {

namespace {

// Collects the state that a part's layers use.
struct StateUses : OperationVisitor {
  void Kv(const KvUse& use) { kv_layers.insert(use.layer); }
  void Slot(const SlotUse& use) { slots.insert(use.slot); }
  std::set<int> kv_layers, slots;
};

// New consecutive numbers for the kept ones of [0, n); -1 for the others.
std::vector<int> NumbersOf(const std::set<int>& kept, size_t n) {
  std::vector<int> numbers(n, -1);
  int next = 0;
  for (const int index : kept) numbers[static_cast<size_t>(index)] = next++;
  return numbers;
}

int NewNumber(const std::vector<int>& numbers, int index) {
  return index < 0 ? index : numbers[static_cast<size_t>(index)];
}

Status CheckCanBeSplit(const ModelSpec& spec) {
  const auto refuse = [&](std::string_view why) {
    return Unimplemented(spec.architecture, " cannot be computed by two backends: ", why);
  };
  if (spec.hidden_input) return refuse("it is a prediction head");
  if (spec.per_layer_input) return refuse("every layer takes more of a token than the one before");
  if (spec.n_side_streams > 0) return refuse("it has several streams");
  if (SharesFirstValues(spec)) return refuse("every layer reads the first one's values");
  if (ChoosesKeys(spec)) return refuse("layers attend to keys that earlier ones chose");
  if (NeedsWholeTexts(spec)) return refuse("it is an encoder");
  return OkStatus();
}

// Keeps layers [first, last) and their state.
SpecPart PartOf(const ModelSpec& spec, size_t first, size_t last) {
  SpecPart part{.spec = spec, .groups = std::vector<int>(spec.kv_groups.size(), -1)};
  ModelSpec& cut = part.spec;
  cut.layers = {spec.layers.begin() + static_cast<ptrdiff_t>(first),
                spec.layers.begin() + static_cast<ptrdiff_t>(last)};
  cut.text_vector.reset();
  cut.prediction_head = nullptr;
  StateUses uses;
  VisitOperations(cut, uses);
  const std::vector<int> kv = NumbersOf(uses.kv_layers, spec.kv_layers.size());
  const std::vector<int> slots = NumbersOf(uses.slots, spec.slots.size());

  cut.kv_groups.clear();
  cut.kv_layers.clear();
  cut.slots.clear();
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    KvGroup group{.window = spec.kv_groups[g].window, .kv_layers = {}};
    for (const int layer : spec.kv_groups[g].kv_layers) {
      const int number = kv[static_cast<size_t>(layer)];
      if (number >= 0) group.kv_layers.push_back(number);
    }
    if (group.kv_layers.empty()) continue;
    part.groups[g] = static_cast<int>(cut.kv_groups.size());
    cut.kv_groups.push_back(std::move(group));
  }
  for (const int index : uses.kv_layers) {
    KvLayer layer = spec.kv_layers[static_cast<size_t>(index)];
    layer.group = part.groups[static_cast<size_t>(layer.group)];
    cut.kv_layers.push_back(layer);
  }
  for (const int index : uses.slots) cut.slots.push_back(spec.slots[static_cast<size_t>(index)]);

  const auto renumber = [&](auto& op) {
    if constexpr (requires { op.kv_layer; }) op.kv_layer = NewNumber(kv, op.kv_layer);
    if constexpr (requires { op.slot; }) op.slot = NewNumber(slots, op.slot);
    if constexpr (requires { op.convolution; }) {
      op.convolution.slot = NewNumber(slots, op.convolution.slot);
    }
    if constexpr (requires { op.q_convolution; }) {
      for (Convolution* part : {&op.q_convolution, &op.k_convolution, &op.v_convolution}) {
        part->slot = NewNumber(slots, part->slot);
      }
    }
  };
  for (Layer& layer : cut.layers) {
    for (Block& block : layer.blocks) {
      for (Path& path : block.paths) std::visit(renumber, path.op);
    }
  }
  return part;
}

std::set<int> KvLayersOf(const ModelSpec& spec, size_t first, size_t last) {
  StateUses uses;
  ModelSpec layers;
  layers.d_model = spec.d_model;
  layers.layers = {spec.layers.begin() + static_cast<ptrdiff_t>(first),
                   spec.layers.begin() + static_cast<ptrdiff_t>(last)};
  VisitOperations(layers, uses);
  return uses.kv_layers;
}

}  // namespace

StatusOr<SplitSpec> Split(const ModelSpec& spec, int n_front) {
  const auto cut = static_cast<size_t>(n_front), end = spec.layers.size();
  WEFT_CHECK(n_front >= 1 && cut < end, "each part has a layer");
  WEFT_RETURN_IF_ERROR(CheckCanBeSplit(spec));
  const std::set<int> before = KvLayersOf(spec, 0, cut);
  for (const int layer : KvLayersOf(spec, cut, end)) {
    if (!before.contains(layer)) continue;
    return Unimplemented(spec.architecture, " cannot be cut after layer ", n_front,
                         ": later layers read keys and values of earlier ones");
  }

  SplitSpec split{.front = PartOf(spec, 0, cut), .back = PartOf(spec, cut, end)};
  ModelSpec& front = split.front.spec;
  front.output_norm = {};
  front.output = {};
  front.logit_scale = 1;
  front.logit_softcap = 0;

  ModelSpec& back = split.back.spec;
  back.embedding_scale = 1;
  back.positions = {};
  back.token_types = {};
  back.input_norm = {};
  // The back takes no tokens, so nobody reads its table. Naming the output's matrix costs no
  // memory.
  const bool is_table =
      back.output && back.output.first_row == 0 && back.output.n_out == spec.n_vocab;
  if (is_table) back.embedding = back.output.weight;
  return split;
}

}  // namespace weft::split
