// Values in calls whose format writes objects and lists as elements within elements.
//
// A value's elements are allowed wherever its schema lists them; any other value is JSON text.
//
// Owned by the maker of a structure; one thread.
#ifndef WEFT_ANSWER_CHAT_NESTED_ELEMENTS_H_
#define WEFT_ANSWER_CHAT_NESTED_ELEMENTS_H_

#include <optional>
#include <string>

#include "answer/chat/call_parts.h"
#include "answer/reply/parameter_types.h"
#include "constraint/structure.h"

namespace weft {

// A value between tags.
struct TaggedPart {
  std::string key;
  constraint::SchemaPart schema;
  unsigned types = ParameterTypes::kAny;
  std::string grammar;  // of its text; may be empty
};

class NestedElements {
 public:
  // From after the key of the opening tag to the closing tag.
  using ValueAsText = constraint::Structure (*)(const CallParts& parts, const TaggedPart& part);

  NestedElements(const CallParts& parts, const CallTool& tool, ValueAsText as_text)
      : parts_(parts), tool_(tool), as_text_(as_text) {}

  // The same for a parameter, as text or as elements.
  constraint::Structure Of(const TaggedPart& parameter);

 private:
  // A part of a schema with the document that it is in.
  struct Place {
    const nlohmann::ordered_json* root = nullptr;
    const nlohmann::ordered_json* schema = nullptr;
    constraint::SchemaPart part;
  };

  static Place Resolved(Place place);
  constraint::Structure Value(const Place& place, const ValueShape& shape, const std::string& key,
                              int depth);
  // Nothing if the schema does not list the elements. `alone`: values of no other schema are here.
  std::optional<constraint::Structure> Elements(const Place& place, const ValueShape& shape,
                                                bool alone, int depth);
  std::optional<constraint::Structure> Members(const Place& place, const ValueShape& shape,
                                               bool alone, int depth);
  std::optional<constraint::Structure> Items(const Place& place, const ValueShape& shape,
                                             bool alone, int depth);
  constraint::Structure Element(const Place& place, const ValueShape& shape, const std::string& key,
                                int depth);

  const CallParts& parts_;
  const CallTool& tool_;
  const ValueAsText as_text_;
  int n_elements_ = 0;
};

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_NESTED_ELEMENTS_H_
