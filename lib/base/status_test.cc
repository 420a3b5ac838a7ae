#include "base/status.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"

namespace weft {
namespace {

TEST(StatusTest, APrefixKeepsWhatProgramsReadOfAnError) {
  Status status = Aborted("another server has it");
  status.SetPayload("weft/one", absl::Cord("1"));
  status.SetPayload("weft/two", absl::Cord("2"));
  const Status annotated = Annotate(status, "session ", 7, ": ");
  EXPECT_EQ(annotated.code(), StatusCode::kAborted);
  EXPECT_EQ(Message(annotated), "session 7: another server has it");
  EXPECT_EQ(annotated.GetPayload("weft/one"), "1");
  EXPECT_EQ(annotated.GetPayload("weft/two"), "2");
  EXPECT_EQ(Annotate(OkStatus(), "never: "), OkStatus());
}

}  // namespace
}  // namespace weft
