#include "model/adapter_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
constexpr std::string_view kInvocation = "adapter.alora.invocation_tokens";
constexpr int64_t kMaxInvocation = 1024;
constexpr std::string_view kEmbedding = "token_embd.weight";

// Collects the tensors that operations multiply rows with.
class MatrixFinder : public OperationVisitor {
 public:
  void Tensor(const auto& part, const Shape&) { Add(part); }
  void Add(const auto& part) {
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Linear>) {
      if (part) matrices_.insert(part.weight.index);
    } else if constexpr (std::is_same_v<std::decay_t<decltype(part)>, StackedLinear>) {
      if (part) stacks_.insert(part.weight.index);
    }
  }
  bool IsMatrix(int index) const { return matrices_.contains(index); }
  bool IsStack(int index) const { return stacks_.contains(index); }
  const std::set<int>& matrices() const { return matrices_; }

 private:
  std::set<int> matrices_, stacks_;
};

MatrixFinder MatricesOf(const ModelSpec& spec) {
  MatrixFinder finder;
  VisitOperations(spec, finder);
  finder.Add(spec.output);
  if (spec.per_layer_input) finder.Add(spec.per_layer_input->proj);
  return finder;
}

bool IsFlat(const TensorInfo& tensor) { return tensor.dims[2] == 1 && tensor.dims[3] == 1; }

std::string DimsOf(const TensorInfo& tensor) {
  return StrCat("(", tensor.dims[0], ", ", tensor.dims[1], ")");
}

// Reads one adapter; a temporary.
class AdapterReader {
 public:
  AdapterReader(const ModelFile& file, const ModelFile& base, const ModelSpec& spec)
      : file_(file), base_(base), spec_(spec), matrices_(MatricesOf(spec)) {}

  StatusOr<AdapterSpec> Read();

 private:
  struct Halves {
    TensorRef a, b;
  };

  Status CheckKind() const;
  Status ReadInvocation(std::vector<TokenId>* invocation) const;
  Status CheckBase() const;
  Status ReadAlpha();
  Status CollectPairs();
  StatusOr<LowRankPair> MakePair(const std::string& name, const Halves& halves) const;
  Status CheckTarget(const std::string& name, int target) const;
  Status CheckShapes(const std::string& name, const TensorInfo& target, const Halves& halves) const;

  const TensorInfo& Info(TensorRef ref) const {
    return file_.tensors()[static_cast<size_t>(ref.index)];
  }

  const ModelFile& file_;
  const ModelFile& base_;
  const ModelSpec& spec_;
  const MatrixFinder matrices_;
  double alpha_ = 0;
  std::map<std::string, Halves> pairs_;  // by the target's name
};

Status AdapterReader::CheckKind() const {
  WEFT_ASSIGN_OR_RETURN(const std::string_view type, file_.GetStringOr("general.type", "model"));
  if (type != "adapter") {
    return file_.KeyError("general.type",
                          StrCat("it is ", Printable(type),
                                 ", not adapter: give a LoRA adapter in GGUF form, as llama.cpp's "
                                 "convert_lora_to_gguf.py writes it"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string_view kind, file_.GetString("adapter.type"));
  if (kind != "lora") {
    return file_.KeyError(
        "adapter.type", StrCat("it is ", Printable(kind), ", and only lora adapters can be used"));
  }
  return OkStatus();
}

Status AdapterReader::ReadInvocation(std::vector<TokenId>* invocation) const {
  if (!file_.HasMeta(kInvocation)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, file_.GetIntArray(kInvocation));
  if (tokens.empty() || std::ssize(tokens) > kMaxInvocation) {
    return file_.KeyError(kInvocation, StrCat("it has ", tokens.size(), " tokens, not 1 to ",
                                              kMaxInvocation, "; convert the adapter anew"));
  }
  for (const int64_t token : tokens) {
    if (token < 0 || token >= spec_.n_vocab) {
      return file_.KeyError(
          kInvocation, StrCat("the model ", Printable(base_.path(), 300), " has no token ", token,
                              "; use the model that it was trained for"));
    }
    invocation->push_back(static_cast<TokenId>(token));
  }
  // Every token of such a text sees those that come later.
  if (!NeedsWholeTexts(spec_)) return OkStatus();
  return Unimplemented(Message(file_.KeyError(
      kInvocation,
      "the model reads a text as a whole, so nothing of it comes before; use an adapter without "
      "invocation tokens")));
}

Status AdapterReader::CheckBase() const {
  if (base_.version() == 0) {
    return Unimplemented(Printable(base_.path(), 300),
                         ": adapters in GGUF form belong to models in GGUF form, whose rows may "
                         "have another order than those of a folder; convert the model to GGUF");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string_view architecture,
                        file_.GetString("general.architecture"));
  if (architecture == spec_.architecture) return OkStatus();
  return file_.KeyError("general.architecture",
                        StrCat("it is an adapter for ", Printable(architecture), ", and the model ",
                               Printable(base_.path(), 300), " is ", spec_.architecture,
                               "; use the model that it was trained for"));
}

Status AdapterReader::ReadAlpha() {
  constexpr std::string_view kAlpha = "adapter.lora.alpha";
  WEFT_ASSIGN_OR_RETURN(alpha_, file_.GetFloatOr(kAlpha, 0));
  if (std::isfinite(alpha_) && std::abs(alpha_) <= 1e6) return OkStatus();
  return file_.KeyError(kAlpha, StrCat("it is ", alpha_, ", which is no strength"));
}

Status AdapterReader::CollectPairs() {
  for (int i = 0; i < static_cast<int>(file_.tensors().size()); ++i) {
    const std::string_view name = file_.tensors()[static_cast<size_t>(i)].name;
    const bool is_a = name.ends_with(kA);
    if (!is_a && !name.ends_with(kB)) {
      return file_.TensorError(name,
                               "it is no part of a low-rank pair, whose names end in .lora_a and "
                               ".lora_b; adapters that replace tensors cannot be used, train one "
                               "without modules_to_save");
    }
    Halves& halves = pairs_[std::string(name.substr(0, name.size() - kA.size()))];
    (is_a ? halves.a : halves.b) = {i};
  }
  if (!pairs_.empty()) return OkStatus();
  return InvalidArgument(Printable(file_.path(), 300), ": the adapter has no tensors");
}

Status AdapterReader::CheckTarget(const std::string& name, int target) const {
  if (target < 0) {
    return file_.TensorError(name, StrCat("the model ", Printable(base_.path(), 300),
                                          " has no tensor of that name; use the model that the "
                                          "adapter was trained for"));
  }
  if (matrices_.IsMatrix(target)) return OkStatus();
  if (matrices_.IsStack(target)) {
    return Unimplemented(Message(file_.TensorError(
        name,
        "it changes experts or heads, which are many matrices in one tensor; use an adapter "
        "that leaves them as they are")));
  }
  return Unimplemented(Message(file_.TensorError(
      name,
      "the model multiplies no rows with this tensor; use an adapter that leaves it as it is")));
}

Status AdapterReader::CheckShapes(const std::string& name, const TensorInfo& target,
                                  const Halves& halves) const {
  const TensorInfo &a = Info(halves.a), &b = Info(halves.b);
  const bool is_table = name == kEmbedding;
  const int64_t rank = is_table ? a.dims[0] : a.dims[1];
  const bool fits = IsFlat(a) && IsFlat(b) && IsFlat(target) && b.dims[0] == rank &&
                    (is_table ? a.dims[1] == target.dims[1] && b.dims[1] == target.dims[0]
                              : a.dims[0] == target.dims[0] && b.dims[1] == target.dims[1]);
  if (fits) return OkStatus();
  return file_.TensorError(
      name, StrCat("a pair of ", DimsOf(a), " and ", DimsOf(b), " does not fit the model's ",
                   DimsOf(target), "; use the model that the adapter was trained for"));
}

StatusOr<LowRankPair> AdapterReader::MakePair(const std::string& name, const Halves& halves) const {
  if (!halves.a || !halves.b) {
    return file_.TensorError(
        name, StrCat("the pair lacks its ", halves.a ? kB : kA, "; convert the adapter anew"));
  }
  const int target = base_.FindTensor(name);
  const bool is_table = name == kEmbedding && target >= 0 && target == spec_.embedding.index;
  if (!is_table) WEFT_RETURN_IF_ERROR(CheckTarget(name, target));
  WEFT_RETURN_IF_ERROR(CheckShapes(name, base_.tensors()[static_cast<size_t>(target)], halves));
  LowRankPair pair;
  pair.target = {target};
  pair.a = halves.a;
  pair.b = halves.b;
  pair.rank = Info(halves.b).dims[0];
  // Files without alpha take the products as they are.
  if (alpha_ != 0) pair.factor = static_cast<float>(alpha_ / static_cast<double>(pair.rank));
  return pair;
}

StatusOr<AdapterSpec> AdapterReader::Read() {
  WEFT_RETURN_IF_ERROR(CheckKind());
  WEFT_RETURN_IF_ERROR(CheckBase());
  WEFT_RETURN_IF_ERROR(ReadAlpha());
  WEFT_RETURN_IF_ERROR(CollectPairs());
  AdapterSpec adapter;
  WEFT_RETURN_IF_ERROR(ReadInvocation(&adapter.invocation));
  for (const auto& [name, halves] : pairs_) {
    WEFT_ASSIGN_OR_RETURN(const LowRankPair pair, MakePair(name, halves));
    if (name == kEmbedding) {
      adapter.embedding = pair;
    } else {
      adapter.matrices.push_back(pair);
    }
  }
  const auto index = [](const LowRankPair& pair) { return pair.target.index; };
  std::ranges::sort(adapter.matrices, {}, index);
  return adapter;
}

}  // namespace

const LowRankPair* AdapterSpec::Find(TensorRef target) const {
  const auto index = [](const LowRankPair& pair) { return pair.target.index; };
  const auto found = std::ranges::lower_bound(matrices, target.index, {}, index);
  return found != matrices.end() && found->target == target ? &*found : nullptr;
}

std::vector<TensorRef> AdaptableMatrices(const ModelSpec& spec) {
  std::vector<TensorRef> refs;
  const MatrixFinder finder = MatricesOf(spec);
  for (const int index : finder.matrices()) refs.push_back({index});
  return refs;
}

StatusOr<AdapterSpec> BuildAdapterSpec(const ModelFile& file, const ModelFile& base,
                                       const ModelSpec& spec) {
  return AdapterReader(file, base, spec).Read();
}

}  // namespace weft
