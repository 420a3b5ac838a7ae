#include "doors/host/presented_key.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

TEST(PresentedKey, StandsBehindBearerOrInAHeaderOfItsOwn) {
  for (const char* const authorization :
       {"Bearer key", "bearer key", "BEARER   key", "Bearer\tkey", "  Bearer key  "}) {
    EXPECT_EQ(ApiKeyOf(authorization, "other"), "key") << authorization;
  }
  EXPECT_EQ(ApiKeyOf("", "key"), "key");
  EXPECT_EQ(ApiKeyOf("", " key "), "key");
  EXPECT_EQ(ApiKeyOf("Basic a2V5", "key"), "key");
  EXPECT_EQ(ApiKeyOf("Bearerkey", "key"), "key");
  EXPECT_EQ(ApiKeyOf("Bearer", "key"), "key");
  EXPECT_EQ(ApiKeyOf("Bearer two words", ""), "two words");
  EXPECT_EQ(ApiKeyOf("", ""), "");
}

}  // namespace
}  // namespace weft::serve
