// A request's tools, whatever API it came through: which of them the model is offered and under
// which names, how its calls are reported to the client, and which tools were left out.
//
// Templates only know functions. Tools that the client runs itself but that are not plain functions
// (a custom tool with one text argument, a function in a namespace, an editor whose schema the
// client assumes to be known) are offered as functions; tools that run on the API provider's
// servers are left out, and the answer says so.
//
// A deferred tool is offered once the conversation names it: after all others, in the order in
// which they are named, because templates show tools before the messages.
//
// Values of one request; one thread.
#ifndef WEFT_DOORS_API_TOOL_CATALOG_H_
#define WEFT_DOORS_API_TOOL_CATALOG_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/conversation.h"
#include "base/status.h"
#include "doors/api/fields/support.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// The name of a search for deferred tools that the client runs.
inline constexpr char kToolSearch[] = "tool_search";

struct ClientTool {
  enum class Kind {
    kFunction,
    kCustom,  // takes one text, which the model gives as {"input": text}
    kSearch,  // finds deferred tools; Responses API only
  };
  Kind kind = Kind::kFunction;
  std::string name;
  std::string name_space;  // Responses API only; otherwise empty
  bool is_deferred = false;
};

class ToolCatalog {
 public:
  // `function`: {"description", "parameters"}, both optional; its name is derived from the tool's.
  // An error if the model could not distinguish it from another one.
  Status Offer(ClientTool tool, std::string_view place, const nlohmann::ordered_json& function);
  // Offers a tool that takes one text: {"description"}. `grammar`, {"syntax": "lark" | "regex",
  // "definition"} or null, is what the text must match, as if it were strict.
  Status OfferCustom(ClientTool tool, const nlohmann::ordered_json& custom, std::string_view place,
                     const nlohmann::ordered_json& grammar);
  // A function in the form of chat completions.
  Status OfferAsIs(nlohmann::ordered_json entry, std::string_view place);
  // Reads "strict" from a tool: whether its calls must fit its schema.
  Status ReadStrict(const nlohmann::ordered_json& tool, std::string_view place);
  // `name` may be empty.
  void LeaveOut(std::string_view name, std::string_view type);

  const ToolList& functions() const { return functions_; }
  bool Offers(std::string_view function) const;
  // The conversation names a tool: if it is deferred, it is offered from now on. False if there is
  // no such tool.
  bool OfferNamed(std::string_view function);
  bool IsDeferred(std::string_view function) const;
  // The tool for a function that the model calls. Unknown functions are plain ones.
  ClientTool Find(std::string_view function) const;
  bool WasLeftOut(std::string_view name_or_type) const;
  bool has_strict() const { return has_strict_; }
  // What the texts of custom tools must match, by the functions' names; regular expressions are
  // in the functions' schemas instead.
  const std::map<std::string, std::string>& grammars() const { return grammars_; }

  // Fails the field "tools" if tools were given and may be called, but none could be offered: an
  // answer that pretends to have used them would be worse than none.
  void CheckUsable(bool calls_allowed, ApiFields* fields) const;
  // Adds a warning about the tools left out, if any.
  void Warn(std::vector<std::string>* warnings) const;

 private:
  struct Entry {
    std::string function;
    ClientTool tool;
    std::shared_ptr<const Tool> deferred;  // until the conversation names it
  };

  struct LeftOut {
    std::string name;
    std::string type;
  };

  std::string ShownLeftOut() const;

  ToolList functions_;
  std::vector<Entry> entries_;
  std::vector<LeftOut> left_out_;  // the first few of them
  size_t n_left_out_ = 0;
  bool has_strict_ = false;
  std::map<std::string, std::string> grammars_;
};

// Fails the field "tool_choice" if it names a tool that was left out.
void RefuseLeftOut(const ToolCatalog& catalog, const nlohmann::ordered_json& choice,
                   ApiFields* fields);

// The name under which the model calls a tool in a namespace.
std::string FunctionName(std::string_view name_space, std::string_view name);
// The arguments for a custom tool's text, and the text of written ones. Arguments of any other
// shape are taken as the text.
nlohmann::ordered_json CustomArguments(std::string_view input);
std::string CustomInput(std::string_view arguments);

// Whether a tool is deferred: "defer_loading".
StatusOr<bool> ReadDeferral(const nlohmann::ordered_json& tool, std::string_view place);
// What the model reads of a tool that its search found.
std::string FoundToolText(std::string_view function, bool is_offered);

// `tools` of chat completions.
StatusOr<ToolCatalog> ReadChatTools(const nlohmann::ordered_json& tools);
// `tools` of the Responses API: functions, namespaces of functions, custom tools, and a search for
// deferred ones that the client runs.
StatusOr<ToolCatalog> ReadResponsesTools(const nlohmann::ordered_json& tools);
// Offers tools that the conversation contains, deferred or not. Returns their names.
StatusOr<std::vector<std::string>> OfferFoundTools(const nlohmann::ordered_json& tools,
                                                   const std::string& place, ToolCatalog* catalog);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_TOOL_CATALOG_H_
