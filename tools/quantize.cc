// weft-quantize: the command line of quantize_model.h.

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tools/quantize_model.h"
#include "tools/quantize_plan.h"

namespace {

constexpr char kAbout[] =
    "Converts a GGUF model to one that stores its matrices in fewer bits: smaller, faster, a\n"
    "little less exact. Vectors, norms, routers and small matrices stay float.";

// The names of all types, in lines of at most 90 characters.
std::string TypeLines() {
  std::string lines = "Types: " + weft::tools::QuantizeTypeNames();
  constexpr size_t kWidth = 90;
  for (size_t begin = 0; lines.size() - begin > kWidth;) {
    const size_t space = lines.rfind(' ', begin + kWidth);
    if (space == std::string::npos || space <= begin) break;
    lines[space] = '\n';
    begin = space + 1;
  }
  return lines;
}

std::string Footer() {
  return TypeLines() +
         R"(

  Q8_0     8.5 bits per weight; hard to tell from the original
  Q6_K     6.6 bits; very close to it
  Q5_K_M   5 to 6.6 bits; Q5_K_S: fewer
  Q4_K_M   4.5 to 6.6 bits: more for the matrices that need them; the usual choice
  IQ4_XS   4.25 bits
  Q4_0     4.5 bits; the simplest blocks, a little less exact than Q4_K_M
  IQ3_M, Q3_K_M, IQ3_XXS, IQ2_M, IQ2_XXS, ...   for models that would not fit otherwise
  TQ1_0, TQ2_0, Q1_0   for models that were trained with two or three values of weights

The mixes are llama.cpp's: _S, _M and _L say how many matrices get more bits. Below four bits,
give an importance matrix (--imatrix), made once per model: see weft imatrix --help.

Start from a file in F32, F16 or BF16 where there is one: converting what has been
converted before adds the errors of both.

Examples:
  weft-quantize model-f16.gguf model-q4_k_m.gguf
  weft-quantize --type Q8_0 model-bf16.gguf model-q8_0.gguf
  weft-quantize --type Q4_0 --pure model-f16.gguf model-q4_0.gguf
  weft imatrix -m model-f16.gguf -f notes.txt -o imatrix.gguf
  weft-quantize --type IQ3_M --imatrix imatrix.gguf model-f16.gguf model-iq3_m.gguf
)";
}

void ShowProgress(uint64_t done, uint64_t total) {
  std::fprintf(stderr, "\r%.1f of %.1f million weights (%.0f %%) ",
               static_cast<double>(done) * 1e-6, static_cast<double>(total) * 1e-6,
               100.0 * static_cast<double>(done) / static_cast<double>(total));
}

void PrintSummary(const weft::tools::QuantizedModel& made, const std::string& out) {
  std::fprintf(stderr, "wrote %s: %s of weights from %s, %.2f bits per weight;", out.c_str(),
               weft::HumanBytes(made.bytes).c_str(), weft::HumanBytes(made.source_bytes).c_str(),
               8.0 * static_cast<double>(made.bytes) / static_cast<double>(made.values));
  for (const auto& [type, count] : made.tensors_of_type) {
    std::fprintf(stderr, " %d %s", count, std::string(type).c_str());
  }
  if (made.known_tensors > 0)
    std::fprintf(stderr, "; %d weighed by importance", made.known_tensors);
  std::fprintf(stderr, "\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout);
  app.footer(Footer());
  std::string in, out;
  weft::tools::QuantizeOptions options;
  app.add_option("in", in, "the model to read; of a split one, its first file")->required();
  app.add_option("out", out, "the file to write; it appears when it is complete")->required();
  app.add_option("--type", options.type, "of the matrices, see below")->capture_default_str();
  app.add_flag("--pure", options.pure,
               "every matrix in this type, the output too, which otherwise keeps 6 bits");
  app.add_option("--imatrix", options.importance,
                 "keep the weights exact that matter most by this file of weft imatrix")
      ->type_name("FILE");
  app.add_option("--threads", options.n_threads, "0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const weft::Status usage = weft::tools::CheckQuantizeOptions(options);
  if (!usage.ok()) {
    std::fprintf(stderr, "weft-quantize: %s\n", std::string(weft::Message(usage)).c_str());
    return 2;
  }
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) options.progress = ShowProgress;
  const auto made = weft::tools::QuantizeModel(in, out, options);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!made.ok()) {
    std::fprintf(stderr, "weft-quantize: %s\n", std::string(weft::Message(made.status())).c_str());
    return 1;
  }
  PrintSummary(*made, out);
  return 0;
}
