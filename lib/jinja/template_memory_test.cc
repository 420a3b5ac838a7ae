// A template holds no more memory than its limit says: measured in the allocator, not asked of the
// meter.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>

#include "gtest/gtest.h"
#include "jinja/template.h"
#include "nlohmann/json.hpp"

namespace {

// This program has one thread.
size_t g_live_bytes = 0;
size_t g_peak_bytes = 0;

// Before each allocation: its size, aligned like any.
constexpr size_t kHeadBytes = alignof(std::max_align_t);

void* Counted(size_t bytes) {
  auto* const memory = static_cast<char*>(std::malloc(kHeadBytes + bytes));
  if (memory == nullptr) std::abort();
  std::memcpy(memory, &bytes, sizeof(bytes));
  g_live_bytes += bytes;
  g_peak_bytes = std::max(g_peak_bytes, g_live_bytes);
  return memory + kHeadBytes;
}

void Uncounted(void* given) {
  if (given == nullptr) return;
  char* const memory = static_cast<char*>(given) - kHeadBytes;
  size_t bytes = 0;
  std::memcpy(&bytes, memory, sizeof(bytes));
  g_live_bytes -= bytes;
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Counted(bytes); }
void* operator new[](size_t bytes) { return Counted(bytes); }
void operator delete(void* memory) noexcept { Uncounted(memory); }
void operator delete[](void* memory) noexcept { Uncounted(memory); }
void operator delete(void* memory, size_t) noexcept { Uncounted(memory); }
void operator delete[](void* memory, size_t) noexcept { Uncounted(memory); }

namespace weft {
namespace {

constexpr size_t kLimitBytes = size_t{16} << 20;
// Not counted: messages of errors, and pieces of text that are being escaped.
constexpr size_t kBesideBytes = size_t{1} << 20;

struct Measured {
  bool rendered = false;
  std::string error;
  size_t peak_bytes = 0;
};

Measured Measure(const std::string& source, const nlohmann::ordered_json& context) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return {.error = std::string(Message(parsed.status()))};
  RenderOptions options;
  options.limits.max_bytes = kLimitBytes;
  options.limits.max_steps = 3'000'000;
  const size_t before = g_peak_bytes = g_live_bytes;
  const StatusOr<std::string> text = (*parsed)->Render(context, options);
  Measured measured{.rendered = text.ok(), .peak_bytes = g_peak_bytes - before};
  if (!text.ok()) measured.error = Message(text.status());
  return measured;
}

// Programs that grow until they are stopped, by every means that the language has.
const char* const kHungry[] = {
    // Texts.
    "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}{% set ns.s = ns.s ~ "
    "ns.s "
    "%}{% endfor %}",
    "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}{% set ns.s = ns.s + "
    "ns.s "
    "%}{% endfor %}",
    "{{ '0123456789' * 3000000 }}",
    "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% set s %}{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}",
    "{% set s = '<' * 5000000 %}{{ s | escape | escape | length }}",
    "{% set s = '\"' * 7000000 %}{{ s | tojson | length }}",
    "{% set s = '\\n' * 7000000 %}{{ [s] | string | length }}",
    "{% set s = 'a' * 7000000 %}{{ s | upper | lower | title | length }}",
    "{% set s = 'a ' * 3000000 %}{{ s | replace(' ', 'bcdefgh') | length }}",
    "{% set s = 'a\\n' * 3000000 %}{{ s | indent(40) | length }}",
    "{% for i in range(99) %}{{ '%9999d' % 7 }}{{ '{:>9999}'.format(7) * 999 }}{% endfor %}",
    "{% set s = 'a' * 7000000 %}{{ s[::-1] | length }}",
    "{% set s = 'a' * 7000000 %}{{ s | reverse | length }}",
    // Lists.
    "{% set s = 'a' * 1000000 %}{{ s | list | length }}",
    "{% set s = 'a ' * 1000000 %}{{ s.split() | length }}",
    "{% set s = 'a,' * 1000000 %}{{ s.split(',') | length }}",
    "{% set s = '\\n' * 1500000 %}{{ s.splitlines() | length }}",
    "{% set ns = namespace(l=[1, 2, 3]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}"
    "{% endfor %}",
    "{{ ([1, 2, 3] * 5000000) | length }}",
    "{% set l = [] %}{% for i in range(100000) %}{% for j in range(100) %}{% set _ = l.append(j) %}"
    "{% endfor %}{% endfor %}",
    "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append([i]) %}{% endfor %}"
    "{% set k = [] %}{% for i in range(100000) %}{% set _ = k.append(['a' ~ i]) %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l, range(9000) | "
    "list]"
    " %}{% endfor %}",
    "{% set l = range(100000) | list %}{{ (l | sort | list) + (l | reverse | list) + (l | unique | "
    "list) }}",
    "{% set l = range(100000) | list %}{{ l | map('string') | list | length }}",
    "{% set l = range(90000) | list %}{{ l | batch(2) | list | length }}",
    "{% set l = range(100000) | list %}{{ l[::-1] + l[1:] + l[::2] + l[:-1] + l }}",
    "{% set l = range(100000) | list %}{% for i in l if i > 3 %}{% for j in l if j > 3 %}{% for k "
    "in "
    "l if k > 3 %}{{ i }}{% endfor %}{% endfor %}{% endfor %}",
    "{% set l = range(100000) | list %}{{ '%s' % (l | join('abcdefghijklmnopqrstuvwxyz')) }}",
    // Dicts, namespaces, frames, arguments.
    "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{'k' ~ "
    "i: "
    "i}) %}{% endfor %}",
    "{{ dict(range(100000) | map('string') | batch(2)) | length }}",
    "{% set d = dict(big) %}{% set e = dict(d) %}{{ d | dictsort | length }}{{ d | items | list | "
    "length }}{{ d | tojson | length }}",
    "{% macro f() %}{{ varargs | length }}{{ f(*(varargs + varargs)) }}{% endmacro %}{{ f(*([1] "
    "* 1000)) }}",
    "{% macro f() %}{{ kwargs | length }}{{ varargs | length }}{% endmacro %}{{ f(*([1] * 90000), "
    "**big) }}",
    "{% macro f(n) %}{% set a = 'x' * 10000 %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ "
    "f(400) }}",
    "{% set l = [] %}{% for i in range(100000) %}{% macro m() %}{{ i }}{% endmacro %}{% set _ = "
    "l.append(m) %}{% endfor %}",
    "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(namespace(a=i, b=i, c=i)) %}"
    "{% endfor %}",
    "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append(joiner('ab' ~ i)) %}"
    "{% endfor %}",
    "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append('abc'.upper) %}{% set _ = "
    "l.append(loop.cycle) %}{% endfor %}",
    "{% set l = range(100000) | list %}{% for i in l %}{{ loop.cycle(*l) }}{% endfor %}",
    "{{ raise_exception('abcdefgh' * 1500000) }}",
};

TEST(TemplateMemory, HoldsNoMoreThanItsLimit) {
  nlohmann::ordered_json context;
  for (int i = 0; i < 50000; ++i) context["big"]["key_number_" + std::to_string(i)] = i;
  size_t n_stopped = 0;
  for (const char* source : kHungry) {
    const Measured measured = Measure(source, context);
    EXPECT_LE(measured.peak_bytes, kLimitBytes + kBesideBytes) << source << "\n" << measured.error;
    n_stopped += measured.error.find("needs more than") != std::string::npos ? 1 : 0;
  }
  // Most of these meet the limit: they measure something.
  EXPECT_GE(n_stopped, std::size(kHungry) / 2);
}

// What fits by its content fits: the meter does not charge many times what is there.
TEST(TemplateMemory, LeavesRoomForWhatFits) {
  for (const char* source : {
           "{{ 'a' * 4000000 }}",
           "{% set s = 'a' * 3000000 %}{{ s | upper | length }}",
           "{% set s %}{% for i in range(3000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}{{ s | "
           "length }}",
           "{% set l = range(100000) | list %}{{ l | length }}",
       }) {
    const Measured measured = Measure(source, nlohmann::ordered_json::object());
    EXPECT_TRUE(measured.rendered) << source << ": " << measured.error;
    EXPECT_GE(measured.peak_bytes, size_t{2} << 20) << source;
  }
}

}  // namespace
}  // namespace weft
