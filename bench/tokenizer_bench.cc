// Speed of encoding, in MB/s, over vocabularies given as GGUF files, on mixed text
// and on texts made to be slow.
//
//   tokenizer_bench VOCAB.gguf...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/formats/model_file.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {
namespace {

constexpr size_t kTextBytes = size_t{4} << 20;

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string out;
  out.reserve(bytes + unit.size());
  while (out.size() < bytes) out += unit;
  return out;
}

// Prose, code, numbers and other scripts, with words that do not repeat.
std::string MixedText() {
  constexpr std::string_view kWords[] = {
      "the",      "session",     "of",      "weights",
      "and",      "returns",     "quickly", "a",
      "token",    "It's",        "don't",   "Übergröße",
      "быстро",   "слово",       "これは",  "文字列",
      "अनुवाद",    "for (int",    "i = 0;",  "i < n;",
      "++i) {",   "  return x;", "}\n",     "\n\n",
      "3.14159,", "2026",        "0xFF",    "https://a.example/b?c=d",
      "🙂",     "naïve",       "(see",    "above)."};
  std::string out;
  uint64_t state = 1;
  while (out.size() < kTextBytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = state >> 33;
    out += kWords[bits % std::size(kWords)];
    if (bits % 7 == 0) out += static_cast<char>('a' + bits / 7 % 26);
    out += ' ';
  }
  return out;
}

double MegabytesPerSecond(const Tokenizer& tokenizer, const std::string& text, size_t* n_tokens) {
  double best_s = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    *n_tokens = tokenizer.Encode(text, {}).size();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best_s = std::min(best_s, took.count());
  }
  return static_cast<double>(text.size()) / 1e6 / best_s;
}

int Run(int argc, char** argv) {
  const std::pair<const char*, std::string> texts[] = {
      {"mixed", MixedText()},
      {"one letter", Repeat("a", kTextBytes)},
      {"spaces", Repeat(" ", kTextBytes)},
      {"line feeds", Repeat("\n", kTextBytes)},
      {"emoji", Repeat("😀", kTextBytes)},
      {"digits", Repeat("1234567", kTextBytes)},
      {"invalid", Repeat("\xFF\xC0", kTextBytes)},
  };
  for (int i = 1; i < argc; ++i) {
    auto file = ModelFile::Open(argv[i]);
    if (!file.ok()) {
      std::fprintf(stderr, "%s\n", std::string(Message(file.status())).c_str());
      return 1;
    }
    const auto start = std::chrono::steady_clock::now();
    auto tokenizer = Tokenizer::Load(**file);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "%s\n", std::string(Message(tokenizer.status())).c_str());
      return 1;
    }
    std::printf("%s: load %.1f ms\n", argv[i], took.count() * 1e3);
    for (const auto& [name, text] : texts) {
      size_t n_tokens = 0;
      const double speed = MegabytesPerSecond(**tokenizer, text, &n_tokens);
      std::printf("  %-12s %8.1f MB/s  %9zu tokens\n", name, speed, n_tokens);
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Run(argc, argv); }
