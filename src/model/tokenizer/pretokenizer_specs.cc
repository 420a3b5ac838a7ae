// The rules for each name in tokenizer.ggml.pre. The patterns are those published with the
// vocabularies (tokenizer.json); where GGUF vocabularies are defined by a variant of them, the
// variant is used.
#include <algorithm>
#include <initializer_list>

#include "model/tokenizer/pretokenizer.h"

namespace weft {
namespace {

using Stage = PreTokenizer::Stage;
using Spec = PreTokenizer::Spec;
using Contractions = WordRules::Contractions;
using Lead = WordRules::Lead;
using Letters = WordRules::Letters;
using Tail = WordRules::PunctuationTail;

Stage Runs(CharSet set, int min = 1, int max = 0, bool space_prefix = false) {
  Stage stage;
  stage.kind = Stage::Kind::kRuns;
  stage.runs = {std::move(set), space_prefix, false, min, max};
  return stage;
}

Stage Words(const WordRules& rules) {
  Stage stage;
  stage.words = rules;
  return stage;
}

Stage Simple(Stage::Kind kind) {
  Stage stage;
  stage.kind = kind;
  return stage;
}

Spec MakeSpec(std::vector<Stage> stages) {
  Spec spec;
  spec.splitter = std::make_shared<const PreTokenizer>(std::move(stages));
  return spec;
}

CharSet Numbers() { return CharSet(kNumber, ""); }
CharSet LineEnds() { return CharSet(0, "\r\n"); }

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
WordRules Gpt2Rules() {
  WordRules rules;
  rules.contractions = Contractions::kLowerCase;
  rules.lead = Lead::kSpace;
  rules.max_digits = 0;
  rules.space_before_number = true;
  rules.tail = Tail::kNone;
  rules.line_ends = WordRules::LineEnds::kNone;
  return rules;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}
// | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
WordRules Llama3Rules(int max_digits) {
  WordRules rules;
  rules.max_digits = max_digits;
  return rules;
}

// The same, but words end before an upper-case letter and include their contraction, and the tail
// of punctuation may contain a slash.
WordRules Gpt4oRules() {
  WordRules rules;
  rules.contractions = Contractions::kAfterWord;
  rules.letters = Letters::kCased;
  rules.tail = Tail::kLineEndsAndSlash;
  return rules;
}

// [!-~&&punct][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
WordRules DeepSeek3Rules() {
  WordRules rules;
  rules.contractions = Contractions::kNone;
  rules.lead = Lead::kNotLetterOrPunct;
  rules.letters = Letters::kAndMarks;
  rules.max_digits = -1;
  rules.punctuation = kPunctuation | kSymbol;
  rules.ascii_words = true;
  return rules;
}

// The cased letters listed in the DeepSeek LLM pattern.
CharSet DeepSeekLetters() {
  return CharSet(0, "",
                 {{0x0041, 0x005A},   {0x0061, 0x007A},   {0x00B5, 0x00B5},   {0x00C0, 0x00D6},
                  {0x00D8, 0x00F6},   {0x00F8, 0x01BA},   {0x01BC, 0x01BF},   {0x01C4, 0x0293},
                  {0x0295, 0x02AF},   {0x0370, 0x0373},   {0x0376, 0x0377},   {0x037B, 0x037D},
                  {0x037F, 0x037F},   {0x0386, 0x0386},   {0x0388, 0x038A},   {0x038C, 0x038C},
                  {0x038E, 0x03A1},   {0x03A3, 0x03F5},   {0x03F7, 0x0481},   {0x048A, 0x052F},
                  {0x0531, 0x0556},   {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
                  {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
                  {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
                  {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
                  {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
                  {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
                  {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
                  {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
                  {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
                  {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
                  {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
                  {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
                  {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
                  {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
                  {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
                  {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}});
}

// [一-龥ࠀ-一가-퟿]
CharSet DeepSeekCjk() { return CharSet(0, "", {{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}}); }

// [一-龥぀-ゟ゠-ヿ]
CharSet HanAndKana() { return CharSet(0, "", {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}}); }

CharSet AsianScripts() {
  return CharSet(0, "",
                 {{0x0E40, 0x0EFF},
                  {0x1000, 0x109F},
                  {0x1100, 0x11FF},
                  {0x1780, 0x17FF},
                  {0x2F00, 0x2FDF},
                  {0x3040, 0x30FF},
                  {0x3400, 0x4DBF},
                  {0x4E00, 0x9FFF},
                  {0xA9E0, 0xA9FF},
                  {0xAA60, 0xAA7F},
                  {0xAC00, 0xD7AF},
                  {0xF900, 0xFAFF},
                  {0xFF65, 0xFF9F}});
}

Spec DeepSeekLlm() {
  const CharSet punctuation(0, "",
                            {{'!', '/'},
                             {':', '~'},
                             {0x2018, 0x201F},
                             {0x3000, 0x3002},
                             {0xFF01, 0xFF0F},
                             {0xFF1A, 0xFF5E}});
  return MakeSpec({Runs(LineEnds(), 1, 1), Runs(DeepSeekLetters(), 1, 0, true),
                   Runs(punctuation, 1, 0, true), Simple(Stage::Kind::kTrailingSpace),
                   Runs(DeepSeekCjk()), Runs(Numbers())});
}

Spec DeepSeekCoder() {
  return MakeSpec({Runs(LineEnds(), 1, 1), Runs(CharSet(kLetter, ""), 1, 0, true),
                   Runs(CharSet(kPunctuation, ""), 1, 0, true), Runs(DeepSeekCjk()),
                   Runs(Numbers(), 1, 1)});
}

Spec DeepSeek3() {
  return MakeSpec({Runs(Numbers(), 1, 3), Runs(HanAndKana()), Words(DeepSeek3Rules())});
}

Spec Falcon() {
  return MakeSpec({Runs(CharSet(kPunctuation, "$+<=>^~|`")), Words(Gpt2Rules()),
                   Runs(CharSet(0, "0123456789"), 3, 3)});
}

Spec Default() {
  return MakeSpec({Runs(CharSet(kPunctuation, "$+<=>^~|")), Words(Gpt2Rules()), Runs(Numbers()),
                   Runs(CharSet(0, "0123456789"), 3, 3)});
}

Spec Gpt2() { return MakeSpec({Words(Gpt2Rules())}); }

Spec SingleDigitsGpt2() { return MakeSpec({Runs(Numbers(), 1, 1), Words(Gpt2Rules())}); }

Spec Llama3(int max_digits) { return MakeSpec({Words(Llama3Rules(max_digits))}); }

Spec Qwen35() {
  WordRules rules = Llama3Rules(1);
  rules.letters = Letters::kAndMarks;
  return MakeSpec({Words(rules)});
}

Spec Tekken() {
  WordRules rules = Gpt4oRules();
  rules.contractions = Contractions::kNone;
  rules.max_digits = 1;
  return MakeSpec({Words(rules)});
}

Spec KimiK2() {
  WordRules rules = Gpt4oRules();
  rules.tail = Tail::kLineEnds;
  rules.split_han = true;
  return MakeSpec({Words(rules)});
}

Spec SeedCoder() {
  WordRules rules = Llama3Rules(1);
  rules.tail = Tail::kNone;
  return MakeSpec({Words(rules)});
}

Spec ExaoneMoe() {
  WordRules rules = Llama3Rules(1);
  rules.letters = Letters::kJoined;
  rules.tail = Tail::kOneLineEndOrSlash;
  return MakeSpec({Words(rules)});
}

Spec Jais2() {
  WordRules rules = Llama3Rules(3);
  rules.space_blocks = true;
  return MakeSpec({Words(rules)});
}

Spec Spark() {
  WordRules rules = DeepSeek3Rules();
  rules.tail = Tail::kNone;
  rules.line_ends = WordRules::LineEnds::kEach;
  return MakeSpec({Runs(Numbers(), 1, 1), Runs(HanAndKana()), Words(rules)});
}

// [가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+,
// then words
Spec Youtu() {
  WordRules rules = Gpt4oRules();
  rules.max_digits = 1;
  const CharSet marks(0, "",
                      {{0x2014, 0x2014},
                       {0x2018, 0x2019},
                       {0x201C, 0x201D},
                       {0x2026, 0x2026},
                       {0x3001, 0x303F},
                       {0xFE30, 0xFE4F},
                       {0xFF01, 0xFF01},
                       {0xFF0C, 0xFF0C},
                       {0xFF1A, 0xFF1B}});
  return MakeSpec({Runs(CharSet(0, "", {{0x3131, 0x318E}, {0xAC00, 0xD7A3}})), Runs(marks),
                   Runs(CharSet(0, "", {{0x3105, 0x312F}})), Runs(HanAndKana()), Words(rules)});
}

// Its patterns of image and sentinel tokens are those tokens' own names.
Spec Chameleon() {
  return MakeSpec({Simple(Stage::Kind::kIndents), Runs(Numbers(), 1, 1),
                   Runs(CharSet(kPunctuation, "$+<=>^`|~"), 1, 1), Words(Gpt2Rules())});
}

// The text reaches it in lower case where the file says so, with one space for any.
Spec Whitespace() {
  std::string ascii;
  for (char c = 0; c < 127; ++c) {
    if (c != ' ' && (c < '\t' || c > '\r')) ascii += c;
  }
  ascii += '\x7F';
  Spec spec = MakeSpec({Runs(CharSet(0, ascii, {{0x80, kMaxCodePoint}}))});
  spec.drops_spaces = true;
  return spec;
}

Spec Ufakzeka() {
  WordRules rules = Llama3Rules(1);
  rules.contractions = Contractions::kNone;
  return MakeSpec({Words(rules)});
}

//  ?[^(\s|.,!?…。，、।۔،)]+ : the text in between is left whole.
Spec Bloom(bool single_digits) {
  CharSet::Ranges ranges;
  char32_t next = 0x80;
  for (const char32_t c : {0x060C, 0x06D4, 0x0964, 0x2026, 0x3001, 0x3002, 0xFF0C}) {
    ranges.emplace_back(next, c - 1);
    next = c + 1;
  }
  ranges.emplace_back(next, kMaxCodePoint);
  std::string ascii;
  for (char c = 0; c < 127; ++c) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space && std::string_view("(|.,!?)").find(c) == std::string_view::npos) ascii += c;
  }
  ascii += '\x7F';
  std::vector<Stage> stages = {Runs(CharSet(0, ascii, std::move(ranges)))};
  stages[0].runs.blank_prefix = true;
  if (single_digits) stages.push_back(Runs(Numbers(), 1, 1));
  return MakeSpec(std::move(stages));
}

Spec Lines() {
  Spec spec = MakeSpec({Simple(Stage::Kind::kLines)});
  spec.raw_text = true;
  return spec;
}

Spec Edit(Spec spec, void (*edit)(Spec*)) {
  edit(&spec);
  return spec;
}

Spec KeepSpaces(Spec spec) {
  spec.clean_spaces = false;
  return spec;
}

struct Entry {
  std::initializer_list<std::string_view> names;
  Spec (*make)();
};

const Entry kEntries[] = {
    {{"", "default"}, [] { return Default(); }},
    {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
      "mellum", "modern-bert", "exaone4", "mpt", "gpt-neox", "olmo", "jais"},
     [] { return Gpt2(); }},
    {{"jina-v1-en", "jina-v2-code", "roberta-bpe"},
     [] { return Edit(Gpt2(), [](Spec* spec) { spec->add_separator = true; }); }},
    {{"trillion", "granite-docling"}, [] { return KeepSpaces(Gpt2()); }},
    {{"starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
     [] { return SingleDigitsGpt2(); }},
    {{"command-r", "smollm"}, [] { return KeepSpaces(SingleDigitsGpt2()); }},
    {{"falcon"}, [] { return Falcon(); }},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "jina-v5-nano"},
     [] {
       return Edit(Llama3(3), [](Spec* spec) { spec->ignore_merges = spec->add_bos = true; });
     }},
    {{"dbrx", "smaug-bpe", "chatglm-bpe"}, [] { return Llama3(3); }},
    {{"glm4", "glm5"},
     [] { return Edit(Llama3(3), [](Spec* spec) { spec->ignore_merges = true; }); }},
    {{"jais-2"}, [] { return Jais2(); }},
    {{"exaone-moe"}, [] { return ExaoneMoe(); }},
    {{"spark2_5"}, [] { return KeepSpaces(Spark()); }},
    {{"youtu"},
     [] { return Edit(KeepSpaces(Youtu()), [](Spec* spec) { spec->ignore_merges = true; }); }},
    {{"chameleon"},
     [] { return Edit(KeepSpaces(Chameleon()), [](Spec* spec) { spec->add_bos = true; }); }},
    {{"whitespace"}, [] { return Whitespace(); }},
    {{"minicpm5"},
     [] {
       return Edit(MakeSpec({Runs(Numbers(), 1, 3), Words(Llama3Rules(0))}),
                   [](Spec* spec) { spec->ignore_merges = true; });
     }},
    {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2",
      "bailingmoe", "bailingmoe2", "llada-moe"},
     [] { return KeepSpaces(Llama3(1)); }},
    {{"stablelm2", "megrez"}, [] { return Llama3(1); }},
    {{"qwen35"}, [] { return KeepSpaces(Qwen35()); }},
    {{"ufakzeka"}, [] { return KeepSpaces(Ufakzeka()); }},
    {{"seed-coder"}, [] { return KeepSpaces(SeedCoder()); }},
    {{"laguna"},
     [] {
       return KeepSpaces(MakeSpec({Simple(Stage::Kind::kLines), Words(Llama3Rules(1))}));
     }},
    {{"deepseek-llm"}, [] { return KeepSpaces(DeepSeekLlm()); }},
    {{"deepseek-coder"}, [] { return KeepSpaces(DeepSeekCoder()); }},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     [] { return KeepSpaces(DeepSeek3()); }},
    {{"afmoe"},
     [] {
       return KeepSpaces(MakeSpec(
           {Simple(Stage::Kind::kDigitsFromRight), Runs(AsianScripts()), Words(DeepSeek3Rules())}));
     }},
    {{"superbpe"}, [] { return KeepSpaces(MakeSpec({Simple(Stage::Kind::kDigitsFromRight)})); }},
    {{"tiny_aya", "cohere2moe"},
     [] {
       return KeepSpaces(MakeSpec({Simple(Stage::Kind::kAsciiDigitsAtBound), Words(Gpt4oRules())}));
     }},
    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
     [] { return KeepSpaces(MakeSpec({Words(Gpt4oRules())})); }},
    {{"granite-embed-multi-97m"},
     [] {
       return Edit(KeepSpaces(MakeSpec({Words(Gpt4oRules())})),
                   [](Spec* spec) { spec->ignore_merges = true; });
     }},
    {{"tekken"},
     [] {
       return Edit(KeepSpaces(Tekken()),
                   [](Spec* spec) { spec->ignore_merges = spec->add_bos = true; });
     }},
    {{"kimi-k2"}, [] { return KeepSpaces(KimiK2()); }},
    {{"poro-chat"}, [] { return KeepSpaces(Bloom(false)); }},
    {{"bloom", "gpt3-finnish"}, [] { return Bloom(false); }},
    {{"viking"}, [] { return KeepSpaces(Bloom(true)); }},
    {{"gemma4", "granite-embed-multi-311m"},
     [] {
       return Edit(KeepSpaces(Lines()),
                   [](Spec* spec) { spec->whole_newlines = spec->add_bos = true; });
     }},
    {{"sarvam-moe"}, [] { return KeepSpaces(Lines()); }},
};

}  // namespace

bool PreTokenizer::Find(std::string_view name, Spec* spec) {
  for (const Entry& entry : kEntries) {
    if (std::find(entry.names.begin(), entry.names.end(), name) == entry.names.end()) continue;
    *spec = entry.make();
    return true;
  }
  return false;
}

}  // namespace weft
