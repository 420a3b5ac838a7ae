// The archive and its contents. tests/e2e/tokenizer_bundle_test.py checks that the ids are right.
#include "doors/grpc/tokenizer_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/strings.h"
#include "model/formats/gguf_writer.h"
#include "nlohmann/json.hpp"
#include "zip/zip_reader.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::map<std::string, std::string> FilesIn(std::string_view archive) {
  std::map<std::string, std::string> files;
  const auto zip = ZipReader::Open(std::as_bytes(std::span(archive)));
  EXPECT_TRUE(zip.ok()) << zip.status();
  for (const ZipMember& member : zip->members()) {
    std::string* const text = &files[member.name];
    EXPECT_TRUE(zip->Read(member,
                          [text](std::span<const std::byte> piece) {
                            text->append(reinterpret_cast<const char*>(piece.data()), piece.size());
                            return OkStatus();
                          })
                    .ok());
  }
  return files;
}

// A model file with only a vocabulary.
std::shared_ptr<const ModelFile> FileOf(const std::function<void(GgufWriter*)>& write) {
  const std::string path = StrCat(::testing::TempDir(), "/bundle_test.gguf");
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  write(&writer);
  EXPECT_TRUE(writer.Write(path).ok());
  auto file = ModelFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *file;
}

constexpr int32_t kNormal = 1, kControl = 3;

std::shared_ptr<const ModelFile> SmallByteLevel(const std::vector<std::string>& merges) {
  return FileOf([&](GgufWriter* writer) {
    writer->AddString("tokenizer.ggml.model", "gpt2");
    writer->AddString("tokenizer.ggml.pre", "gpt-2");
    writer->AddStringArray("tokenizer.ggml.tokens",
                           std::vector<std::string>{"a", "b", "ab", "<end>", "\xFF"});
    writer->AddInt32Array("tokenizer.ggml.token_type",
                          std::vector<int32_t>{kNormal, kNormal, kNormal, kControl, kNormal});
    writer->AddStringArray("tokenizer.ggml.merges", merges);
    writer->AddUint32("tokenizer.ggml.eos_token_id", 3);
    writer->AddBool("tokenizer.ggml.add_eos_token", true);
  });
}

TEST(TokenizerJson, SaysWhatTheVocabularySays) {
  const auto text = TokenizerJson(*SmallByteLevel({"a b"}));
  ASSERT_TRUE(text.ok()) << text.status();
  const json tokenizer = json::parse(*text);
  EXPECT_EQ(tokenizer["model"]["vocab"],
            json({{"a", 0}, {"b", 1}, {"ab", 2}, {"<end>", 3}, {"[INVALID_UTF8_4]", 4}}));
  EXPECT_EQ(tokenizer["model"]["merges"], json({"a b"}));
  ASSERT_EQ(tokenizer["added_tokens"].size(), 1u);
  EXPECT_EQ(tokenizer["added_tokens"][0]["content"], "<end>");
  EXPECT_EQ(tokenizer["added_tokens"][0]["special"], true);
  EXPECT_EQ(tokenizer["post_processor"]["single"].size(), 2u);
  EXPECT_EQ(tokenizer["post_processor"]["special_tokens"]["<end>"]["ids"], json({3}));
  EXPECT_EQ(tokenizer["pre_tokenizer"]["pretokenizers"].size(), 2u);
}

TEST(TokenizerJson, RefusesWhatItCannotSay) {
  const auto through_no_token = TokenizerJson(*SmallByteLevel({"a a"}));
  EXPECT_EQ(through_no_token.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Message(through_no_token.status())), HasSubstr("'a a'"));

  const auto word_piece = TokenizerJson(*FileOf([](GgufWriter* writer) {
    writer->AddString("tokenizer.ggml.model", "bert");
    writer->AddStringArray("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  }));
  EXPECT_EQ(word_piece.status().code(), StatusCode::kUnimplemented);
}

TEST(TokenizerBundle, WritesTheFirstTokenThatTemplatesLeaveOut) {
  const auto file = FileOf([](GgufWriter* writer) {
    writer->AddString("tokenizer.ggml.model", "gpt2");
    writer->AddString("tokenizer.ggml.pre", "gpt-2");
    writer->AddStringArray("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<begin>"});
    writer->AddInt32Array("tokenizer.ggml.token_type", std::vector<int32_t>{kNormal, kControl});
    writer->AddStringArray("tokenizer.ggml.merges", std::vector<std::string>{});
    writer->AddUint32("tokenizer.ggml.bos_token_id", 1);
    writer->AddBool("tokenizer.ggml.add_bos_token", true);
  });
  const auto template_of = [](const ModelFile& model, const char* text) {
    const auto bundle = BuildTokenizerBundle(model, text, 100);
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    const json config = json::parse(FilesIn(bundle->zip)["tokenizer_config.json"]);
    return config["chat_template"].get<std::string>();
  };
  EXPECT_EQ(template_of(*file, "{{ messages }}"), "{{ bos_token }}{{ messages }}");
  for (const char* const writes_it : {"{{ bos_token }}{{ messages }}", "<begin>{{ messages }}"}) {
    EXPECT_EQ(template_of(*file, writes_it), writes_it);
  }
  EXPECT_EQ(template_of(*SmallByteLevel({"a b"}), "{{ messages }}"), "{{ messages }}");
}

TEST(TokenizerBundle, IsTheSameEachTime) {
  const auto file = SmallByteLevel({"a b"});
  const auto one = BuildTokenizerBundle(*file, "{{ messages }}", 100);
  const auto two = BuildTokenizerBundle(*file, "{{ messages }}", 100);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->zip, two->zip);
  EXPECT_EQ(one->sha256.size(), 64u);
  EXPECT_EQ(one->sha256, two->sha256);
  const auto files = FilesIn(one->zip);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_TRUE(files.contains("tokenizer.json"));
  const std::string& config = files.at("tokenizer_config.json");
  EXPECT_EQ(json::parse(config)["chat_template"], "{{ messages }}");
  EXPECT_EQ(json::parse(config)["eos_token"], "<end>");
  EXPECT_EQ(json::parse(config)["model_max_length"], 100);
  EXPECT_EQ(json::parse(files.at("config.json")), json({{"model_type", "llama"},
                                                        {"architectures", {"LlamaForCausalLM"}},
                                                        {"vocab_size", 5},
                                                        {"max_position_embeddings", 100},
                                                        {"eos_token_id", {3}}}));
}

}  // namespace
}  // namespace weft::serve
