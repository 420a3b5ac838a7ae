// Pictures with a tiny model and a tiny projector of random weights: each is encoded once, and its
// bits do not depend on the engine's other work.
#include "answer/pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "model/formats/model_file.h"
#include "tests/support/engine_harness.h"
#include "tools/make_projector.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;

// A BMP of one pattern per seed, with 24 bits per pixel.
std::shared_ptr<const PictureFile> Drawn(int seed, int width = 84, int height = 84) {
  const int row_bytes = (width * 3 + 3) / 4 * 4;
  std::string file = "BM";
  const auto add = [&](uint32_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) file += static_cast<char>(value >> (8 * i));
  };
  add(static_cast<uint32_t>(54 + row_bytes * height), 4), add(0, 4), add(54, 4);
  add(40, 4), add(static_cast<uint32_t>(width), 4), add(static_cast<uint32_t>(height), 4);
  add(1, 2), add(24, 2);
  for (int i = 0; i < 6; ++i) add(0, 4);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < row_bytes; ++x) add(static_cast<uint32_t>(x * 5 + y * seed * 7 + seed), 1);
  }
  return std::make_shared<const PictureFile>(std::move(file));
}

// The answers to asks, in the order of the asks.
class Answers {
 public:
  using Encoded = StatusOr<Pictures::Encoded>;

  void Ask(Pictures& pictures, const std::shared_ptr<const PictureFile>& file,
           std::string_view tenant = "", std::stop_token left = {}) {
    size_t place;
    {
      const std::lock_guard lock(mutex_);
      place = all_.size();
      all_.emplace_back();
    }
    pictures.Encode(tenant, file, std::move(left), [this, place](Encoded encoded) {
      const std::lock_guard lock(mutex_);
      all_[place] = std::move(encoded);
      arrived_.notify_all();
    });
  }
  std::vector<Encoded> All() {
    std::unique_lock lock(mutex_);
    const auto is_there = [](const std::optional<Encoded>& one) { return one.has_value(); };
    EXPECT_TRUE(arrived_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return std::ranges::all_of(all_, is_there); }));
    std::vector<Encoded> all;
    for (std::optional<Encoded>& one : all_)
      all.push_back(std::move(one).value_or(Unavailable("")));
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::optional<Encoded>> all_;
};

class PicturesTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const vision::PictureEncoder> Load(const char* shape_name) {
    tools::ProjectorShape shape = *tools::FindProjectorShape(shape_name);
    shape.width = testing::TinyModel("llama")->row_width();
    const std::string path =
        ::testing::TempDir() + "weft_pictures_" + std::to_string(getpid()) + ".gguf";
    EXPECT_TRUE(tools::MakeProjector(shape, {.type = "F32"}, path).ok());
    auto file = ModelFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    auto spec = BuildPictureSpec(**file);
    EXPECT_TRUE(spec.ok()) << spec.status();
    auto encoder = vision::PictureEncoder::Load(*file, *std::move(spec),
                                                &testing::TinyModel("llama")->backend(), {});
    EXPECT_TRUE(encoder.ok()) << encoder.status();
    std::filesystem::remove(path);
    return *std::move(encoder);
  }
  static std::unique_ptr<Engine> StartEngine() {
    EngineOptions options;
    options.n_threads = 2;
    options.memory_bytes = int64_t{32} << 20;
    options.step_ms = 1;
    auto engine = Engine::Start(testing::TinyModel("llama"), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  void SetUp() override {
    encoder_ = Load("tiny-idefics3-mmproj");
    engine_ = StartEngine();
    pictures_ = std::make_unique<Pictures>(encoder_, engine_.get(), int64_t{1} << 24);
  }
  static std::vector<float> ValuesOf(const Answers::Encoded& encoded) {
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    std::vector<float> values;
    if (!encoded.ok()) return values;
    for (const vision::Grid& view : (*encoded)->views) {
      values.insert(values.end(), view.values.begin(), view.values.end());
    }
    return values;
  }

  std::shared_ptr<const vision::PictureEncoder> encoder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Pictures> pictures_;
};

TEST_F(PicturesTest, AreEncodedOnceForAllOfATenant) {
  Answers answers;
  for (int i = 0; i < 6; ++i) answers.Ask(*pictures_, Drawn(1, 200, 120));
  const auto first = answers.All();
  for (const auto& one : first) EXPECT_EQ(*one, *first[0]) << "the same object";
  answers.Ask(*pictures_, Drawn(1, 200, 120));
  EXPECT_EQ(*answers.All().back(), *first[0]) << "found again";
  EXPECT_EQ(pictures_->stats().encoded, 1);
  EXPECT_EQ(pictures_->stats().found + pictures_->stats().shared, 6);
  answers.Ask(*pictures_, Drawn(1, 200, 120), "another tenant");
  EXPECT_EQ(ValuesOf(answers.All().back()), ValuesOf(first[0]));
  EXPECT_EQ(pictures_->stats().encoded, 2) << "nobody finds another's";
}

TEST_F(PicturesTest, OfOneSizeAreDifferent) {
  Answers answers;
  for (int seed = 0; seed < 5; ++seed) answers.Ask(*pictures_, Drawn(seed));
  const auto all = answers.All();
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ValuesOf(all[i]), ValuesOf(all[j]));
  }
  EXPECT_EQ(pictures_->stats().encoded, 5);
}

TEST_F(PicturesTest, TheBitsAreTheSameBesideTurns) {
  std::vector<std::vector<float>> alone;
  for (int seed = 0; seed < 3; ++seed) {
    Answers answers;
    answers.Ask(*pictures_, Drawn(seed, 150, 100 + 50 * seed));
    alone.push_back(ValuesOf(answers.All()[0]));
  }
  const auto cold = std::make_unique<Pictures>(encoder_, engine_.get(), 0);
  std::vector<std::shared_ptr<Turn>> turns;
  for (int32_t i = 0; i < 3; ++i) {
    TurnOptions turn;
    turn.tokens.assign(200, 30 + i);
    turn.max_tokens = 100;
    turn.ignore_eos = true;
    auto submitted = engine_->SubmitOnce("", turn);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    turns.push_back(*std::move(submitted));
  }
  Answers answers;
  for (int seed = 0; seed < 3; ++seed) answers.Ask(*cold, Drawn(seed, 150, 100 + 50 * seed));
  const auto all = answers.All();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(ValuesOf(all[i]), alone[i]);
  for (const auto& turn : turns) {
    while (const auto event = turn->Next()) {
      if (const auto* done = std::get_if<DoneEvent>(&*event)) {
        EXPECT_EQ(done->usage.completion_tokens, 100);
      }
    }
  }
}

TEST_F(PicturesTest, AreMeasuredWithoutBeingEncoded) {
  for (const char* shape :
       {"tiny-idefics3-mmproj", "tiny-pixtral-mmproj", "tiny-mistral3-mmproj"}) {
    Pictures pictures(Load(shape), engine_.get(), 0);
    for (const auto& [width, height] : {std::pair(84, 84), {20, 300}, {333, 90}}) {
      const auto file = Drawn(1, width, height);
      Answers answers;
      answers.Ask(pictures, file);
      const auto encoded = answers.All();
      const auto measured = pictures.Measure("", *file);
      ASSERT_TRUE(measured.ok() && encoded[0].ok()) << measured.status() << encoded[0].status();
      ASSERT_EQ(measured->views.size(), (*encoded[0])->views.size());
      for (size_t i = 0; i < measured->views.size(); ++i) {
        EXPECT_EQ(measured->views[i].rows, (*encoded[0])->views[i].rows);
        EXPECT_EQ(measured->views[i].columns, (*encoded[0])->views[i].columns);
        EXPECT_EQ(std::ssize(measured->views[i].values), measured->views[i].count());
      }
    }
  }
}

TEST_F(PicturesTest, FilesThatAreNoneAreRefused) {
  Answers answers;
  answers.Ask(*pictures_, std::make_shared<const PictureFile>("no picture"));
  answers.Ask(*pictures_, std::make_shared<const PictureFile>(Drawn(1)->bytes.substr(0, 1000)));
  answers.Ask(*pictures_, Drawn(1, 2001, 10));
  answers.Ask(*pictures_, Drawn(1));
  const auto all = answers.All();
  EXPECT_EQ(all[0].status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(all[1].status())), HasSubstr("BMP"));
  EXPECT_THAT(std::string(Message(all[2].status())), HasSubstr("longer side"));
  EXPECT_TRUE(all[3].ok()) << "others are not affected";
}

// Work that keeps the engine's thread until it is told to end.
class Blocker : public SideWork {
 public:
  bool Advance(const Executor&, const std::function<bool()>& pause) override {
    while (!ended_ && !pause()) std::this_thread::yield();
    return ended_;
  }
  void End() { ended_ = true; }

 private:
  std::atomic<bool> ended_{false};
};

TEST_F(PicturesTest, ThoseThatNobodyWaitsForAreGivenUp) {
  // A pause of the blocker would let the pictures begin.
  const auto blocker = std::make_shared<Blocker>();
  engine_->RunBeside(blocker);
  Answers answers;
  std::stop_source leaves, stays;
  answers.Ask(*pictures_, Drawn(1), "", leaves.get_token());
  answers.Ask(*pictures_, Drawn(2), "", leaves.get_token());
  answers.Ask(*pictures_, Drawn(2), "", stays.get_token());
  leaves.request_stop();
  answers.Ask(*pictures_, Drawn(3), "", leaves.get_token());
  blocker->End();
  const auto all = answers.All();
  EXPECT_EQ(all[0].status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(all[2].ok()) << "somebody still waits";
  EXPECT_EQ(all[3].status().code(), StatusCode::kCancelled);
  EXPECT_EQ(pictures_->stats().encoded, 1);
  answers.Ask(*pictures_, Drawn(1));
  EXPECT_TRUE(answers.All().back().ok()) << "it can be asked for again";
}

TEST_F(PicturesTest, WhoWaitsIsToldThatTheEngineHasShutDown) {
  Answers answers;
  ASSERT_TRUE(engine_->Shutdown(std::chrono::milliseconds(0)).ok());
  answers.Ask(*pictures_, Drawn(1));
  EXPECT_EQ(answers.All()[0].status().code(), StatusCode::kUnavailable);
}

TEST_F(PicturesTest, MarksAreTheSameForTheSamePictures) {
  EXPECT_EQ(MarkOf(*Drawn(1), 0), MarkOf(*Drawn(1), 0));
  EXPECT_NE(MarkOf(*Drawn(1), 0), MarkOf(*Drawn(1), 1));
  EXPECT_NE(MarkOf(*Drawn(1), 0), MarkOf(*Drawn(2), 0));
}

TEST_F(PicturesTest, ARequestHasAMarkForEachOfItsPictures) {
  std::vector<AskedPicture> pictures;
  std::set<std::string> marks;
  for (size_t i = 0; i < kMaxPictures; ++i) {
    const auto mark = AddPicture(i % 2 == 0 ? "one" : "other", "here", &pictures);
    ASSERT_TRUE(mark.ok()) << mark.status();
    marks.insert(*mark);
    EXPECT_EQ(pictures.back().mark, *mark);
    EXPECT_EQ(pictures.back().place, "here");
  }
  EXPECT_EQ(marks.size(), kMaxPictures);
  EXPECT_TRUE(marks.contains(MarkOf(PictureFile("one"), 0)));
  EXPECT_TRUE(marks.contains(MarkOf(PictureFile("other"), kMaxPictures / 2 - 1)));
  const Status refused = AddPicture("one more", "there", &pictures).status();
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("there: a request may have at most 100"));
  EXPECT_EQ(pictures.size(), kMaxPictures);
}

TEST_F(PicturesTest, ProjectorsOfOtherModelsAreRefused) {
  const Model& model = *testing::TinyModel("llama");
  EXPECT_TRUE(CheckProjector(encoder_->spec(), model).ok());
  EXPECT_THAT(std::string(Message(CheckVocabulary(encoder_->spec(), model))),
              HasSubstr("no token <fake_token_around_image>"));
  PictureSpec wider = encoder_->spec();
  wider.width += 1;
  EXPECT_THAT(std::string(Message(CheckProjector(wider, model))), HasSubstr("another model"));
  EXPECT_THAT(std::string(Message(CheckProjector(encoder_->spec(), *testing::TinyModel("gemma3")))),
              HasSubstr("scales its embeddings"));
  EXPECT_THAT(std::string(Message(CheckProjector(Load("tiny-gemma3-mmproj")->spec(), model))),
              HasSubstr("does not scale its embeddings"));
  EXPECT_THAT(std::string(Message(CheckProjector(Load("tiny-qwen2.5vl-mmproj")->spec(), model))),
              HasSubstr("no positions for the rows and columns"));
}

// A prompt's texts and the picture's own are encoded together.
TEST_F(PicturesTest, StandInAPromptBetweenTheirTexts) {
  const Model& model = *testing::TinyModel("llama");
  const auto measured = pictures_->Measure("", *Drawn(1, 84, 84));
  ASSERT_TRUE(measured.ok()) << measured.status();
  EmbeddedRows one = pictures_->RowsOf("<mark>", *measured);
  const auto parts = PartsOfPrompt(model, "before <mark> after", {}, {one});
  ASSERT_TRUE(parts.ok()) << parts.status();
  std::string text;
  int64_t n_rows = 0;
  for (const PromptPart& part : *parts) {
    text += model.Decode(part.tokens, /*render_special=*/false);
    n_rows += std::ssize(part.rows);  // of one value each
  }
  EXPECT_THAT(text, HasSubstr("before <fake_token_around_image><row_1_col_1>"));
  EXPECT_THAT(text, HasSubstr("<fake_token_around_image> after"));
  int64_t expected = 0;
  for (const vision::Grid& view : measured->views) expected += view.count();
  EXPECT_EQ(n_rows, expected);
  EXPECT_FALSE(PartsOfPrompt(model, "nothing", {}, {one}).ok());
  EXPECT_FALSE(PartsOfPrompt(model, "<mark><mark>", {}, {one}).ok());
}

}  // namespace
}  // namespace weft::serve
