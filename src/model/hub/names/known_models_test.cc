#include "model/hub/names/known_models.h"

#include <set>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hub/names/model_name.h"

namespace weft::hub {
namespace {

TEST(KnownModelsTest, AreOrderedAndNamedAsTheHubKnowsThem) {
  std::set<std::string> names;
  const KnownModel* before = nullptr;
  for (const KnownModel& model : KnownModels()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    const auto name = ParseModelName(model.name, "https://huggingface.co");
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->kind, ModelName::Kind::kHub) << model.name;
    EXPECT_GE(model.context, 2048) << model.name;
    if (before != nullptr) {
      EXPECT_LE(std::tuple(before->use, before->file_gb), std::tuple(model.use, model.file_gb))
          << model.name;
    }
    before = &model;
  }
}

TEST(KnownModelsTest, CountsConversationsNextToTheModel) {
  const KnownModel model = {.name = "m",
                            .use = KnownModel::Use::kChat,
                            .about = "",
                            .file_gb = 1,
                            .context = 8192,
                            .kv_bytes_per_token = 100'000,
                            .license = ""};
  constexpr int64_t kGb = 1'000'000'000;
  EXPECT_EQ(ConversationsThatFit(model, 8192, kGb), 0);
  EXPECT_EQ(ConversationsThatFit(model, 8192, 2 * kGb), 0);
  EXPECT_EQ(ConversationsThatFit(model, 8192, 10 * kGb), 10);
  // No conversation is longer than the context.
  EXPECT_EQ(ConversationsThatFit(model, 80'000, 10 * kGb), 10);
  EXPECT_EQ(ConversationsThatFit(model, 8192, 10'000 * kGb), 999);
}

}  // namespace
}  // namespace weft::hub
