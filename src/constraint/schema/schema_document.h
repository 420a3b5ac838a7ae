// A schema as it was given: its dialect, where its parts are, and what its references mean.
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
  // Draft 4 to 7: beside $ref nothing counts.
  bool ref_stands_alone() const { return ref_stands_alone_; }
  // Draft 4: exclusiveMinimum is a flag.
  bool is_draft4() const { return is_draft4_; }
  // Whether the dialect has the keyword: what it has not is a remark.
  bool Knows(std::string_view keyword) const {
    if (keyword == "if") return !lacks_if_;
    if (keyword == "contentEncoding" || keyword == "contentMediaType")
      return is_draft7_;  // remarks before and behind it
    return !is_draft4_ ||
           (keyword != "const" && keyword != "contains" && keyword != "propertyNames");
  }
  // The schema that a reference in `from` means.
  StatusOr<const JsonValue*> Resolve(const JsonValue& from, std::string_view reference) const;
  // More than one schema could be meant by a dynamic reference.
  bool has_dynamic_choice() const { return dynamic_anchors_ > 1; }
  // "#/properties/a/items", for messages; "" for what does not stand in the document.
  std::string PathOf(const JsonValue& part) const;

 private:
  // Where references in a schema begin: an address, and the schema that has it.
  struct Scope {
    std::string base;
    const JsonValue* resource = nullptr;
  };
  void Collect(const JsonValue& value, const Scope* outer);
  // The scope of what is inside of a schema.
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
  bool lacks_if_ = false;                              // draft 6 too
  std::map<std::string, const JsonValue*> resources_;  // by their address, "#anchor" included
  std::deque<Scope> all_scopes_;                       // the outermost first
  // Of schemas with references, and of those within which a scope begins.
  std::unordered_map<const JsonValue*, const Scope*> scopes_;
  int dynamic_anchors_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_DOCUMENT_H_
