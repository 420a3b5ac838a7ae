#include "tests/property/test_models.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/status.h"
#include "tests/support/goldens.h"
#include "tests/support/recurrent_backend.h"
#include "tools/make_adapter.h"
#include "tools/make_model.h"

namespace weft::testing {
namespace {

// Context of the loaded models: longer than any program's session, and than the direct
// tests' trunks.
constexpr int64_t kGoldenContext = 2048;

[[noreturn]] void Die(std::string_view what, const Status& status) {
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(what.size()), what.data(),
               status.ToString().c_str());
  std::abort();
}

std::string ShapeLike(std::string_view name) {
  if (name == "qwen3moe") return "tiny-moe";
  return name.starts_with("tiny-") ? std::string(name) : StrCat("tiny-", name);
}

const std::string& MadeModelPath(const std::string& shape_name) {
  static const TempDir* const dir = new TempDir();  // removed when the process exits
  static std::map<std::string, std::string>* const made = [] {
    std::atexit([] { delete dir; });
    return new std::map<std::string, std::string>();
  }();
  const auto [place, added] = made->try_emplace(shape_name);
  if (!added) return place->second;
  place->second = StrCat(dir->path(), "/", shape_name, ".gguf");
  const auto shape = tools::FindShape(shape_name);
  if (!shape.ok()) Die(shape_name, shape.status());
  const auto file = tools::MakeModel(*shape, {.type = "Q8_0"}, place->second);
  if (!file.ok()) Die(shape_name, file.status());
  return place->second;
}

std::vector<ModelOptions::AdapterFile> MakeAdapters(const std::string& base) {
  static const TempDir* const dir = new TempDir();  // removed when the process exits
  static int n_made = [] {
    std::atexit([] { delete dir; });
    return 0;
  }();
  std::vector<ModelOptions::AdapterFile> files;
  for (const char* const name : {"one", "two", "three"}) {
    const std::string path = StrCat(dir->path(), "/", n_made++, ".gguf");
    const bool is_first = files.empty();
    tools::MakeAdapterOptions options{
        .rank = is_first ? 3 : 16, .seed = files.size() + 1, .type = is_first ? "F32" : "F16"};
    if (files.size() == 2) options.invocation = {3, 4};
    const Status made = tools::MakeAdapter(base, options, path);
    if (!made.ok()) Die(path, made);
    files.push_back({name, path});
  }
  return files;
}

}  // namespace

TempDir::TempDir() {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path base =
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  path_ = (base / "weft-property-XXXXXX").string();
  WEFT_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary folder can be made");
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::shared_ptr<const Model> LoadTestModel(std::string_view name, const Backend* backend) {
  constexpr std::string_view kAdapted = "lora-";
  const bool is_adapted = name.starts_with(kAdapted);
  if (is_adapted) name.remove_prefix(kAdapted.size());
  if (constexpr std::string_view kRecurrent = "recurrent-"; name.starts_with(kRecurrent)) {
    static const RecurrentBackend recurrent(*FindBackend("cpu"));
    name.remove_prefix(kRecurrent.size());
    if (backend == nullptr) backend = &recurrent;
  }
  if (constexpr std::string_view kEmulated = "emu-"; name.starts_with(kEmulated)) {
    name.remove_prefix(kEmulated.size());
    if (backend == nullptr) backend = *FindBackend("emu");
  }
  const std::string goldens = GoldensDir();
  const bool golden = !name.starts_with("tiny-") && !goldens.empty();
  const std::string path =
      golden ? StrCat(goldens, "/models/", name, ".gguf") : MadeModelPath(ShapeLike(name));
  ModelOptions options;
  options.backend_object = backend;
  options.context_tokens = golden ? kGoldenContext : 0;
  if (is_adapted) options.adapters = MakeAdapters(path);
  auto model = Model::Load(path, options);
  if (!model.ok()) Die(path, model.status());
  return *std::move(model);
}

}  // namespace weft::testing
