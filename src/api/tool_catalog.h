// The tools of a request, whatever API it came through: which of them the model is offered
// and by which name, how a call is told to the client again, and which were left out.
//
// A template knows functions only. Tools that a client runs itself but that are none (a
// custom tool of one text, a function in a namespace, an editor whose schema the client
// takes for known) are offered as functions; those that run on the servers of an API's
// maker are left out, and the answer says so.
//
// Values of one request; one thread.
#ifndef WEFT_API_TOOL_CATALOG_H_
#define WEFT_API_TOOL_CATALOG_H_

#include <string>
#include <string_view>
#include <vector>

#include "api/support.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ClientTool {
  enum class Kind {
    kFunction,
    kCustom,  // takes one text, which the model gives as {"input": text}
  };
  Kind kind = Kind::kFunction;
  std::string name;
  std::string name_space;  // of the Responses API; empty where there is none
};

class ToolCatalog {
 public:
  // `function`: {"description", "parameters"}, either of which may be left out; its name is
  // made from the tool's. An error where the model could not tell it from another one.
  Status Offer(ClientTool tool, std::string_view place, nlohmann::ordered_json function);
  // Offers a tool of one text: {"name", "description", "format"}. `grammar`, {"syntax",
  // "definition"} or null, says what the text is like.
  Status OfferCustom(const nlohmann::ordered_json& custom, std::string_view name_space,
                     std::string_view place, const nlohmann::ordered_json& grammar);
  // An entry as chat completions have it, which the chat format is to check.
  void OfferAsIs(nlohmann::ordered_json entry);
  // Looks for "strict" in a tool: whether calls of it must fit its schema.
  Status ReadStrict(const nlohmann::ordered_json& tool, std::string_view place);
  // `name` may be empty.
  void LeaveOut(std::string_view name, std::string_view type);

  // As ChatRequest has them; null where there are none.
  const nlohmann::ordered_json& functions() const { return functions_; }
  // The tool of a function that the model calls. One that nobody offered is a plain function.
  ClientTool Find(std::string_view function) const;
  bool WasLeftOut(std::string_view name_or_type) const;
  bool has_strict() const { return has_strict_; }

  // Fails the field "tools" where tools were asked for, may be called, and none could be
  // offered: an answer that pretends to have used them would be worse than none.
  void CheckUsable(bool calls_allowed, ApiFields* fields) const;
  // Says which were left out; nothing where none was.
  void Warn(std::vector<std::string>* warnings) const;

 private:
  struct Entry {
    std::string function;
    ClientTool tool;
  };

  struct LeftOut {
    std::string name;
    std::string type;
  };

  std::string ShownLeftOut() const;

  nlohmann::ordered_json functions_;
  std::vector<Entry> entries_;
  std::vector<LeftOut> left_out_;  // the first of them
  size_t n_left_out_ = 0;
  bool has_strict_ = false;
};

// Fails the field "tool_choice" where the choice names a tool that was left out.
void RefuseLeftOut(const ToolCatalog& catalog, const nlohmann::ordered_json& choice,
                   ApiFields* fields);

// How the model calls a tool of a namespace.
std::string FunctionName(std::string_view name_space, std::string_view name);
// A custom tool's text as arguments of its function, and back. Arguments of another shape
// are taken as the text.
std::string CustomArguments(std::string_view input);
std::string CustomInput(std::string_view arguments);

// `tools` of chat completions. Functions are checked by the chat format.
StatusOr<ToolCatalog> ReadChatTools(const nlohmann::ordered_json& tools);
// `tools` of the Responses API: functions, namespaces of them, custom tools.
StatusOr<ToolCatalog> ReadResponsesTools(const nlohmann::ordered_json& tools);

}  // namespace weft::serve

#endif  // WEFT_API_TOOL_CATALOG_H_
