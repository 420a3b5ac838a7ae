#include "cli/chat/room.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "answer/pictures.h"
#include "async/wait_for_task.h"
#include "engine/vision/encoder.h"
#include "model/formats/model_file.h"
#include "tests/support/engine_harness.h"
#include "tools/make_projector.h"

namespace weft::cli {
namespace {

class ChatRoomTest : public ::testing::Test {
 protected:
  ChatRoomTest() { std::filesystem::create_directories(folder_); }
  ~ChatRoomTest() override { std::filesystem::remove_all(folder_); }

  void SetUp() override {
    const std::shared_ptr<const Model> model = testing::TinyModel("llama");
    auto engine = Engine::Start(model, {.memory_bytes = int64_t{32} << 20});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto encoder = LoadProjector(*model);
    ASSERT_TRUE(encoder.ok()) << encoder.status();
    pictures_ = std::make_shared<serve::Pictures>(*std::move(encoder), engine_.get(), 1 << 20);
    auto room = ChatRoom::Create(engine_.get(), model, pictures_, [](std::string_view) {});
    ASSERT_TRUE(room.ok()) << room.status();
    room_ = *std::move(room);
    ASSERT_TRUE(room_->New("kitchen", "").ok());
  }

  StatusOr<std::shared_ptr<const vision::PictureEncoder>> LoadProjector(const Model& model) const {
    tools::ProjectorShape shape = *tools::FindProjectorShape("tiny-pixtral-mmproj");
    shape.width = model.row_width();
    const std::string path = folder_ + "/projector.gguf";
    WEFT_RETURN_IF_ERROR(tools::MakeProjector(shape, {.type = "F32"}, path).status());
    WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
    WEFT_ASSIGN_OR_RETURN(auto spec, BuildPictureSpec(*file));
    return vision::PictureEncoder::Load(file, std::move(spec), &model.backend(), {});
  }

  // A bitmap of one pixel with 24 bits.
  std::string Picture() const {
    const std::string path = folder_ + "/dot.bmp";
    const std::string head("BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18",
                           29);
    std::ofstream(path, std::ios::binary) << head << std::string(25, '\0') << "abc" << '\0';
    return path;
  }

  ChatRoom::Waiting::Begun Ask(std::stop_token left) {
    const auto wait = [&](Task<ChatRoom::Waiting::Begun> task) {
      return WaitForTask(room_->pool(), std::move(task));
    };
    return room_->Ask(room_->WithAttached("What is it?"), testing::Greedy({}, 4),
                      {std::move(left), wait});
  }

  const std::string folder_ = ::testing::TempDir() + "weft_room_" + std::to_string(getpid());
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<serve::Pictures> pictures_;
  std::unique_ptr<ChatRoom> room_;
};

TEST_F(ChatRoomTest, PicturesThatNobodyWaitsForAreNotEncoded) {
  ASSERT_TRUE(room_->Attach(Picture()).ok());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(Ask(stop.get_token()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(pictures_->stats().encoded, 0);
  EXPECT_TRUE(room_->current().messages.empty());

  // The next question has the picture.
  const auto answer = Ask({});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(pictures_->stats().encoded, 1);
  ASSERT_EQ(room_->current().messages.size(), 1);
  EXPECT_EQ(TextOf(room_->current().messages[0]),
            room_->current().pictures[0].mark + "What is it?");
}

}  // namespace
}  // namespace weft::cli
