// The archive and its contents. tests/e2e/tokenizer_bundle_test.py checks that the ids are right.
#include "grpc/tokenizer_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>

#include "base/strings.h"
#include "formats/gguf_writer.h"
#include "grpc/zip_writer.h"
#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

uint32_t Read(std::string_view data, size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(data.at(at + i))) << (8 * i);
  }
  return value;
}

std::string Inflate(std::string_view deflated, size_t size) {
  std::string out(size + 1, '\0');
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, -15), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(deflated.data()));
  stream.avail_in = static_cast<uInt>(deflated.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// The file described by the directory entry at `*at`; advances `*at` to the next entry.
std::pair<std::string, std::string> ReadEntry(std::string_view zip, size_t* at) {
  EXPECT_EQ(zip.substr(*at, 4), "PK\x01\x02");
  const uint32_t packed = Read(zip, *at + 20, 4), size = Read(zip, *at + 24, 4);
  const uint32_t name_bytes = Read(zip, *at + 28, 2), header = Read(zip, *at + 42, 4);
  const std::string name(zip.substr(*at + 46, name_bytes));
  EXPECT_EQ(zip.substr(header, 4), "PK\x03\x04");
  EXPECT_EQ(zip.substr(header + 30, name_bytes), name);
  const std::string content = Inflate(zip.substr(header + 30 + name_bytes, packed), size);
  EXPECT_EQ(content.size(), size);
  EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()),
            Read(zip, *at + 16, 4));
  *at += 46 + name_bytes;
  return {name, content};
}

TEST(ZipWriter, HoldsWhatWasAdded) {
  const std::string large(300'000, 'x');
  ZipWriter writer;
  ASSERT_TRUE(writer.Add("a.txt", "weft").ok());
  ASSERT_TRUE(writer.Add("empty", "").ok());
  ASSERT_TRUE(writer.Add("large", large).ok());
  const std::string zip = writer.Finish();
  EXPECT_LT(zip.size(), 2000u);
  const size_t end = zip.size() - 22;
  ASSERT_EQ(zip.substr(end, 4), "PK\x05\x06");
  EXPECT_EQ(Read(zip, end + 10, 2), 3u);
  size_t at = Read(zip, end + 16, 4);
  EXPECT_EQ(ReadEntry(zip, &at), std::pair(std::string("a.txt"), std::string("weft")));
  EXPECT_EQ(ReadEntry(zip, &at), std::pair(std::string("empty"), std::string()));
  EXPECT_EQ(ReadEntry(zip, &at), std::pair(std::string("large"), large));
  EXPECT_EQ(at, end);
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

TEST(TokenizerBundle, IsTheSameEachTime) {
  const auto file = SmallByteLevel({"a b"});
  const auto one = BuildTokenizerBundle(*file, "{{ messages }}", 100);
  const auto two = BuildTokenizerBundle(*file, "{{ messages }}", 100);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->zip, two->zip);
  EXPECT_EQ(one->sha256.size(), 64u);
  EXPECT_EQ(one->sha256, two->sha256);
  size_t at = Read(one->zip, one->zip.size() - 6, 4);
  EXPECT_EQ(ReadEntry(one->zip, &at).first, "tokenizer.json");
  const auto [name, config] = ReadEntry(one->zip, &at);
  EXPECT_EQ(name, "tokenizer_config.json");
  EXPECT_EQ(json::parse(config)["chat_template"], "{{ messages }}");
  EXPECT_EQ(json::parse(config)["eos_token"], "<end>");
  EXPECT_EQ(json::parse(config)["model_max_length"], 100);
  const auto [model_name, model_config] = ReadEntry(one->zip, &at);
  EXPECT_EQ(model_name, "config.json");
  EXPECT_EQ(json::parse(model_config), json({{"model_type", "llama"},
                                             {"architectures", {"LlamaForCausalLM"}},
                                             {"vocab_size", 5},
                                             {"max_position_embeddings", 100},
                                             {"eos_token_id", {3}}}));
}

}  // namespace
}  // namespace weft::serve
