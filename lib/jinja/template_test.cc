// The template language, case by case, and the limits on untrusted templates.
#include "jinja/template.h"

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "json/big_integer.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

RenderOptions FixedOptions() {
  RenderOptions options;
  options.wall_clock_s = 1768480245;  // 2026-01-15 12:30:45
  return options;
}

StatusOr<std::string> Render(const std::string& source, const Json& context = Json::object(),
                             const RenderOptions& options = FixedOptions()) {
  WEFT_ASSIGN_OR_RETURN(const auto parsed, ChatTemplate::Parse(source));
  return parsed->Render(context, options);
}

std::string ErrorOf(const std::string& source, const Json& context = Json::object()) {
  const StatusOr<std::string> rendered = Render(source, context);
  return rendered.ok() ? "renders " + *rendered : std::string(Message(rendered.status()));
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Small templates and Jinja 3.1's output for them.
TEST(Jinja, LanguageCases) {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/lib/jinja/testdata/language_cases.json");
  ASSERT_TRUE(file.is_open());
  const Json data = Json::parse(file);
  std::map<std::string, int> per_group;
  for (const Json& c : data["cases"]) {
    const std::string source = c["template"];
    ++per_group[c["group"]];
    const StatusOr<std::string> actual = Render(source, data["context"]);
    if (c.contains("rendered")) {
      ASSERT_TRUE(actual.ok()) << source << ": " << Message(actual.status());
      EXPECT_EQ(*actual, c["rendered"].get<std::string>()) << source;
    } else {
      ASSERT_FALSE(actual.ok()) << source << " renders " << *actual;
      if (c.contains("raised")) {
        EXPECT_EQ(Message(actual.status()), c["raised"].get<std::string>()) << source;
      }
    }
  }
  EXPECT_GT(per_group.size(), 15u);
}

TEST(Jinja, ErrorsSayWhere) {
  EXPECT_EQ(ErrorOf("a\nb {{ x.y }}"), "chat template, line 2, column 8: 'x' is undefined");
  EXPECT_THAT(ErrorOf("{% if t %}"), HasSubstr("line 1, column 11: expected {% elif or else"));
  EXPECT_THAT(ErrorOf("{% zork %}"), HasSubstr("unknown statement 'zork'"));
  EXPECT_THAT(ErrorOf("{% include 'x' %}"), HasSubstr("cannot include other files"));
  EXPECT_THAT(ErrorOf("{{ 1|zork }}"), HasSubstr("Weft's templates have no filter `zork`"));
  EXPECT_THAT(ErrorOf("{{ d.a.b.c }}", {{"d", {{"a", Json::object()}}}}),
              HasSubstr("'dict object' has no attribute 'b'"));
}

// What no real template uses is refused by name, where it would run.
TEST(Jinja, RefusesByName) {
  EXPECT_EQ(ErrorOf("{{ 'a'|xmlattr }}"),
            "chat template, line 1, column 8: Weft's templates have no filter `xmlattr`");
  for (const auto& [source, refused] :
       std::map<std::string, std::string>{{"{{ [1]|map('urlencode') }}", "no filter `urlencode`"},
                                          {"{{ [1]|select('escaped')|list }}", "no test `escaped`"},
                                          {"{{ 1 is filter }}", "no test `filter`"},
                                          {"{{ 'a'.swapcase() }}", "no method `swapcase`"},
                                          {"{{ {}.popitem() }}", "no method `popitem`"},
                                          {"{{ cycler(1) }}", "no function `cycler`"},
                                          {"{{ '{0.a}'.format(1) }}", "not {0.a}"},
                                          {"{{ '{!r}'.format(1) }}", "not {!r}"}}) {
    EXPECT_THAT(ErrorOf(source), HasSubstr(refused)) << source;
  }
  EXPECT_EQ(*Render("{% if 0 %}{{ 'a'|xmlattr }}{% endif %}{{ 'a'.swapcase is defined }}"),
            "False");
}

TEST(Jinja, RaisedTextIsExact) {
  const auto raised =
      Render("{% macro m() %}{{ raise_exception('no %}\n' ~ 1) }}{% endmacro %}{{ m() }}");
  EXPECT_EQ(raised.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(raised.status()), "no %}\n1");
  EXPECT_EQ(Message(Render("{{ raise_exception('') }}").status()), "");
}

TEST(Jinja, ForeignBytesAndLargeNumbersOfAConversation) {
  EXPECT_EQ(*Render("{{ s|length }}{{ s|upper }}", {{"s", "a\xFFz"}}), "3A\xFFZ");
  EXPECT_EQ(*Render("{{ n }} {{ m }}", {{"n", INT64_MAX}, {"m", UINT64_MAX}}),
            "9223372036854775807 18446744073709551615");
  EXPECT_THAT(ErrorOf("{{ n + 1 }}", {{"n", INT64_MAX}}), HasSubstr("does not fit 64 bits"));
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_THAT(ErrorOf("{{ x }}", {{"x", deep}}), HasSubstr("nested"));
}

TEST(Jinja, IntegersBeyond64BitsKeepTheirDigits) {
  constexpr char kDigits[] = "-123456789012345678901234567890";
  const Json context = ParseKeepingIntegers(
      StrCat(R"({"a": {"id": )", kDigits, R"(, "f": 1e30, "u": 18446744073709551615}})"));
  EXPECT_EQ(*Render("{{ a.id }} {{ a|tojson }}", context),
            StrCat(kDigits, " {\"id\": ", kDigits, ", \"f\": 1e+30, \"u\": 18446744073709551615}"));
  EXPECT_EQ(*Render("{{ a.id is integer }} {{ a.id is float }} {{ a.id is number }} {{ a.id < 0 }} "
                    "{{ a.id == a.id }} {{ a.id|int == a.id }} {{ a.u is integer }}",
                    context),
            "True False True True True True True");
}

// Low limits, so that they are reached quickly; the default ones differ only in size.
Status Attack(const std::string& source) {
  RenderOptions options = FixedOptions();
  options.limits.max_steps = 2'000'000;
  options.limits.max_bytes = size_t{32} << 20;
  Json context = {{"list", Json::array()}, {"text", Repeated("a", 100000)}};
  for (int i = 0; i < 1000; ++i) context["list"].push_back(i);
  return Render(source, context, options).status();
}

// Like Python, except for errors that keep a list from containing itself.
TEST(Jinja, ListsAreAppendedToAndPopped) {
  EXPECT_EQ(*Render("{% set ns = namespace(l=[]) %}{% for i in range(3) %}"
                    "{% set _ = ns.l.append(i) %}{% endfor %}{{ ns.l }}{{ ns.l.pop(0) }}"
                    "{{ ns.l.pop() }}{{ ns.l }}"),
            "[0, 1, 2]02[1]");
  EXPECT_EQ(
      *Render("{% set l = [] %}{% set m = l %}{% for i in 'ab' %}{% set _ = l.append({'x': [i]}) %}"
              "{% endfor %}{{ m }}{% set c = m.copy() %}{% set d = m|list %}"
              "{% set _ = c.append(1) %}{% set _ = d.append(2) %}{{ m|length }}"),
      "[{'x': ['a']}, {'x': ['b']}]2");
  EXPECT_EQ(*Render("{% set l = [1, 2] %}{% for i in l %}{% if i < 4 %}"
                    "{% set _ = l.append(i + 2) %}{% endif %}{{ i }}{% endfor %}"),
            "12345");
  // An endless loop that must still end.
  EXPECT_FALSE(
      Attack("{% set l = [1] %}{% for i in l if not l.append(1) %}{{ i }}{% endfor %}").ok());
  for (const char* const source :
       {"{% set l = [] %}{% set _ = l.append(l) %}",
        "{% set l = [] %}{% set m = [l] %}{% set _ = l.append(m) %}",
        "{% set l = [[]] %}{% set m = [l] %}{% set _ = l.append(m) %}",
        "{% set l = [] %}{% set m = {'l': l} %}{% set _ = l.append([m]) %}",
        "{% set l = [] %}{% set _ = l.append(l.count) %}",
        "{% set l = [[1]] %}{% set _ = l.append([l.copy]) %}",
        "{% set l = [1] %}{% for i in l %}{% set _ = l.append(loop) %}{% endfor %}"}) {
    EXPECT_THAT(ErrorOf(source), HasSubstr("cannot be appended")) << source;
  }
  EXPECT_THAT(ErrorOf("{{ [].pop() }}"), HasSubstr("pop finds no such item"));
  EXPECT_THAT(ErrorOf("{% set f = [].append %}{{ f(1) }}"), HasSubstr("not allowed"));
  EXPECT_THAT(ErrorOf("{{ (1,).append(2) }}"), HasSubstr("no attribute 'append'"));
}

TEST(Jinja, OneTemplateManyThreads) {
  const auto parsed = *ChatTemplate::Parse(
      "{% set ns = namespace(t='') %}{% for i in range(50) %}{% set ns.t = ns.t ~ name|upper %}"
      "{% endfor %}{{ ns.t }}");
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::vector<std::string> results(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name(1, static_cast<char>('a' + t));
      for (int i = 0; i < 20; ++i) results[t] = *parsed->Render({{"name", name}}, FixedOptions());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) EXPECT_EQ(results[t], std::string(50, static_cast<char>('A' + t)));
}

// --- hostile templates ------------------------------------------------------

TEST(HostileTemplates, SlicesAndJsonCostAsMuchAsTheyAreLong) {
  for (const char* const work : {"text[1:]", "text|tojson", "[text]|string"}) {
    const auto times = [&](int n) {
      return Attack(StrCat("{% for i in range(", n, ") %}{{ (", work, ")|length }}{% endfor %}"));
    };
    EXPECT_TRUE(times(50).ok()) << work;
    EXPECT_EQ(times(300).code(), StatusCode::kResourceExhausted) << work;
  }
}

TEST(HostileTemplates, RunOutOfStepsOrMemory) {
  const char* const kSources[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ 'ab' * 9223372036854775807 }}",
      "{{ range(9999999999) }}",
      "{{ '%1000000s' % 1 * 1000 }}",
      "{{ ('x' * 1000000)|replace('x', text) }}",
      "{{ (list|map('string')|list * 10000)|join(text) }}",
      "{% set ns = namespace(l=1) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}{{ ns.l }}",
      "{% set ns = namespace(l=1) %}{% for i in range(190) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=1) %}{% for i in range(190) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l|tojson }}",
      "{% set ns = namespace(l=1,m=1) %}{% for i in range(190) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% call m(x) %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{{ "
      "m(1) }}",
      "{% for a in [list] recursive %}{{ loop([a]) }}{% endfor %}",
      "{% for a in range(100000) %}{% set x %}{% for b in list %}{{ text }}{% endfor %}{% endset "
      "%}{% endfor %}",
      "{% set ns = namespace(n=none) %}{% for a in range(100000) %}{% set ns.n = namespace(x=ns.n, "
      "t=text ~ a) %}{% endfor %}",
      "{% for a in range(100000) %}{% set m %}{{ text|upper|lower }}{% endset %}{% endfor %}",
      "{% for a in range(99999) %}{{ "
      "list|sort|reverse|list }}{% endfor %}",
      "{{ list|batch(1000000000, 1)|list }}",
      "{{ 'a'|indent(1000000000000, true) }}",
      "{% for i in range(100000) %}{{ text.rfind('b' * 50000) }}{% endfor %}",
      "{% for i in range(100000) %}{{ text.split('a')|length }}{% endfor %}",
      // Each of these few steps looks at much text.
      "{% for i in range(100) %}{{ text.count('a') }}{% endfor %}",
      "{% for i in range(100) %}{{ text.find('a' * 127 ~ 'b' ~ 'a' * 127) }}{% endfor %}",
      "{% for i in range(100) %}{{ text.replace('b' ~ 'a' * 199, '') }}{% endfor %}",
      "{% for i in range(100) %}{{ text.split('a' * 127 ~ 'b' ~ 'a' * 127)|length }}{% endfor %}",
      "{% for i in range(100) %}{{ 'b' ~ 'a' * 199 in text }}{% endfor %}",
      "{% set t = text ~ '' %}{% for i in range(1000) %}{{ text in [t] }}{% endfor %}",
      "{% set t = text ~ '' %}{% for i in range(1000) %}{{ text == t }}{% endfor %}",
      "{% set t = text ~ '' %}{% for i in range(1000) %}{{ text < t }}{% endfor %}",
      "{% set t = {text: 1} %}{% for i in range(1000) %}{{ text in t }}{% endfor %}",
  };
  for (const std::string source : kSources) {
    const Status status = Attack(source);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << source << ": " << Message(status);
  }
}

// What reads each character costs more than what copies them.
TEST(HostileTemplates, WorkOnEveryCharacterCounts) {
  const char* const kCalls[] = {
      "text.upper()",      "text.lower()",     "text.title()",      "text.capitalize()",
      "text.split()",      "text.rsplit()",    "text.splitlines()", "text.isalpha()",
      "text.isalnum()",    "digits.isdigit()", "space.isspace()",   "text[::3]",
      "space.strip()",     "space.lstrip()",   "space.rstrip()",    "text.strip('a')",
      "text.lstrip('ba')", "text.rstrip('a')", "text|upper",        "text|lower",
      "text|title",        "text|capitalize",  "space|trim",        "text|trim('a')",
      "text|indent",       "text|reverse",     "text[::-1]",        "text[::2]",
      "space|int",         "space|float",      "[text, 'b']|sort",  "[text, 'b']|unique|list"};
  for (const std::string call : kCalls) {
    const Status status =
        Attack(StrCat("{% set space = ' ' * 100000 %}{% set digits = '1' * 100000 %}"
                      "{% for i in range(100) %}"
                      "{% set q = ",
                      call, " %}{% endfor %}"));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << call << ": " << Message(status);
  }
  // A message with hardly any white space around it is stripped for next to nothing.
  const Status cheap =
      Attack("{% for i in range(100) %}{% set q = (text|trim).strip() %}{% endfor %}");
  EXPECT_TRUE(cheap.ok()) << cheap;
}

TEST(HostileTemplates, EndlessValuesAreErrors) {
  EXPECT_THAT(ErrorOf("{{ 2 ** 9223372036854775807 }}"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}"),
              HasSubstr("contains itself"));
  EXPECT_THAT(ErrorOf("{{ '%99999999999s' % 1 }}"), HasSubstr("width is too large"));
}

TEST(HostileTemplates, NestedTextIsRefused) {
  const int n = 20000;
  const std::string sources[] = {
      "{{ " + Repeated("(", n) + "1" + Repeated(")", n) + " }}",
      "{{ " + Repeated("[", n) + Repeated("]", n) + " }}",
      "{{ " + Repeated("-", n) + "1 }}",
      "{{ " + Repeated("not ", n) + "1 }}",
      "{{ x" + Repeated(".a", n) + " }}",
      "{{ x" + Repeated("|upper", n) + " }}",
      "{{ x" + Repeated("()", n) + " }}",
      "{{ " + Repeated("1 if 1 else ", n) + "1 }}",
      "{{ 1" + Repeated(" if 1", n) + " }}",
      "{{ x" + Repeated(" is in x", n) + " }}",
      Repeated("{% if 1 %}", n) + Repeated("{% endif %}", n),
      Repeated("{% for a in x %}", n),
      "{% set " + Repeated("(", n) + "a" + Repeated(")", n) + " = 1 %}",
      std::string(size_t{1} << 20, 'x'),
  };
  for (const std::string& source : sources) {
    EXPECT_FALSE(ChatTemplate::Parse(source).ok()) << source.substr(0, 40);
  }
}

TEST(HostileTemplates, LongButFlatTextIsFine) {
  const int n = 20000;
  EXPECT_EQ(*Render("{{ 0" + Repeated(" + 1", n) + " }}"), "20000");
  EXPECT_EQ(*Render("{{ ''" + Repeated(" ~ 'a'", n) + " }}"), std::string(n, 'a'));
  EXPECT_EQ(*Render("{{ ([0" + Repeated(", 1", n) + "])|sum }}"), "20000");
  EXPECT_EQ(*Render("{% if 0 %}" + Repeated("{% elif 0 %}", n) + "{% else %}x{% endif %}"), "x");
}

// Self-referencing values must not outlive their rendering (the leak checker looks).
TEST(HostileTemplates, CyclesAreFreed) {
  EXPECT_TRUE(Attack("{% set ns = namespace() %}{% set ns.a = [ns, {'x': ns}] %}").ok());
  EXPECT_TRUE(Attack("{% set ns = namespace() %}{% for a in list %}{% set ns.l = loop %}"
                     "{% set ns.c = loop.cycle %}{% endfor %}{{ ns.l.index }}")
                  .ok());
  EXPECT_TRUE(Attack("{% set ns = namespace() %}{% macro m() %}{% set ns.m = m %}{% set ns.j = "
                     "joiner(ns) %}{% endmacro %}{{ m() }}{{ ns.j is defined }}")
                  .ok());
  EXPECT_TRUE(
      Attack("{% set ns = namespace() %}{% for a in [1] %}{% set ns.f = loop.cycle %}{% endfor %}"
             "{{ ns.f(1, 2) }}")
          .ok());
}

TEST(ChatTemplate, MentionsItsVariables) {
  const auto parsed = *ChatTemplate::Parse("{% if enable_thinking %}{{ tools }}{% endif %}");
  EXPECT_TRUE(parsed->Mentions("enable_thinking"));
  EXPECT_TRUE(parsed->Mentions("tools"));
  EXPECT_FALSE(parsed->Mentions("documents"));
}

}  // namespace
}  // namespace weft
