#include "doors/api/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "doors/api/page/page_files.h"
#include "tests/support/memory_responder.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PageTest : public ::testing::Test {
 protected:
  PageTest() { RegisterPage(router_, {.mcp_urls = {"https://tools.example:8443/mcp?a=b"}}); }

  weft::testing::MemoryResponder Get(std::string_view path, HttpHeaders headers = {},
                                     std::string_view method = "GET") {
    HttpRequest request;
    request.method = std::string(method);
    request.path = std::string(path);
    request.headers = std::move(headers);
    std::vector<std::string> segments;
    EXPECT_TRUE(SplitPath(path, &segments));
    Router::Match match = router_.Find(method, segments);
    weft::testing::MemoryResponder responder;
    if (match.route == nullptr) {
      ADD_FAILURE() << "nothing is at " << path;
      return responder;
    }
    EXPECT_TRUE(match.route->is_public) << path;
    EXPECT_FALSE(match.route->needs_model) << path;
    request.path_arguments = std::move(match.arguments);
    testing::RunHandler(*match.route, request, responder);
    return responder;
  }

  Router router_;
};

TEST_F(PageTest, EachFileHasItsType) {
  EXPECT_EQ(Get("/").type(), "text/html; charset=utf-8");
  EXPECT_EQ(Get("/page/app.js").type(), "text/javascript; charset=utf-8");
  EXPECT_EQ(Get("/page/app.css").type(), "text/css; charset=utf-8");
  EXPECT_EQ(Get("/page/icon.svg").type(), "image/svg+xml");
  EXPECT_EQ(Get("/page/app.woff2").type(), "font/woff2");
  for (const char* const path : {"/page/mcp_client.js", "/page/pdf.js", "/page/pdf_worker.js"}) {
    EXPECT_EQ(Get(path).type(), "text/javascript; charset=utf-8") << path;
  }
}

TEST_F(PageTest, NamesOnlyFilesThatAreThere) {
  const std::string html = Get("/").body();
  for (const char* const path : {"./page/app.js", "./page/app.css", "./page/icon.svg"}) {
    EXPECT_THAT(html, HasSubstr(path));
    EXPECT_EQ(Get(std::string(path).substr(1)).status(), 200) << path;
  }
}

TEST_F(PageTest, IsAsBigAsItsFiles) {
  // What reads PDFs is loaded with the first one.
  size_t bytes = 0, pdf_bytes = 0;
  for (const PageFile& file : PageFiles()) {
    EXPECT_FALSE(file.bytes.empty()) << file.name;
    (file.name.starts_with("pdf") ? pdf_bytes : bytes) += file.bytes.size();
  }
  EXPECT_LT(bytes, size_t{800} << 10);
  EXPECT_LT(pdf_bytes, size_t{1900} << 10);
  EXPECT_TRUE(Get("/").body().ends_with("</html>\n"));
}

TEST_F(PageTest, AllowsNothingButItself) {
  const auto page = Get("/");
  const std::string policy = page.Header("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'self';"));
  EXPECT_THAT(policy, HasSubstr("img-src 'self' data:;"));
  EXPECT_THAT(policy, HasSubstr("font-src 'self';"));
  EXPECT_THAT(policy, HasSubstr("require-trusted-types-for 'script'; trusted-types weft-pdf;"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  // What the operator named, and of that only the origin.
  EXPECT_TRUE(policy.ends_with("; connect-src 'self' https://tools.example:8443"));
  Router router;
  RegisterPage(router);
  weft::testing::MemoryResponder responder;
  testing::RunHandler(*router.Find("GET", {""}).route, HttpRequest{.path = "/"}, responder);
  EXPECT_THAT(responder.Header("Content-Security-Policy"), Not(HasSubstr("http")));
  EXPECT_EQ(page.Header("X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(page.body(), Not(HasSubstr("<style")));
}

TEST(OriginOfTest, TakesNothingElseIntoThePolicy) {
  EXPECT_EQ(*OriginOf("http://127.0.0.1:3000/mcp"), "http://127.0.0.1:3000");
  EXPECT_EQ(*OriginOf("https://tools.example"), "https://tools.example");
  EXPECT_EQ(*OriginOf("http://[::1]:3000?x"), "http://[::1]:3000");
  for (const char* const url :
       {"", "tools.example", "ftp://a", "https://", "https:///mcp", "https://*", "https://a b",
        "https://a;script-src", "https://a, https://b/", "https://u:p@a/", "https://a\nb",
        "javascript:alert(1)", "https://a'"}) {
    EXPECT_FALSE(OriginOf(url).ok()) << url;
  }
}

TEST_F(PageTest, IsSentAgainOnlyWhenItHasChanged) {
  const std::string tag = Get("/").Header("ETag");
  EXPECT_GT(tag.size(), 10u);
  EXPECT_NE(tag, Get("/page/app.js").Header("ETag"));
  for (const std::string& known : {tag, "W/" + tag, "\"older\", " + tag, std::string("*")}) {
    const auto answer = Get("/", {{"If-None-Match", known}});
    EXPECT_EQ(answer.status(), 304) << known;
    EXPECT_EQ(answer.body(), "");
    EXPECT_EQ(answer.Header("ETag"), tag);
  }
  EXPECT_EQ(Get("/", {{"If-None-Match", "\"older\""}}).status(), 200);
}

TEST_F(PageTest, IsForWhoCanReadIt) {
  EXPECT_EQ(Get("/", {{"Accept", "text/html,*/*"}}).type(), "text/html; charset=utf-8");
  EXPECT_EQ(Get("/", {{"Accept", "application/json"}}).body(), "Ollama is running");
  EXPECT_EQ(Get("/page/app.js", {{"Accept", "application/json"}}).type(),
            "text/javascript; charset=utf-8");
}

TEST_F(PageTest, HeadFindsIt) {
  const auto answer = Get("/page/app.css", {}, "HEAD");
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.type(), "text/css; charset=utf-8");
}

TEST_F(PageTest, WhatIsNotThereIsNotFound) {
  for (const char* const path : {"/page/other.js", "/page/index.htm", "/page/..%2Fapp.js"}) {
    const auto answer = Get(path);
    EXPECT_EQ(answer.status(), 404) << path;
    EXPECT_THAT(answer.body(), HasSubstr("the page has no file"));
  }
}

}  // namespace
}  // namespace weft::serve
