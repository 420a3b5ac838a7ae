#include "engine/state/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "xxhash.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

using Parts = std::map<std::pair<int, int64_t>, std::vector<std::byte>>;

SessionHead SmallHead() {
  SessionHead head;
  head.domain = "key-1";
  head.name = "planning";
  head.model = FingerprintOf("the model");
  head.layout = FingerprintOf("the layout");
  head.kv_type = "f16";
  head.created_us = 1'700'000'000'000'000;
  head.updated_us = 1'700'000'000'000'001;
  for (int i = 0; i < 50; ++i) head.tokens.push_back(i * 7);
  head.state_tokens = 46;
  head.page_tokens = 16;
  head.groups = {{256, 0}, {128, 1}};
  head.slot_bytes = 100;
  return head;
}

SessionHead HeadWithCheckpoints() {
  SessionHead head = SmallHead();
  head.checkpoints = {16, 32};
  return head;
}

// Parts that compress (even pages) and parts that do not.
std::vector<std::byte> PartOf(int group, int64_t page, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(group * 1000 + page));
  std::vector<std::byte> part(n);
  for (size_t i = 0; i < n; ++i) {
    part[i] = page % 2 == 0 ? static_cast<std::byte>(i / 32) : static_cast<std::byte>(random());
  }
  return part;
}

Status SupplyPart(int group, int64_t page, std::span<std::byte> out) {
  const auto part = PartOf(group, page, out.size());
  std::copy(part.begin(), part.end(), out.begin());
  return OkStatus();
}

StatusOr<std::vector<std::byte>> Encode(const SessionHead& head) {
  std::vector<std::byte> bytes;
  WEFT_RETURN_IF_ERROR(WriteSession(head, SupplyPart, [&bytes](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    return OkStatus();
  }));
  return bytes;
}

StatusOr<std::unique_ptr<SessionReader>> OpenBytes(std::span<const std::byte> bytes) {
  return SessionReader::Open(NewMemorySource(bytes));
}

Status ReadParts(const SessionReader& reader, Parts* parts) {
  return reader.ReadState([parts](int group, int64_t page, std::span<const std::byte> bytes) {
    (*parts)[{group, page}].assign(bytes.begin(), bytes.end());
    return OkStatus();
  });
}

void ExpectSameHead(const SessionHead& a, const SessionHead& b) {
  EXPECT_EQ(a.domain, b.domain);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.kv_type, b.kv_type);
  EXPECT_EQ(a.created_us, b.created_us);
  EXPECT_EQ(a.updated_us, b.updated_us);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.row_values, b.row_values);
  EXPECT_EQ(a.adapters, b.adapters);
  EXPECT_EQ(a.adapter_from, b.adapter_from);
  EXPECT_EQ(a.spans, b.spans);
  EXPECT_EQ(a.state_tokens, b.state_tokens);
  EXPECT_EQ(a.page_tokens, b.page_tokens);
  EXPECT_EQ(a.groups, b.groups);
  EXPECT_EQ(a.slot_bytes, b.slot_bytes);
  EXPECT_EQ(a.checkpoints, b.checkpoints);
}

uint32_t VersionOf(std::span<const std::byte> bytes) {
  uint32_t version = 0;
  std::memcpy(&version, bytes.data() + 8, sizeof(version));
  return version;
}

TEST(SessionFileTest, WhatIsWrittenIsRead) {
  const SessionHead head = SmallHead();
  const auto bytes = *Encode(head);
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), head);
  Parts parts;
  ASSERT_EQ(Message(ReadParts(*reader, &parts)), "");
  ASSERT_EQ(parts.size(), 3u + 2u + 1u);
  for (const auto& [key, part] : parts) {
    EXPECT_EQ(part, PartOf(key.first, key.second, part.size()));
  }
  EXPECT_EQ(parts.count({kSlotPart, 0}), 1u);
  EXPECT_EQ(parts.count({1, 0}), 0u);
}

TEST(SessionFileTest, CheckpointsFollowTheSlot) {
  const SessionHead head = HeadWithCheckpoints();
  const auto bytes = *Encode(head);
  EXPECT_EQ(VersionOf(bytes), 2u);
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), head);
  Parts parts;
  ASSERT_EQ(Message(ReadParts(*reader, &parts)), "");
  ASSERT_EQ(parts.size(), 3u + 2u + 1u + 2u);
  for (int i = 0; i < 2; ++i) {
    const auto& part = parts.at({kCheckpointPart, i});
    EXPECT_EQ(part, PartOf(kCheckpointPart, i, 100));
  }
}

SessionHead HeadWithRows() {
  SessionHead head = HeadWithCheckpoints();
  head.tokens[3] = head.tokens[40] = head.tokens[49] = kAnyRow;
  head.row_values = 24;
  return head;
}

TEST(SessionFileTest, RowsFollowTheTokens) {
  for (const bool with_state : {true, false}) {
    SessionHead head = HeadWithRows();
    if (!with_state) {
      head.state_tokens = head.slot_bytes = 0;
      head.groups.clear();
      head.checkpoints.clear();
    }
    const auto bytes = *Encode(head);
    EXPECT_EQ(VersionOf(bytes), 3u);
    const auto reader = *OpenBytes(bytes);
    ExpectSameHead(reader->head(), head);
    Parts rows;
    const auto take = [&rows](int group, int64_t page, std::span<const std::byte> row) {
      rows[{group, page}].assign(row.begin(), row.end());
      return OkStatus();
    };
    ASSERT_EQ(Message(reader->ReadRows(take)), "");
    ASSERT_EQ(rows.size(), 3u);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rows.at({kRowPart, i}), PartOf(kRowPart, i, 24 * sizeof(float)));
    }
    Parts parts;
    EXPECT_EQ(Message(ReadParts(*reader, &parts)), "");
    EXPECT_EQ(parts.size(), with_state ? 8u : 0u);
  }
}

SessionHead HeadWithAdapters() {
  SessionHead head = HeadWithCheckpoints();
  head.adapters = {{"law", FingerprintOf("one"), 0.5f}, {"rhyme", FingerprintOf("two"), -1}};
  return head;
}

TEST(SessionFileTest, AdaptersAreInTheHead) {
  const SessionHead head = HeadWithAdapters();
  const auto bytes = *Encode(head);
  EXPECT_EQ(VersionOf(bytes), 4u);
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), head);
  Parts parts;
  ASSERT_EQ(Message(ReadParts(*reader, &parts)), "");
}

TEST(SessionFileTest, WhereAnAdapterBeginsToActIsInTheHead) {
  SessionHead head = HeadWithAdapters();
  for (const int64_t from : {int64_t{0}, std::ssize(head.tokens)}) {
    head.adapter_from = from;
    const auto bytes = *Encode(head);
    EXPECT_EQ(VersionOf(bytes), 5u);
    const auto reader = *OpenBytes(bytes);
    ExpectSameHead(reader->head(), head);
    Parts parts;
    ASSERT_EQ(Message(ReadParts(*reader, &parts)), "");
  }
}

TEST(SessionFileTest, DamageToARowIsAnError) {
  auto bytes = *Encode(HeadWithRows());
  const std::vector<std::byte> second = PartOf(kRowPart, 1, 24 * sizeof(float));  // as it is
  const auto at = std::search(bytes.begin(), bytes.end(), second.begin(), second.end());
  ASSERT_NE(at, bytes.end());
  *at ^= std::byte{1};
  const auto reader = *OpenBytes(bytes);
  const auto ignore = [](int, int64_t, std::span<const std::byte>) { return OkStatus(); };
  const Status status = reader->ReadRows(ignore);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("row 1"));
}

TEST(SessionFileTest, RowsThatContradictTheTokensAreRefused) {
  const auto message = [](const std::function<void(SessionHead*)>& spoil) {
    SessionHead head = HeadWithRows();
    spoil(&head);
    return std::string(Message(Encode(head).status()));
  };
  EXPECT_THAT(message([](SessionHead* head) { head->row_values = 0; }), HasSubstr("3 rows of 0"));
  EXPECT_THAT(message([](SessionHead* head) { head->tokens.assign(50, 1); }),
              HasSubstr("0 rows of 24"));
  EXPECT_THAT(message([](SessionHead* head) { head->tokens[3] = -3; }), HasSubstr("ids"));
  EXPECT_THAT(message([](SessionHead* head) { head->row_values = kMaxRowValues + 1; }),
              HasSubstr("its rows have"));
}

TEST(SessionFileTest, RowsThatBelongTogetherAreRead) {
  SessionHead head = HeadWithRows();
  for (int i = 10; i < 16; ++i) head.tokens[i] = kAnyRow;
  head.spans = {{10, 4, 2, 2, false}, {14, 2, 0, 0, true}};
  const auto bytes = *Encode(head);
  EXPECT_EQ(VersionOf(bytes), 4u);
  ExpectSameHead((*OpenBytes(bytes))->head(), head);
  for (const SessionHead::Span& wrong : {SessionHead::Span{9, 4, 2, 2},
                                         {12, 6, 2, 3},
                                         {10, 4, 3, 1},
                                         {10, 4, 4, -1},
                                         {10, 3, 0, 0},
                                         {10, 0, 0, 0, true},
                                         {int64_t{1} << 60, 4, 2, 2},
                                         {10, int64_t{1} << 62, 0, 0, true},
                                         {-1, 2, 1, 2}}) {
    SessionHead spoiled = head;
    spoiled.spans = {wrong};
    EXPECT_THAT(std::string(Message(Encode(spoiled).status())), HasSubstr("its pictures"));
  }
  std::swap(head.spans[0], head.spans[1]);
  EXPECT_THAT(std::string(Message(Encode(head).status())), HasSubstr("its pictures"));
}

TEST(SessionFileTest, FilesOfTheFirstVersionAreRead) {
  // Two tokens, a page of zeros and a slot of zeros, as written by version 1.
  constexpr std::string_view kHex =
      "89574546545345530100000000000000261b737e967ec031010000000100000000000000000000006f00"
      "000000000000350000000000000075bec90d847f670228b52ffd206f65010004020000030000006f6c64"
      "000200020010000000010000002000200000000000000005100012613ce08e7fb0020000000000000000"
      "0000000000000008000000000000000800000000000000b2b948109cc923820700000008000000030000"
      "0000000000000000000000000000000000000000000000000000000000ee336f349f3815bd0400000000"
      "0000000000000000000000200000000000000020000000000000003757815446b60b6c00000000000000"
      "000000000000000000000000000000000000000000000000000500000000000000000000000000000020"
      "000000000000002000000000000000c8045a365a00866a00000000000000000000000000000000000000"
      "000000000000000000000000000600000000000000000000000000000000000000000000000000000000"
      "000000e4039f77f704aa21";
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < kHex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(kHex.substr(i, 2)), nullptr, 16)));
  }
  SessionHead head;
  head.name = "old";
  head.tokens = {7, 8};
  head.state_tokens = 2;
  head.page_tokens = 16;
  head.groups = {{32, 0}};
  head.slot_bytes = 32;
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), head);
  Parts parts;
  EXPECT_EQ(Message(ReadParts(*reader, &parts)), "");
  EXPECT_EQ(parts, (Parts{{{0, 0}, std::vector<std::byte>(32)},
                          {{kSlotPart, 0}, std::vector<std::byte>(32)}}));
  EXPECT_EQ(VersionOf(*Encode(head)), 1u) << "older programs read what has no checkpoints";
}

TEST(SessionFileTest, TokensAloneAreASession) {
  SessionHead head;
  head.name = "tokens only";
  head.tokens = {1, 2, 3};
  const auto bytes = *Encode(head);
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), head);
  Parts parts;
  EXPECT_TRUE(ReadParts(*reader, &parts).ok());
  EXPECT_TRUE(parts.empty());
}

TEST(SessionFileTest, AnEmptySessionIsOne) {
  const auto bytes = *Encode(SessionHead{});
  const auto reader = *OpenBytes(bytes);
  ExpectSameHead(reader->head(), SessionHead{});
}

TEST(SessionFileTest, CompressesWhereItPays) {
  SessionHead head = SmallHead();
  head.tokens.assign(10000, 5);
  head.groups = {{1 << 16, 0}};
  head.slot_bytes = 0;
  head.state_tokens = 32;  // page 0 compresses, page 1 does not
  const auto bytes = *Encode(head);
  EXPECT_LT(bytes.size(), (1u << 16) + 8000);
  EXPECT_GT(bytes.size(), (1u << 16));
}

// Where the head ends: the bytes before the end mark of a session without state.
size_t HeadBytes(const SessionHead& head) {
  size_t sections = 0;
  size_t n = 0;
  EXPECT_TRUE(WriteSession(
                  head, [](int, int64_t, std::span<std::byte>) { return Aborted("here"); },
                  [&](std::span<const std::byte> more) {
                    ++sections;
                    n += more.size();
                    return OkStatus();
                  })
                  .code() == StatusCode::kAborted);
  EXPECT_GE(sections, 4u);
  return n;
}

TEST(SessionFileTest, EveryFlippedBitIsFound) {
  SessionHead head = HeadWithCheckpoints();
  head.adapters = HeadWithAdapters().adapters;
  head.adapter_from = 1;
  const auto good = *Encode(head);
  const size_t head_bytes = HeadBytes(head);
  ASSERT_LT(head_bytes, good.size());
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      auto bytes = good;
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      const auto reader = OpenBytes(bytes);
      if (i < head_bytes) {
        const auto expected = i < 8 ? StatusCode::kInvalidArgument : StatusCode::kDataLoss;
        ASSERT_EQ(reader.status().code(), expected) << "byte " << i;
        continue;
      }
      ASSERT_TRUE(reader.ok()) << "byte " << i << ": " << reader.status();
      EXPECT_EQ((*reader)->head().tokens, head.tokens);
      Parts parts;
      const Status status = ReadParts(**reader, &parts);
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << "byte " << i;
      EXPECT_THAT(std::string(Message(status)), HasSubstr("50 tokens are intact"));
      // Everything before the damage was delivered correctly.
      for (const auto& [key, part] : parts) {
        ASSERT_EQ(part, PartOf(key.first, key.second, part.size()));
      }
    }
  }
}

TEST(SessionFileTest, EveryTruncationIsFound) {
  const SessionHead head = HeadWithCheckpoints();
  const auto good = *Encode(head);
  const size_t head_bytes = HeadBytes(head);
  for (size_t n = 0; n < good.size(); ++n) {
    const auto reader = OpenBytes(std::span(good).first(n));
    ASSERT_EQ(reader.ok(), n >= head_bytes) << n;
    if (!reader.ok()) {
      ASSERT_EQ(reader.status().code(), StatusCode::kDataLoss);
      continue;
    }
    Parts parts;
    ASSERT_EQ(ReadParts(**reader, &parts).code(), StatusCode::kDataLoss);
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  Parts parts;
  EXPECT_EQ(ReadParts(**OpenBytes(longer), &parts).code(), StatusCode::kDataLoss);
}

TEST(SessionFileTest, ExchangedSectionsAreFound) {
  SessionHead head = SmallHead();
  head.groups = {{256, 0}};
  head.slot_bytes = 0;
  head.state_tokens = 32;
  auto bytes = *Encode(head);
  // The sections of both pages, the second one raw (40 + 256 bytes), then the end mark.
  const size_t begin = HeadBytes(head);
  const size_t middle = bytes.size() - 40 - 296;
  std::rotate(bytes.begin() + static_cast<ptrdiff_t>(begin),
              bytes.begin() + static_cast<ptrdiff_t>(middle), bytes.end() - 40);
  Parts parts;
  const Status status = ReadParts(**OpenBytes(bytes), &parts);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("out of place"));
}

TEST(SessionFileTest, UnknownVersionsAreRefusedByNumber) {
  auto bytes = *Encode(SmallHead());
  const uint32_t version = 7;
  std::memcpy(bytes.data() + 8, &version, sizeof(version));
  const uint64_t checksum = XXH3_64bits(bytes.data(), 16);
  std::memcpy(bytes.data() + 16, &checksum, sizeof(checksum));
  const auto reader = OpenBytes(bytes);
  EXPECT_EQ(reader.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Message(reader.status())), HasSubstr("version 7"));
}

TEST(SessionFileTest, OtherModelsAndLayoutsAreRefusedByName) {
  const auto bytes = *Encode(SmallHead());
  const auto reader = *OpenBytes(bytes);
  EXPECT_TRUE(reader->CheckModel(FingerprintOf("the model")).ok());
  const Status model = reader->CheckModel(FingerprintOf("another"));
  EXPECT_EQ(model.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(model)), HasSubstr(FingerprintOf("the model").ToHex()));
  EXPECT_THAT(std::string(Message(model)), HasSubstr(FingerprintOf("another").ToHex()));
  EXPECT_TRUE(reader->CheckLayout(FingerprintOf("the layout"), "f16").ok());
  EXPECT_EQ(reader->CheckLayout(FingerprintOf("else"), "f16").code(),
            StatusCode::kFailedPrecondition);
  const Status kv = reader->CheckLayout(FingerprintOf("the layout"), "q8_0");
  EXPECT_EQ(kv.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(kv)), HasSubstr("KV type f16"));
}

TEST(SessionFileTest, ErrorsOfTheCallbacksComeBackAsTheyAre) {
  const auto write = [](StatusCode source, StatusCode sink) {
    return WriteSession(
        SmallHead(), [&](int, int64_t, std::span<std::byte>) { return MakeStatus(source, "x"); },
        [&](std::span<const std::byte>) { return MakeStatus(sink, "y"); });
  };
  EXPECT_EQ(write(StatusCode::kAborted, StatusCode::kOk).code(), StatusCode::kAborted);
  EXPECT_EQ(write(StatusCode::kOk, StatusCode::kUnavailable).code(), StatusCode::kUnavailable);
  const auto bytes = *Encode(SmallHead());
  EXPECT_EQ((*OpenBytes(bytes))
                ->ReadState([](int, int64_t, std::span<const std::byte>) {
                  return ResourceExhausted("no page");
                })
                .code(),
            StatusCode::kResourceExhausted);
}

TEST(SessionFileTest, HeadsThatContradictThemselvesAreNotWritten) {
  const auto refused = [](auto change) {
    SessionHead head = SmallHead();
    change(&head);
    size_t written = 0;
    const Status status = WriteSession(head, SupplyPart, [&](std::span<const std::byte> bytes) {
      written += bytes.size();
      return OkStatus();
    });
    return status.code() == StatusCode::kInvalidArgument && written == 0;
  };
  EXPECT_TRUE(refused([](SessionHead* head) { head->state_tokens = 51; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->state_tokens = 0; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->page_tokens = 0; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->groups[0].page_bytes = 0; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->groups[1].first_page = 4; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->slot_bytes = -1; }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->groups.resize(65, {256, 0}); }));
  for (const auto& checkpoints :
       std::vector<std::vector<int64_t>>{{0}, {-16}, {17}, {48}, {32, 16}, {16, 16}}) {
    EXPECT_TRUE(refused([&](SessionHead* head) { head->checkpoints = checkpoints; }));
  }
  EXPECT_TRUE(refused([](SessionHead* head) {
    head->checkpoints = {16};
    head->slot_bytes = 0;
  }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->name = std::string(129, 'x'); }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->adapters.resize(65); }));
  for (const float scale : {0.0f, std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(refused([&](SessionHead* head) { head->adapters = {{"a", {}, scale}}; }));
  }
  EXPECT_TRUE(refused([](SessionHead* head) {
    head->adapters = {{std::string(129, 'x'), {}, 1}};
  }));
  EXPECT_TRUE(refused([](SessionHead* head) { head->adapter_from = 0; })) << "without an adapter";
  for (const int64_t from : {int64_t{-1}, int64_t{1} << 30}) {
    EXPECT_TRUE(refused([&](SessionHead* head) {
      head->adapters = {{"a", {}, 1}};
      head->adapter_from = from;
    }));
  }
}

TEST(SessionFileTest, FingerprintsAreTheirBytesHashes) {
  EXPECT_EQ(FingerprintOf("").ToHex(),
            "99aa06d3014798d86001c324468d497f");  // XXH3-128 of the empty string
  EXPECT_NE(FingerprintOf("a"), FingerprintOf("b"));
}

}  // namespace
}  // namespace weft
