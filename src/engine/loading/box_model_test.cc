#include "engine/loading/box_model.h"

#include <gtest/gtest.h>

#include "weft/engine.h"

namespace weft {
namespace {

TEST(BoxModel, IsReachableThroughThePublicHeaders) {
  const auto model = Model::LoadBuiltIn({.n_threads = 1});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->path(), kBoxModelName);
  EXPECT_FALSE((*model)->chat_template().empty());
  const auto engine = Engine::Start(*model, {.n_threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto turn = (*engine)->SubmitOnce(
      "", {.tokens = (*model)->Encode("The loom", true, false), .max_tokens = 3});
  ASSERT_TRUE(turn.ok()) << turn.status();
  int n_tokens = 0;
  while (auto event = (*turn)->Next()) n_tokens += std::holds_alternative<TokenEvent>(*event);
  EXPECT_GE(n_tokens, 1);
}

}  // namespace
}  // namespace weft
