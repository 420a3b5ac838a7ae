#include "doors/http/router.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

bool IsPlaceholder(std::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

bool Matches(const std::vector<std::string>& pattern, const std::vector<std::string>& segments) {
  if (pattern.size() != segments.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (IsPlaceholder(pattern[i]) ? segments[i].empty() : pattern[i] != segments[i]) return false;
  }
  return true;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool PercentDecode(std::string_view text, bool plus_is_space, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexValue(text[i + 1]), low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return false;
    out->push_back(c);
  }
  return true;
}

bool SplitPath(std::string_view path, std::vector<std::string>* segments) {
  segments->clear();
  if (!path.starts_with('/')) return false;
  for (const std::string_view part : StrSplit(path.substr(1), '/')) {
    if (!PercentDecode(part, /*plus_is_space=*/false, &segments->emplace_back())) return false;
  }
  return true;
}

void Router::Add(Route route) {
  Entry entry;
  for (const std::string_view part : StrSplit(std::string_view(route.pattern).substr(1), '/')) {
    entry.segments.emplace_back(part);
  }
  entry.route = std::move(route);
  entries_.push_back(std::move(entry));
}

void Router::Add(std::string_view method, std::string_view pattern, ErrorShape shape,
                 HttpHandler handler) {
  Add({.method = std::string(method),
       .pattern = std::string(pattern),
       .shape = shape,
       .handler = std::move(handler)});
}

void Router::AddTask(std::string_view method, std::string_view pattern, ErrorShape shape,
                     HttpTask task) {
  Add({.method = std::string(method),
       .pattern = std::string(pattern),
       .shape = shape,
       .task = std::move(task)});
}

void Router::AddStream(std::string_view method, std::string_view pattern, ErrorShape shape,
                       HttpTask task) {
  Add({.method = std::string(method),
       .pattern = std::string(pattern),
       .shape = shape,
       .task = std::move(task),
       .streams_events = true});
}

void Router::AddQuick(std::string_view method, std::string_view pattern, ErrorShape shape,
                      HttpHandler handler) {
  Add({.method = std::string(method),
       .pattern = std::string(pattern),
       .shape = shape,
       .handler = std::move(handler),
       .is_quick = true});
}

void Router::SetShapeBelow(std::string_view path, ErrorShape shape) {
  Shape& below = shapes_.emplace_back(Shape{.segments = {}, .shape = shape});
  for (const std::string_view part : StrSplit(path.substr(1), '/')) {
    below.segments.emplace_back(part);
  }
}

Router::Match Router::Find(std::string_view method,
                           const std::vector<std::string>& segments) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Shape& below : shapes_) {
    const auto& path = below.segments;
    const bool is_below =
        segments.size() > path.size() && std::equal(path.begin(), path.end(), segments.begin());
    if (is_below) match.shape = below.shape;
  }
  for (const Entry& entry : entries_) {
    if (!Matches(entry.segments, segments)) continue;
    match.shape = entry.route.shape;
    if (entry.route.method != wanted) {
      match.allowed.push_back(entry.route.method);
      if (entry.route.method == "GET") match.allowed.emplace_back("HEAD");
      continue;
    }
    match.route = &entry.route;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (IsPlaceholder(entry.segments[i])) match.arguments.push_back(segments[i]);
    }
    return match;
  }
  return match;
}

}  // namespace weft::serve
