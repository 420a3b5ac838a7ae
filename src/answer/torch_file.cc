#include "answer/torch_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/strings.h"
#include "zip/zip_reader.h"

namespace weft::serve {
namespace {

Status Damaged() { return InvalidArgument("the archive of torch.save is damaged"); }
Status MoreThanATensor() {
  return InvalidArgument(
      "the archive of torch.save has more than one plain tensor in C order; save "
      "tensor.detach().contiguous().cpu(), or use safetensors or NumPy");
}

// Members of the archive by name, without their common folder. torch.save compresses none.
using Members = std::map<std::string, std::string_view, std::less<>>;

StatusOr<Members> MembersOf(std::string_view bytes) {
  const auto zip = ZipReader::Open(std::as_bytes(std::span(bytes)));
  if (!zip.ok()) return Damaged();
  Members members;
  for (const ZipMember& member : zip->members()) {
    const auto view = zip->View(member);
    if (!view.ok()) return Damaged();
    const size_t slash = member.name.find('/');
    members.emplace(member.name.substr(slash == std::string::npos ? 0 : slash + 1),
                    std::string_view(reinterpret_cast<const char*>(view->data()), view->size()));
  }
  return members;
}

// --- the pickle -------------------------------------------------------------------------

struct Value {
  enum class Kind { kMark, kNone, kInteger, kText, kGlobal, kTuple, kStorage, kTensor, kDict };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  std::string text = {};
  std::vector<Value> items = {};
};

// Reads the instructions of a pickle as far as they describe a tensor.
class TensorReader {
 public:
  explicit TensorReader(std::string_view pickle) : left_(pickle) {}

  // The tensor: kind kTensor with storage, offset, shape and strides as its items.
  StatusOr<Value> Read() {
    // A tensor takes some forty; more could nest tuples without end.
    constexpr int kMaxInstructions = 200;
    for (int i = 0; i < kMaxInstructions && !left_.empty(); ++i) {
      const char op = left_[0];
      left_.remove_prefix(1);
      if (op == '.') break;
      if (!Step(op)) return MoreThanATensor();
    }
    if (stack_.size() != 1 || stack_[0].kind != Value::Kind::kTensor) return MoreThanATensor();
    return std::move(stack_[0]);
  }

 private:
  using Kind = Value::Kind;

  bool Step(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 0x80:  // protocol
        return Take(1).has_value();
      case 0x95:  // frame
        return Take(8).has_value();
      case 'c':
        return PushGlobal();
      case '(':
        return Push({Kind::kMark});
      case 'N':
      case 0x88:
      case 0x89:  // booleans say nothing of the numbers
        return Push({Kind::kNone});
      case '}':
        return Push({Kind::kDict});
      case 'X':
        return PushText(4);
      case 0x8C:
        return PushText(1);
      case 'J':
        return PushInteger(4);
      case 'K':
        return PushInteger(1);
      case 'M':
        return PushInteger(2);
      case 0x8A:  // a long; its number of bytes follows
        return PushLong();
      case 't':
        return PushTuple(SinceMark(), /*is_marked=*/true);
      case ')':
        return PushTuple(0, false);
      case 0x85:
      case 0x86:
      case 0x87:
        return PushTuple(static_cast<unsigned char>(op) - 0x84u, false);
      case 'q':
        return Remember(1);
      case 'r':
        return Remember(4);
      case 'h':
        return Recall(1);
      case 'j':
        return Recall(4);
      case 'Q':
        return MakeStorage();
      case 'R':
        return Call();
      default:
        return false;
    }
  }

  std::optional<std::string_view> Take(size_t n) {
    if (n > left_.size()) return std::nullopt;
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }
  std::optional<uint64_t> TakeNumber(size_t n_bytes) {
    const auto bytes = Take(n_bytes);
    if (!bytes) return std::nullopt;
    uint64_t value = 0;
    std::memcpy(&value, bytes->data(), n_bytes);
    return value;
  }
  bool Push(Value value) {
    stack_.push_back(std::move(value));
    return true;
  }
  bool PushInteger(size_t n_bytes) {
    const auto value = TakeNumber(n_bytes);
    if (!value || *value > INT32_MAX) return false;  // nothing of a tensor is negative
    return Push({Kind::kInteger, static_cast<int64_t>(*value)});
  }
  bool PushLong() {
    const auto n = TakeNumber(1);
    if (!n || *n == 0 || *n > 7) return false;
    const auto value = TakeNumber(*n);
    if (!value || (*value >> (8 * *n - 1)) != 0) return false;
    return Push({Kind::kInteger, static_cast<int64_t>(*value)});
  }
  bool PushText(size_t n_bytes) {
    const auto n = TakeNumber(n_bytes);
    const auto text = n ? Take(*n) : std::nullopt;
    return text && text->size() <= 256 && Push({Kind::kText, 0, std::string(*text)});
  }
  // "c" module, line feed, name, line feed.
  bool PushGlobal() {
    const size_t module = left_.find('\n');
    const size_t name = module == left_.npos ? left_.npos : left_.find('\n', module + 1);
    if (name == left_.npos || name > 256) return false;
    std::string text(left_.substr(0, name));
    text[module] = '.';
    left_.remove_prefix(name + 1);
    return Push({Kind::kGlobal, 0, std::move(text)});
  }
  size_t SinceMark() const {
    size_t n = 0;
    while (n < stack_.size() && stack_[stack_.size() - 1 - n].kind != Kind::kMark) ++n;
    return n;
  }
  bool PushTuple(size_t n, bool is_marked) {
    if (stack_.size() < n + (is_marked ? 1 : 0)) return false;
    Value tuple{Kind::kTuple};
    const auto first = stack_.end() - static_cast<ptrdiff_t>(n);
    tuple.items.assign(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.resize(stack_.size() - n - (is_marked ? 1 : 0));
    return Push(std::move(tuple));
  }
  bool Remember(size_t n_bytes) {
    const auto place = TakeNumber(n_bytes);
    if (!place || stack_.empty()) return false;
    // Only what can be short is recalled.
    if (stack_.back().kind == Kind::kText || stack_.back().kind == Kind::kGlobal) {
      memo_[*place] = stack_.back();
    }
    return true;
  }
  bool Recall(size_t n_bytes) {
    const auto place = TakeNumber(n_bytes);
    const auto found = place ? memo_.find(*place) : memo_.end();
    return found != memo_.end() && Push(found->second);
  }

  static bool Are(const std::vector<Value>& items, std::initializer_list<Kind> kinds) {
    return std::equal(items.begin(), items.end(), kinds.begin(), kinds.end(),
                      [](const Value& item, Kind kind) { return item.kind == kind; });
  }
  // ("storage", torch.FloatStorage, "0", "cpu", 12) is what the archive's member 0 is.
  bool MakeStorage() {
    if (stack_.empty() || stack_.back().kind != Kind::kTuple) return false;
    const std::vector<Value> items = std::move(stack_.back().items);
    stack_.pop_back();
    if (!Are(items, {Kind::kText, Kind::kGlobal, Kind::kText, Kind::kText, Kind::kInteger}) ||
        items[0].text != "storage" || !items[1].text.starts_with("torch.")) {
      return false;
    }
    return Push({Kind::kStorage, 0, items[1].text.substr(6), {items[2]}});
  }
  // The two functions that a description of a tensor calls, named by their results.
  bool Call() {
    if (stack_.size() < 2 || stack_.back().kind != Kind::kTuple) return false;
    const std::vector<Value> items = std::move(stack_.back().items);
    stack_.pop_back();
    const Value called = std::move(stack_.back());
    stack_.pop_back();
    if (called.kind != Kind::kGlobal) return false;
    if (called.text == "collections.OrderedDict" && items.empty()) return Push({Kind::kDict});
    if (called.text != "torch._utils._rebuild_tensor_v2" || items.size() < 6 ||
        !Are({items.begin(), items.begin() + 6}, {Kind::kStorage, Kind::kInteger, Kind::kTuple,
                                                  Kind::kTuple, Kind::kNone, Kind::kDict})) {
      return false;
    }
    return Push({Kind::kTensor, 0, "", {items.begin(), items.begin() + 4}});
  }

  std::string_view left_;
  std::vector<Value> stack_;
  std::map<uint64_t, Value> memo_;
};

// Nullopt unless all are integers.
std::optional<std::vector<int64_t>> IntegersOf(const Value& tuple) {
  std::vector<int64_t> values;
  for (const Value& item : tuple.items) {
    if (item.kind != Value::Kind::kInteger) return std::nullopt;
    values.push_back(item.integer);
  }
  return values;
}

bool IsInOrder(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (shape.size() != strides.size() || shape.size() > 8) return false;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    if (shape[i] > 0 && expected > INT64_MAX / shape[i]) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace

StatusOr<TorchTensor> ReadTorchFile(std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const Members members, MembersOf(bytes));
  const auto pickle = members.find("data.pkl");
  if (pickle == members.end()) return InvalidArgument("the archive is not one of torch.save");
  const auto order = members.find("byteorder");
  if (order != members.end() && order->second != "little") {
    return InvalidArgument("the numbers of torch.save are big-endian");
  }
  WEFT_ASSIGN_OR_RETURN(const Value tensor, TensorReader(pickle->second).Read());
  const Value& storage = tensor.items[0];
  const auto shape = IntegersOf(tensor.items[2]), strides = IntegersOf(tensor.items[3]);
  const auto data = members.find(StrCat("data/", storage.items[0].text));
  if (data == members.end()) return Damaged();
  if (!shape || !strides || !IsInOrder(*shape, *strides)) return MoreThanATensor();
  return TorchTensor{.storage = storage.text,
                     .shape = *shape,
                     .bytes = data->second,
                     .offset = tensor.items[1].integer};
}

}  // namespace weft::serve
