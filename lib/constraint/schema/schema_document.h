// A parsed schema: its dialect, the positions of its parts, and the targets of its references.
#ifndef WEFT_CONSTRAINT_SCHEMA_SCHEMA_DOCUMENT_H_
#define WEFT_CONSTRAINT_SCHEMA_SCHEMA_DOCUMENT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "constraint/schema/json_value.h"

namespace weft::constraint {

class SchemaDocument {
 public:
  // See ReadJson.
  static StatusOr<SchemaDocument> Read(std::string_view text, int64_t* parts_left = nullptr);

  const JsonValue& root() const { return *root_; }
  // Draft 4 to 7: keywords next to $ref are ignored.
  bool ref_stands_alone() const { return ref_stands_alone_; }
  // Draft 4: exclusiveMinimum is a boolean.
  bool is_draft4() const { return is_draft4_; }
  // Whether the dialect defines the keyword; others are annotations.
  bool Knows(std::string_view keyword) const {
    if (keyword == "if") return !lacks_if_;
    if (keyword == "contentEncoding" || keyword == "contentMediaType")
      return is_draft7_;  // annotations in all other dialects
    return !is_draft4_ ||
           (keyword != "const" && keyword != "contains" && keyword != "propertyNames");
  }
  // The schema that `reference` in `from` refers to.
  StatusOr<const JsonValue*> Resolve(const JsonValue& from, std::string_view reference) const;
  // A dynamic reference could refer to more than one schema.
  bool has_dynamic_choice() const { return dynamic_anchors_ > 1; }
  // For messages, such as "#/properties/a/items"; "" for a value that is not in the document.
  std::string PathOf(const JsonValue& part) const;

 private:
  // The base URI for references in a schema, and the schema that declares it.
  struct Scope {
    std::string base;
    const JsonValue* resource = nullptr;
  };
  void Collect(const JsonValue& value, const Scope* outer);
  // The scope for everything inside `schema`.
  const Scope* EnterScope(const JsonValue& schema, const Scope* outer);
  void CollectAnchors(const JsonValue& schema, const std::string& base);
  const Scope& ScopeOf(const JsonValue& schema) const;
  static bool FindPath(const JsonValue& at, const JsonValue& part, std::string* path,
                       std::vector<const JsonValue*>* parents);

  JsonArena arena_;
  std::unique_ptr<const JsonValue> root_;
  bool ref_stands_alone_ = false;
  bool is_draft4_ = false;
  bool is_draft7_ = false;
  bool lacks_if_ = false;                              // also draft 6
  std::map<std::string, const JsonValue*> resources_;  // by URI, including those with "#anchor"
  std::deque<Scope> all_scopes_;                       // outermost first
  // For schemas that contain references or start a scope.
  std::unordered_map<const JsonValue*, const Scope*> scopes_;
  int dynamic_anchors_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_DOCUMENT_H_
