// Where templates put pictures: a mark replaces the template's own text for one.
#include "answer/chat/chat_format_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Like SmolVLM's: a picture at the beginning changes what comes before it.
constexpr char kOfParts[] =
    "{% for m in messages %}{{ m.role }}{% if m.content[0]['type'] == 'image' %}:{% else %}: "
    "{% endif %}{% for line in m.content %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}<image>{% endif %}{% endfor %}\n{% endfor %}";
// Like Qwen's: a content is a text or a list of parts.
constexpr char kOfBoth[] =
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' or 'image' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}";
constexpr char kOfTexts[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}";

std::string Shown(const char* source, const char* content) {
  ChatRequest request;
  request.add_generation_prompt = false;
  request.conversation.messages = {{.role = Role::kUser, .parts = {content}}};
  request.pictures = {"<#1>", "<#2>"};
  return Rendered(*Format(source), request).text;
}

TEST(PictureTemplatesTest, APictureStandsWhereTheTemplatePutsIt) {
  EXPECT_EQ(Shown(kOfParts, "<#1>What?"), "user:<#1>What?");
  EXPECT_EQ(Shown(kOfParts, "See <#1> and <#2>."), "user: See <#1> and <#2>.");
  EXPECT_EQ(Shown(kOfParts, "<#2><#1>"), "user:<#2><#1>");
  EXPECT_EQ(Shown(kOfParts, "none"), "user: none");
  EXPECT_EQ(Shown(kOfBoth, "<#1>What?"), "[user]<#1>What?");
  EXPECT_EQ(Shown(kOfBoth, "none"), "[user]none");
}

TEST(PictureTemplatesTest, ATemplateWithoutPicturesShowsTheMarkAsText) {
  EXPECT_EQ(Shown(kOfTexts, "See <#1>!"), "[user]See <#1>!\n");
}

// A text from the user is never taken for a picture.
TEST(PictureTemplatesTest, TextThatLooksLikeAPictureStays) {
  EXPECT_EQ(Shown(kOfBoth, "<image> <#1> <|image_pad|> <#9>"),
            "[user]<image> <#1> <|image_pad|> <#9>");
}

}  // namespace
}  // namespace weft
