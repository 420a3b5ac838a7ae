// Calls whose parameters are elements that contain elements; `]` stands for a marker before each
// tag:
//   ]<invoke name="f">]<a>1]</a>]<point>]<x>2]</x>]</point>]</invoke>
#include "answer/reply/call_syntax.h"

namespace weft {
namespace {

constexpr size_t kMaxKeyBytes = 256;

const ValueShape& Unknown() {
  static const ValueShape shape{.types = ParameterTypes::kString};
  return shape;
}

const ValueShape& PartOf(const ValueShape& shape, const std::string& key, bool is_list) {
  if (is_list) return shape.items.empty() ? Unknown() : shape.items[0];
  const auto found = shape.properties.find(key);
  return found == shape.properties.end() ? Unknown() : found->second;
}

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

// The value of an element without elements.
std::string ScalarJson(const std::string& text, unsigned types) {
  const bool is_empty = IsBlank(text) && (types & ParameterTypes::kString) == 0;
  if (is_empty && (types & ParameterTypes::kArray) != 0) return "[]";
  if (is_empty && (types & ParameterTypes::kObject) != 0) return "{}";
  return ParameterTypes::ToJson(text, types);
}

class NestedReader {
 public:
  NestedReader(ReplyIo& io, CallWriter& call, const TagSyntax& tags)
      : io_(io), call_(call), tags_(tags) {}

  // Reads an opening tag, whose key begins with what `key` has and whose marker was taken.
  ReplyTask<bool> TakeKey(std::string& key) {
    std::string rest;
    bool ok = co_await TakeBefore(io_, tags_.key_end.substr(0, 1), kMaxKeyBytes, &rest);
    key += rest;
    if (ok) ok = !key.empty() && key.size() <= kMaxKeyBytes;
    if (ok) ok = co_await TakeText(io_, tags_.key_end);
    co_return ok;
  }

  // Reads elements, of which the first one's opening tag was taken if there is a `key`, up to the
  // tag that ends with `closing`. Changes `key`.
  ReplyTask<bool> ReadMembers(const ValueShape& shape, std::string& key, bool is_list,
                              const std::string& closing) {
    if (!call_.Open(is_list ? '[' : '{')) co_return false;
    while (true) {
      if (!key.empty()) {
        if (is_list) {
          call_.Element();
        } else {
          call_.Key(key);
        }
        const ValueShape& part = PartOf(shape, key, is_list);
        const bool read = co_await ReadValue(part, key);
        if (!read) co_return false;
      }
      co_await TakeSpace(io_);
      const bool tag = co_await TakeText(io_, tags_.parameter_open);
      if (!tag) co_return false;
      const int c = co_await io_.Peek();
      if (c == '/') {
        io_.Take();
        const bool closed = co_await TakeText(io_, closing);
        if (closed) call_.Close();
        co_return closed;
      }
      key.clear();
      const bool opened = co_await TakeKey(key);
      if (!opened) co_return false;
    }
  }

 private:
  // From after the opening tag of `key` to after its closing tag.
  ReplyTask<bool> ReadValue(const ValueShape& shape, const std::string& key) {
    const std::string closing = key + std::string(tags_.key_end);
    const std::string close = std::string(tags_.parameter_close) + closing;
    const bool streams = shape.types == ParameterTypes::kString;
    bool in_string = false;
    std::string text, open;  // `open`: a partial closing tag
    while (open != close) {
      const int c = co_await io_.Peek();
      if (c < 0) co_return false;
      io_.Take();
      open += static_cast<char>(c);
      if (close.starts_with(open)) continue;
      if (open.size() == tags_.parameter_open.size() + 1 &&
          open.starts_with(tags_.parameter_open) && !in_string && IsBlank(text)) {
        open.erase(0, tags_.parameter_open.size());
        const bool read = co_await ReadParts(shape, open, closing);
        co_return read;
      }
      size_t released = 1;
      while (!close.starts_with(std::string_view(open).substr(released))) ++released;
      if (streams) {
        if (!in_string) call_.StartString();
        in_string = true;
        call_.StringText(std::string_view(open).substr(0, released));
      } else {
        text.append(open, 0, released);
      }
      open.erase(0, released);
      if (streams && call_.begun()) io_.HoldAgain(open);
    }
    if (in_string) {
      call_.EndString();
    } else {
      call_.Scalar(ScalarJson(text, shape.types));
    }
    co_return true;
  }

  // The elements of a value, of which the first one's key begins with `key`.
  ReplyTask<bool> ReadParts(const ValueShape& shape, std::string& key, const std::string& closing) {
    bool ok = co_await TakeKey(key);
    if (!ok) co_return false;
    const bool may_be_list =
        (shape.types & ParameterTypes::kArray) != 0 || (shape.types & ParameterTypes::kObject) == 0;
    const bool is_list = key == kListItem && may_be_list && !shape.properties.contains(key);
    ok = co_await ReadMembers(shape, key, is_list, closing);
    co_return ok;
  }

  ReplyIo& io_;
  CallWriter& call_;
  const TagSyntax& tags_;
};

}  // namespace

ReplyTask<bool> ReadNestedParameters(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                                     const ParameterTypes& types, std::string_view function) {
  NestedReader reader(io, call, syntax);
  const ValueShape* const shape = types.ShapeOf(function);
  const std::string closing(syntax.function_close.substr(syntax.parameter_close.size()));
  const ValueShape& arguments = shape == nullptr ? Unknown() : *shape;
  std::string key;
  const bool read = co_await reader.ReadMembers(arguments, key, /*is_list=*/false, closing);
  co_return read;
}

}  // namespace weft
