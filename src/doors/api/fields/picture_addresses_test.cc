#include "doors/api/fields/picture_addresses.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PictureAddressesTest, AreWherePicturesMayBe) {
  EXPECT_THAT(PictureAddresses(R"({"messages": [{"role": "user", "content": [
                {"type": "text", "text": "http://no"},
                {"type": "image_url", "image_url": {"url": "https://a/1.png"}},
                {"type": "image_url", "image_url": "http://a/2.png"}]}]})"),
              ElementsAre("https://a/1.png", "http://a/2.png"));
  EXPECT_THAT(PictureAddresses(R"({"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": "https://a/3.png"}]}]})"),
              ElementsAre("https://a/3.png"));
  EXPECT_THAT(PictureAddresses(R"({"messages": [{"content": [
                {"type": "image", "source": {"type": "url", "url": "https://a/4.png"}},
                {"type": "tool_result", "content": [
                  {"type": "image", "source": {"type": "url", "url": "https://a/5.png"}}]}]}]})"),
              ElementsAre("https://a/4.png", "https://a/5.png"));
  EXPECT_THAT(PictureAddresses(R"({"messages": [{"images": ["http://a/6.png", "aGk="]}]})"),
              ElementsAre("http://a/6.png"));
  EXPECT_THAT(PictureAddresses(R"({"prompt": [{"multimodal_data": ["http://a/7.png"]}]})"),
              ElementsAre("http://a/7.png"));
}

TEST(PictureAddressesTest, AreNowhereElse) {
  EXPECT_THAT(PictureAddresses(R"({"url": "http://a", "image_url": "http://b", "content": [
                {"type": "document", "source": {"type": "url", "url": "http://c"}},
                {"type": "image_url", "image_url": "data:image/png;base64,aHR0cDovLw=="},
                {"type": "image_url", "image_url": {"url": "ftp://d"}}]})"),
              IsEmpty());
  EXPECT_THAT(PictureAddresses("http://"), IsEmpty());
  EXPECT_THAT(PictureAddresses(""), IsEmpty());
}

TEST(PictureAddressesTest, AreOnceEachAndNoMoreThanARequestMayHave) {
  EXPECT_THAT(PictureAddresses(R"({"images": ["http://a", "http://a"]})"), SizeIs(1));
  std::string body = R"({"images": ["http://a")";
  for (int i = 0; i < 200; ++i) body += ", \"http://a/" + std::to_string(i) + "\"";
  EXPECT_THAT(PictureAddresses(body + "]}"), SizeIs(100));
}

}  // namespace
}  // namespace weft::serve
