#include "compute/kernels/isa.h"

#include <cstdlib>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(IsaTest, ScalarIsAlwaysThereAndNamesDiffer) {
  ASSERT_FALSE(AvailableIsas().empty());
  EXPECT_EQ(AvailableIsas().front(), Isa::kScalar);
  std::set<std::string> names;
  for (Isa isa : AvailableIsas()) names.emplace(NameOf(isa));
  EXPECT_EQ(names.size(), AvailableIsas().size());
  EXPECT_EQ(NameOf(Isa::kAvxVnni), "avxvnni");
  EXPECT_EQ(NameOf(Isa::kAvx512), "avx512");
  EXPECT_EQ(NameOf(Isa::kI8mm), "i8mm");
}

// The choice is made once per process, so every case is a process of its own: it
// exits with the number of the instruction set it chose. It is a copy of this one, which has
// one thread and has chosen nothing yet; a program that is started anew would need the host's
// help where an emulator runs this one.
int ChoiceWith(const char* value) {
  if (value == nullptr) {
    unsetenv("WEFT_ISA");
  } else {
    setenv("WEFT_ISA", value, 1);
  }
  return static_cast<int>(PreferredIsa());
}

using IsaDeathTest = ::testing::Test;

TEST(IsaDeathTest, EnvironmentChooses) {
  for (Isa isa : AvailableIsas()) {
    const std::string name(NameOf(isa));
    EXPECT_EXIT(std::_Exit(ChoiceWith(name.c_str())),
                ::testing::ExitedWithCode(static_cast<int>(isa)), "");
  }
}

TEST(IsaDeathTest, FastestWithoutAWishOrWithAnUnknownOne) {
  const int fastest = static_cast<int>(AvailableIsas().back());
  EXPECT_EXIT(std::_Exit(ChoiceWith(nullptr)), ::testing::ExitedWithCode(fastest), "");
  EXPECT_EXIT(std::_Exit(ChoiceWith("sse9")), ::testing::ExitedWithCode(fastest), "");
}

}  // namespace
}  // namespace weft
