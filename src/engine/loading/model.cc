#include "weft/model.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "compute/backend.h"
#include "compute/spec_tensors.h"
#include "compute/text_head.h"
#include "constraint/constraint_cache.h"
#include "engine/loading/computing.h"
#include "engine/loading/token_table_of.h"
#include "model/adapter_spec.h"
#include "model/formats/model_file.h"
#include "model/head_spec.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/options.h"
#include "xxhash.h"

namespace weft {

struct Model::Impl {
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const ModelFile> head_of;  // of a prediction head: its model's file
  std::shared_ptr<const Tokenizer> tokenizer;
  Computing computing;
  std::unique_ptr<constraint::ConstraintCache> constraints;
  std::unique_ptr<const TextHead> text_head;
  std::vector<LoadedAdapter> adapters;
  std::vector<std::shared_ptr<const ModelFile>> adapter_files;
  std::string name;
  std::string chat_template;
  int64_t context_tokens = 0;

  mutable std::once_flag fingerprint_once;
  mutable std::string fingerprint;
};

namespace {

std::unique_ptr<constraint::ConstraintCache> ConstraintsFor(
    std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_unique<constraint::ConstraintCache>(
      [tokenizer = std::move(tokenizer)] { return TokenTableOf(*tokenizer); });
}

std::string NameOfFile(const ModelFile& file) {
  const auto name = file.GetStringOr("general.name", "");
  if (name.ok() && !name->empty()) return std::string(*name);
  return std::filesystem::path(file.path()).stem().string();
}

// Feeds bytes to a 128-bit hash.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Hasher() { XXH3_freeState(state_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Add(const void* data, size_t n) { XXH3_128bits_update(state_, data, n); }
  void AddText(std::string_view text) {
    AddNumber(static_cast<uint64_t>(text.size()));
    Add(text.data(), text.size());
  }
  template <typename Number>
  void AddNumber(Number number) {
    Add(&number, sizeof(number));
  }
  void AddValue(const MetaValue& value) {
    AddNumber(static_cast<uint64_t>(value.index()));
    std::visit([this](const auto& v) { AddItem(v); }, value);
  }
  std::string Hex() const {
    static constexpr char kHex[] = "0123456789abcdef";
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    std::string text;
    for (const uint64_t half : {hash.high64, hash.low64}) {
      for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kHex[(half >> shift) & 15]);
    }
    return text;
  }

 private:
  template <typename Item>
  void AddItem(const Item& item) {
    if constexpr (std::is_same_v<Item, std::string_view>) {
      AddText(item);
    } else if constexpr (std::is_same_v<Item, MetaArray>) {
      AddNumber(static_cast<uint64_t>(item.size()));
      std::visit(
          [this](const auto& items) {
            using Element = typename std::decay_t<decltype(items)>::value_type;
            for (const auto& element : items) this->AddItem<Element>(element);
          },
          item.items);
    } else {
      AddNumber(item);
    }
  }

  XXH3_state_t* const state_;
};

// Applies ModelOptions::pooling.
Status SetPooling(const std::string& name, ModelSpec* spec) {
  if (name.empty()) return OkStatus();
  const std::optional<Pooling> pooling = FindPooling(name);
  if (!pooling) {
    return InvalidArgument("there is no pooling ", Printable(name),
                           "; there are mean, cls, last and none");
  }
  if (spec->text_vector && spec->text_vector->scores) {
    return InvalidArgument("the model gives scores of pairs of texts, which are not pooled as ",
                           name);
  }
  if (!spec->text_vector) spec->text_vector.emplace();
  spec->text_vector->pooling = *pooling;
  return OkStatus();
}

// Learned positions end.
Status CheckPositions(const ModelSpec& spec, int64_t context_tokens) {
  if (!spec.positions || context_tokens <= spec.context_tokens) return OkStatus();
  return InvalidArgument(
      "a context of ", context_tokens,
      " tokens is longer than the positions that the model has learned: ", spec.context_tokens);
}

// As long as a session's file allows.
constexpr size_t kMaxAdapterNameBytes = 128;

constexpr size_t kPieceBytes = size_t{16} << 20;

// Hashes everything that determines what the model computes: tensors, the metadata of architecture
// and tokenizer, and the context length, which chooses rope factors. Purely descriptive metadata
// (general.*: name, author, ...) is left out.
std::string ComputeFingerprint(const ModelFile& file, int64_t context_tokens) {
  Hasher hasher;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("general.") && key != "general.architecture") continue;
    hasher.AddText(key);
    hasher.AddValue(value);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    hasher.AddText(tensor.name);
    hasher.AddNumber(static_cast<uint32_t>(tensor.type));
    hasher.Add(tensor.dims, sizeof(tensor.dims));
    // In chunks, so that little of the file is in memory at once.
    for (auto rest = tensor.data; !rest.empty();) {
      const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
      hasher.Add(piece.data(), piece.size());
      file.Release(tensor, piece);
      rest = rest.subspan(piece.size());
    }
    file.Release(tensor, tensor.data);
  }
  hasher.AddNumber(context_tokens);
  // Files without one keep the fingerprint that they have always had.
  if (!file.spec_text().empty()) hasher.AddText(file.spec_text());
  return hasher.Hex();
}

// Opens the adapters that the options name, and checks that they fit the model. They are ordered by
// their contents: what several of them add is summed in this order.
StatusOr<std::vector<std::pair<LoadedAdapter, Adapter>>> OpenAdapters(const ModelOptions& options,
                                                                      const ModelFile& file,
                                                                      const ModelSpec& spec) {
  std::vector<std::pair<LoadedAdapter, Adapter>> adapters;
  std::set<std::string> names;
  for (const ModelOptions::AdapterFile& wanted : options.adapters) {
    if (wanted.name.empty() || wanted.name.size() > kMaxAdapterNameBytes) {
      return InvalidArgument("an adapter's name has 1 to ", kMaxAdapterNameBytes, " bytes, ",
                             Printable(wanted.name), " has ", wanted.name.size());
    }
    if (!names.insert(wanted.name).second) {
      return InvalidArgument("two adapters have the name ", Printable(wanted.name));
    }
    Adapter adapter;
    WEFT_ASSIGN_OR_RETURN(adapter.file, ModelFile::Open(wanted.path));
    WEFT_ASSIGN_OR_RETURN(adapter.spec, BuildAdapterSpec(*adapter.file, file, spec));
    LoadedAdapter info{wanted.name, wanted.path, ComputeFingerprint(*adapter.file, 0),
                       adapter.spec.invocation};
    adapters.emplace_back(std::move(info), std::move(adapter));
  }
  std::ranges::sort(adapters, {}, [](const auto& opened) {
    return std::pair(opened.first.fingerprint, opened.first.name);
  });
  return adapters;
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& path,
                                                         const ModelOptions& options) {
  WEFT_ASSIGN_OR_RETURN(auto file, ModelFile::Open(path));
  return FromFile(std::move(file), options);
}

absl::StatusOr<std::shared_ptr<const Model>> Model::FromFile(std::shared_ptr<const ModelFile> file,
                                                             const ModelOptions& options) {
  auto model = Build(file, options);
  // If the file changed meanwhile, that explains any other error.
  WEFT_RETURN_IF_ERROR(file->CheckUnchanged());
  return model;
}

absl::StatusOr<std::shared_ptr<const Model>> Model::Build(std::shared_ptr<const ModelFile> file,
                                                          const ModelOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->file = file;
  WEFT_RETURN_IF_ERROR(CheckBackend(options));
  if (options.context_tokens < 0) return InvalidArgument("the context length must be positive");
  SpecOptions spec_options;
  spec_options.context_tokens = options.context_tokens;
  // First, so that a file of an unknown architecture is refused for that reason.
  WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, spec_options));
  WEFT_ASSIGN_OR_RETURN(impl->tokenizer, Tokenizer::Load(*file));
  impl->constraints = ConstraintsFor(impl->tokenizer);
  if (impl->tokenizer->vocab_size() > spec.n_vocab) {
    return InvalidArgument(file->path(), ": the tokenizer has ", impl->tokenizer->vocab_size(),
                           " tokens, but the embedding has rows for ", spec.n_vocab);
  }
  WEFT_RETURN_IF_ERROR(SetPooling(options.pooling, &spec));
  WEFT_RETURN_IF_ERROR(CheckPositions(spec, options.context_tokens));
  if (spec.text_vector) {
    WEFT_ASSIGN_OR_RETURN(impl->text_head, TextHead::Load(*file, spec));
  }
  impl->context_tokens = options.context_tokens > 0 ? options.context_tokens : spec.context_tokens;
  impl->name = NameOfFile(*file);
  WEFT_ASSIGN_OR_RETURN(const std::string_view chat_template,
                        file->GetStringOr("tokenizer.chat_template", ""));
  impl->chat_template = std::string(chat_template);
  WEFT_ASSIGN_OR_RETURN(const auto opened, OpenAdapters(options, *file, spec));
  std::vector<Adapter> adapters;
  for (const auto& [info, adapter] : opened) {
    impl->adapters.push_back(info);
    impl->adapter_files.push_back(adapter.file);
    adapters.push_back(adapter);
  }
  WEFT_ASSIGN_OR_RETURN(impl->computing,
                        LoadForComputing(file, spec, options, std::move(adapters)));
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const Model>> Model::LoadHead(const Model& model,
                                                             const ModelOptions& options) {
  const ModelSpec& spec = model.spec();
  if (spec.prediction_head == nullptr) {
    const std::string& why = spec.no_prediction_head;
    return NotFound(model.name(), " has no prediction head", why.empty() ? "" : ": ", why);
  }
  return BuildHead(model, model.impl_->file, *spec.prediction_head, options);
}

absl::StatusOr<std::shared_ptr<const Model>> Model::LoadHead(const Model& model,
                                                             std::shared_ptr<const ModelFile> head,
                                                             const ModelOptions& options) {
  auto spec = BuildHeadSpec(*head, model.spec());
  WEFT_RETURN_IF_ERROR(head->CheckUnchanged());
  WEFT_RETURN_IF_ERROR(spec.status());
  return BuildHead(model, std::move(head), *std::move(spec), options);
}

absl::StatusOr<std::shared_ptr<const Model>> Model::BuildHead(const Model& model,
                                                              std::shared_ptr<const ModelFile> file,
                                                              const ModelSpec& spec,
                                                              const ModelOptions& options) {
  const Model::Impl& of = *model.impl_;
  auto impl = std::make_unique<Impl>();
  impl->file = std::move(file);
  impl->head_of = of.file;
  impl->tokenizer = of.tokenizer;
  impl->computing = {.backend = of.computing.backend,
                     .leaves_experts = of.computing.leaves_experts,
                     .divided = of.computing.divided};
  impl->constraints = ConstraintsFor(of.tokenizer);
  impl->name = impl->file == of.file ? of.name : NameOfFile(*impl->file);
  impl->context_tokens = of.context_tokens;
  LoadOptions load;
  load.device = of.computing.weights->device();
  load.n_threads = options.n_threads;
  load.beside = of.computing.weights;
  load.beside_is_same_file = impl->file == of.file;
  WEFT_ASSIGN_OR_RETURN(impl->computing.weights,
                        of.computing.backend->Load(impl->file, spec, load));
  WEFT_RETURN_IF_ERROR(impl->file->CheckUnchanged());
  return std::shared_ptr<const Model>(new Model(std::move(impl)));
}

const std::string& Model::path() const { return impl_->file->path(); }
const std::string& Model::name() const { return impl_->name; }
int64_t Model::n_vocab() const { return spec().n_vocab; }
int64_t Model::context_tokens() const { return impl_->context_tokens; }
const std::vector<LoadedAdapter>& Model::adapters() const { return impl_->adapters; }
int64_t Model::weight_bytes() const { return impl_->computing.weights->memory_bytes(); }
std::string_view Model::backend_name() const { return impl_->computing.backend->name(); }
const std::string& Model::computing_choice() const { return impl_->computing.choice; }
const std::string& Model::loading() const { return impl_->computing.loading; }
bool Model::same_bits() const { return impl_->computing.backend->capabilities().same_bits; }
absl::Status Model::CheckFile() const {
  WEFT_RETURN_IF_ERROR(impl_->file->CheckUnchanged());
  for (const auto& adapter : impl_->adapter_files) WEFT_RETURN_IF_ERROR(adapter->CheckUnchanged());
  return impl_->computing.weights->CheckUnchanged();
}

ModelUses Model::uses() const {
  const ModelSpec& spec = this->spec();
  const bool scores = spec.text_vector && spec.text_vector->scores;
  // A head for scores replaces the one for text.
  return {.text = static_cast<bool>(spec.output) && !scores,
          .vectors = spec.text_vector && !scores,
          .scores = scores};
}

std::string_view Model::pooling() const {
  return impl_->text_head != nullptr ? NameOf(impl_->text_head->pooling()) : "";
}

int64_t Model::vector_width() const {
  return impl_->text_head != nullptr ? impl_->text_head->width() : 0;
}

absl::Status Model::CheckTakesRows() const {
  if (!impl_->computing.backend->capabilities().rows) {
    return Unimplemented("the ", impl_->computing.backend->name(),
                         " backend takes no input embeddings");
  }
  return weft::CheckTakesRows(spec());
}

absl::Status Model::CheckTakesForm(const RowForm& form) const {
  WEFT_RETURN_IF_ERROR(CheckTakesRows());
  const BackendCapabilities& can = impl_->computing.backend->capabilities();
  if ((form.mutual && !can.mutual) || (form.grid_rows > 0 && HasAxes(spec()) && !can.row_input)) {
    return Unimplemented("the ", impl_->computing.backend->name(),
                         " backend computes no pictures of this model; the cpu backend does");
  }
  if (form.mutual && !AttendsPlainly(spec())) {
    return Unimplemented(spec().architecture,
                         " cannot be computed with tokens that see later ones, as this picture's "
                         "do");
  }
  return OkStatus();
}

int64_t Model::row_width() const { return RowWidth(spec()); }

int64_t Model::embedding_width() const { return spec().d_model; }

absl::StatusOr<std::vector<float>> Model::RowsOf(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= n_vocab()) {
      return InvalidArgument("token ", token, " is outside the vocabulary of ", n_vocab());
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<float> embeddings,
                        ReadTableRows(*impl_->file, spec().embedding, tokens));
  return RowsOfEmbeddings(std::move(embeddings));
}

std::vector<float> Model::RowsOfEmbeddings(std::vector<float> embeddings) const {
  const auto from = static_cast<size_t>(embedding_width()), to = static_cast<size_t>(row_width());
  if (from == to) return embeddings;
  std::vector<float> rows(embeddings.size() / from * to);
  for (size_t i = 0; i < embeddings.size() / from; ++i) {
    std::copy_n(embeddings.data() + i * from, from, rows.data() + i * to);
  }
  return rows;
}

std::string Model::purpose() const { return PurposeOf(spec()); }

const std::string& Model::fingerprint() const {
  std::call_once(impl_->fingerprint_once, [this] {
    impl_->fingerprint = ComputeFingerprint(*impl_->file, impl_->context_tokens);
  });
  return impl_->fingerprint;
}

std::vector<int32_t> Model::Encode(std::string_view text, bool add_special,
                                   bool parse_special) const {
  return impl_->tokenizer->Encode(text,
                                  {.add_special = add_special, .parse_special = parse_special});
}

std::string Model::Decode(std::span<const int32_t> tokens, bool render_special) const {
  return impl_->tokenizer->Decode(tokens, render_special);
}

std::string_view Model::chat_template() const { return impl_->chat_template; }
bool Model::IsHeadOf(const Model& model) const { return impl_->head_of == model.impl_->file; }
const ModelFile& Model::file() const { return *impl_->file; }
const std::shared_ptr<const Tokenizer>& Model::tokenizer() const { return impl_->tokenizer; }
const ModelSpec& Model::spec() const { return impl_->computing.weights->spec(); }
const Backend& Model::backend() const { return *impl_->computing.backend; }
const std::shared_ptr<const Weights>& Model::weights() const { return impl_->computing.weights; }
const TextHead* Model::text_head() const { return impl_->text_head.get(); }
constraint::ConstraintCache& Model::constraints() const { return *impl_->constraints; }

}  // namespace weft
