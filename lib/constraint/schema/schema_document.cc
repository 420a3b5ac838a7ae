#include "constraint/schema/schema_document.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

namespace weft::constraint {
namespace {

// Resolves `reference` against `base`, as far as references within one file need it.
std::string JoinUri(const std::string& base, std::string_view reference) {
  const size_t colon = reference.find(':');
  const size_t slash = reference.find_first_of("/?#");
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon < slash)) {
    return std::string(reference);
  }
  if (reference.empty()) return base;
  const size_t scheme = base.find("://");
  const size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  if (reference[0] == '/') {
    const size_t end = base.find('/', host);
    return base.substr(0, std::min(end, base.size())) + std::string(reference);
  }
  const size_t last = base.rfind('/');
  if (last == std::string::npos || last < host) {
    return (host == 0 ? std::string() : base + "/") + std::string(reference);
  }
  return base.substr(0, last + 1) + std::string(reference);
}

std::string DecodeFragment(std::string_view text) {
  std::string out;
  const auto hex = [](char c) {
    c = AsciiLower(c);
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

const JsonValue* FollowPointer(const JsonValue* at, std::string_view pointer) {
  if (pointer.empty()) return at;
  if (pointer[0] != '/') return nullptr;
  for (const std::string_view part : StrSplit(pointer.substr(1), '/')) {
    std::string name;
    for (size_t i = 0; i < part.size(); ++i) {
      const bool escape = part[i] == '~' && i + 1 < part.size();
      name.push_back(!escape ? part[i] : part[i + 1] == '1' ? '/' : '~');
      i += escape ? 1 : 0;
    }
    if (at->Is(JsonValue::Kind::kArray)) {
      int64_t index = -1;
      if (!ParseInt64(name, &index) || index < 0 ||
          index >= static_cast<int64_t>(at->items.size())) {
        return nullptr;
      }
      at = &at->items[static_cast<size_t>(index)];
    } else {
      at = at->Find(name);
    }
    if (at == nullptr) return nullptr;
  }
  return at;
}

// Keywords with one schema, and with several in a list or an object. Values of other keywords are
// not schemas, even if they look like them.
constexpr std::string_view kOneSchema[] = {"not",
                                           "if",
                                           "then",
                                           "else",
                                           "contains",
                                           "items",
                                           "additionalItems",
                                           "propertyNames",
                                           "additionalProperties",
                                           "unevaluatedItems",
                                           "unevaluatedProperties",
                                           "contentSchema"};
constexpr std::string_view kSchemas[] = {"allOf",
                                         "anyOf",
                                         "oneOf",
                                         "prefixItems",
                                         "properties",
                                         "$defs",
                                         "definitions",
                                         "patternProperties",
                                         "dependentSchemas",
                                         "dependencies"};

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

const std::string_view* TextMember(const JsonValue& value, std::string_view name) {
  const JsonValue* member = value.Find(name);
  return member != nullptr && member->Is(JsonValue::Kind::kString) ? &member->text : nullptr;
}

}  // namespace

StatusOr<SchemaDocument> SchemaDocument::Read(std::string_view text, int64_t* parts_left) {
  SchemaDocument document;
  WEFT_ASSIGN_OR_RETURN(const JsonValue root, ReadJson(text, &document.arena_, parts_left));
  document.root_ = std::make_unique<const JsonValue>(root);
  if (const std::string_view* dialect = TextMember(document.root(), "$schema")) {
    document.is_draft4_ = dialect->find("draft-04") != std::string::npos;
    document.is_draft7_ = dialect->find("draft-07") != std::string::npos;
    document.lacks_if_ = document.is_draft4_ || dialect->find("draft-06") != std::string::npos;
    document.ref_stands_alone_ = document.is_draft4_ ||
                                 dialect->find("draft-06") != std::string::npos ||
                                 document.is_draft7_;
  }
  document.all_scopes_.push_back({"", &document.root()});
  document.Collect(document.root(), &document.all_scopes_.front());
  return document;
}

const SchemaDocument::Scope* SchemaDocument::EnterScope(const JsonValue& schema,
                                                        const Scope* outer) {
  const Scope* inner = outer;
  for (const std::string_view keyword : {"$id", "id"}) {
    if (keyword == "id" && !is_draft4_) continue;
    const std::string_view* id = TextMember(schema, keyword);
    if (id == nullptr) continue;
    const size_t hash = std::min(id->find('#'), id->size());
    if (hash > 0) {
      all_scopes_.push_back({JoinUri(outer->base, id->substr(0, hash)), &schema});
      inner = &all_scopes_.back();
      resources_.try_emplace(inner->base, &schema);
    }
    if (hash + 1 < id->size()) {
      resources_.try_emplace(StrCat(inner->base, "#", id->substr(hash + 1)), &schema);
    }
  }
  return inner;
}

void SchemaDocument::CollectAnchors(const JsonValue& schema, const std::string& base) {
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    const std::string_view* anchor = TextMember(schema, keyword);
    if (anchor == nullptr) continue;
    resources_.try_emplace(StrCat(base, "#", *anchor), &schema);
    dynamic_anchors_ += keyword == "$dynamicAnchor";
  }
  if (const JsonValue* flag = schema.Find("$recursiveAnchor")) {
    dynamic_anchors_ += flag->Is(JsonValue::Kind::kTrue);
  }
}

void SchemaDocument::Collect(const JsonValue& value, const Scope* outer) {
  if (!value.Is(JsonValue::Kind::kObject)) return;
  const Scope* const inner = EnterScope(value, outer);
  CollectAnchors(value, inner->base);
  const bool refers = value.Find("$ref") != nullptr;
  if (refers || inner != outer || value.Find("$dynamicRef") != nullptr ||
      value.Find("$recursiveRef") != nullptr) {
    scopes_[&value] = refers && ref_stands_alone_ ? outer : inner;
  }
  for (const auto& [name, member] : value.members) {
    if (member.items.empty() && member.members.empty()) continue;
    const bool one = IsOneOf(name, kOneSchema), several = IsOneOf(name, kSchemas);
    if (one) Collect(member, inner);
    if (several) {
      for (const JsonMember& part : member.members) Collect(part.value, inner);
    }
    if (one || several) {  // `items` may also be a list
      for (const JsonValue& part : member.items) Collect(part, inner);
    }
  }
}

bool SchemaDocument::FindPath(const JsonValue& at, const JsonValue& part, std::string* path,
                              std::vector<const JsonValue*>* parents) {
  parents->push_back(&at);
  if (&at == &part) return true;
  const size_t size = path->size();
  for (const auto& [name, member] : at.members) {
    StrAppend(path, "/", name);
    if (FindPath(member, part, path, parents)) return true;
    path->resize(size);
  }
  for (size_t i = 0; i < at.items.size(); ++i) {
    StrAppend(path, "/", i);
    if (FindPath(at.items[i], part, path, parents)) return true;
    path->resize(size);
  }
  parents->pop_back();
  return false;
}

std::string SchemaDocument::PathOf(const JsonValue& part) const {
  std::string path = "#";
  std::vector<const JsonValue*> parents;
  return FindPath(root(), part, &path, &parents) ? path : "";
}

const SchemaDocument::Scope& SchemaDocument::ScopeOf(const JsonValue& schema) const {
  if (const auto it = scopes_.find(&schema); it != scopes_.end()) return *it->second;
  // It is at a position where no schema is expected. The surrounding scopes apply nevertheless.
  const Scope* scope = &all_scopes_.front();
  std::string path;
  std::vector<const JsonValue*> parents;
  FindPath(root(), schema, &path, &parents);
  for (const JsonValue* parent : parents) {
    if (const auto it = scopes_.find(parent); it != scopes_.end()) scope = it->second;
  }
  return *scope;
}

StatusOr<const JsonValue*> SchemaDocument::Resolve(const JsonValue& from,
                                                   std::string_view reference) const {
  const auto unknown = [&] {
    return InvalidArgument("$ref at ", PathOf(from), ": ", Printable(reference),
                           " is not in this document, and nothing else is read");
  };
  const size_t hash = std::min(reference.find('#'), reference.size());
  auto [base, resource] = ScopeOf(from);
  if (hash > 0) {
    base = JoinUri(base, reference.substr(0, hash));
    const auto it = resources_.find(base);
    if (it == resources_.end()) return unknown();
    resource = it->second;
  }
  const std::string fragment =
      hash < reference.size() ? DecodeFragment(reference.substr(hash + 1)) : "";
  const JsonValue* found = nullptr;
  if (fragment.empty() || fragment[0] == '/') {
    found = FollowPointer(resource, fragment);
  } else if (const auto it = resources_.find(base + "#" + fragment); it != resources_.end()) {
    found = it->second;
  }
  if (found == nullptr) return unknown();
  if (!found->Is(JsonValue::Kind::kObject) && !found->IsBool()) {
    return InvalidArgument("$ref at ", PathOf(from), ": what ", Printable(reference),
                           " names is no schema");
  }
  return found;
}

}  // namespace weft::constraint
