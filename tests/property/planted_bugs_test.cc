// The property tests find bugs: with each bug planted into the backend, some of the first programs
// must fail. Without it, the same programs pass.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/property/faulty_backend.h"
#include "tests/property/program.h"
#include "tests/property/rounding_oracle.h"
#include "tests/support/goldens.h"
#include "tests/support/recurrent_backend.h"
#include "tests/support/slow_build.h"

namespace weft::testing {
namespace {

constexpr uint64_t kControlPrograms = testing::kSlowBuild ? 5 : 40;
constexpr uint64_t kMaxPrograms = 400;
constexpr uint64_t kRoundingPrograms = 3;

// The seed of the first program that fails; 0 if none does. `rounds`: uses the oracle for backends
// that do not promise the same bits.
uint64_t FirstFailure(Fault fault, std::string_view model_name, uint64_t programs,
                      std::string* failure, bool rounds = false) {
  static const RecurrentBackend recurrent(*FindBackend("cpu"));
  const bool is_recurrent = model_name.starts_with("recurrent-");
  const auto backend = NewFaultyBackend(fault, is_recurrent ? &recurrent : nullptr);
  const auto model = LoadTestModel(model_name, backend.get());
  Oracle exact(LoadTestModel(model_name));
  RoundingOracle rounding(LoadTestModel(model_name, *FindBackend("reference")));
  Oracle* const oracle = rounds ? &rounding : &exact;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    Program program(model, oracle, seed);
    *failure = program.Run();
    if (!failure->empty()) return seed;
  }
  return 0;
}

void ExpectFound(Fault fault, std::string_view model_name, bool rounds = false) {
  std::string failure;
  const uint64_t seed = FirstFailure(fault, model_name, kMaxPrograms, &failure, rounds);
  EXPECT_NE(seed, 0u) << "no program noticed the planted bug";
  std::printf("found by program %llu: %.200s\n", static_cast<unsigned long long>(seed),
              failure.c_str());
}

TEST(PlantedBugsTest, NoneIsFoundWhereNoneIs) {
  for (const char* model : {"qwen3moe", "gemma3", "qwen35", "recurrent-qwen3"}) {
    std::string failure;
    EXPECT_EQ(FirstFailure(Fault::kNone, model, kControlPrograms, &failure), 0u) << failure;
  }
}

TEST(PlantedBugsTest, CopiesNothing) { ExpectFound(Fault::kCopiesNothing, "qwen3moe"); }
TEST(PlantedBugsTest, SharedPageIsWritten) { ExpectFound(Fault::kSharedUncopied, "qwen3moe"); }
TEST(PlantedBugsTest, StalePage) { ExpectFound(Fault::kStalePage, "qwen3moe"); }
TEST(PlantedBugsTest, PositionOffByOne) { ExpectFound(Fault::kPositionOffByOne, "qwen3moe"); }
TEST(PlantedBugsTest, ShiftedTable) { ExpectFound(Fault::kShiftedTable, "qwen3moe"); }
TEST(PlantedBugsTest, SwappedLogits) { ExpectFound(Fault::kSwappedLogits, "qwen3moe"); }
TEST(PlantedBugsTest, ForeignPage) { ExpectFound(Fault::kForeignPage, "qwen3moe"); }
TEST(PlantedBugsTest, CopiesNothingUnderWindows) { ExpectFound(Fault::kCopiesNothing, "gemma3"); }
TEST(PlantedBugsTest, StalePageUnderWindows) { ExpectFound(Fault::kStalePage, "gemma3"); }
TEST(PlantedBugsTest, SlotNotCopied) { ExpectFound(Fault::kSlotNotCopied, "lfm2"); }
TEST(PlantedBugsTest, SlotShared) { ExpectFound(Fault::kSlotShared, "qwen35"); }
TEST(PlantedBugsTest, StaleSlot) { ExpectFound(Fault::kStaleSlot, "mamba2"); }
TEST(PlantedBugsTest, LateCheckpoint) { ExpectFound(Fault::kLateCheckpoint, "qwen35"); }
TEST(PlantedBugsTest, SwappedSlots) { ExpectFound(Fault::kSwappedSlots, "lfm2"); }
TEST(PlantedBugsTest, LateGuess) { ExpectFound(Fault::kLateGuess, "qwen3moe"); }
TEST(PlantedBugsTest, LateGuessUnderWindows) { ExpectFound(Fault::kLateGuess, "gemma3"); }
TEST(PlantedBugsTest, ForeignRow) { ExpectFound(Fault::kForeignRow, "qwen3moe"); }
TEST(PlantedBugsTest, ForeignRowInSlots) { ExpectFound(Fault::kForeignRow, "qwen35"); }
TEST(PlantedBugsTest, GuessesStayInSlots) { ExpectFound(Fault::kGuessesStay, "qwen35"); }
TEST(PlantedBugsTest, GuessesStayInCheckedSlots) {
  ExpectFound(Fault::kGuessesStay, "recurrent-qwen3");
}
TEST(PlantedBugsTest, LateCheckpointWithCheckedSlots) {
  ExpectFound(Fault::kLateCheckpoint, "recurrent-qwen3");
}

// Compares only log-probabilities, as on a backend that does not promise the same bits.
TEST(PlantedBugsTest, RoundingIsNoBug) {
  // The generated models have 8-bit weights, which cpu multiplies by 8-bit activations.
  WEFT_REQUIRE_GOLDENS();
  for (const char* model : {"llama", "qwen35"}) {
    std::string failure;
    EXPECT_EQ(FirstFailure(Fault::kNone, model, kRoundingPrograms, &failure, true), 0u) << failure;
  }
}
TEST(PlantedBugsTest, BeyondRounding) {
  ExpectFound(Fault::kCopiesNothing, "llama", true);
  ExpectFound(Fault::kForeignPage, "llama", true);
  ExpectFound(Fault::kStaleSlot, "qwen35", true);
  ExpectFound(Fault::kSwappedSlots, "lfm2", true);
}

}  // namespace
}  // namespace weft::testing
