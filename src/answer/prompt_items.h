// What a rendered prompt was made of (variables, tools, messages), as hashes; and which of these
// items differs first between two prompts of one tenant.
//
//   const PromptItems now = ItemsOf(chat);
//   for (const ItemChange& change : ChangesBetween(earlier, now)) ...
//
// Values; any thread.
#ifndef WEFT_ANSWER_PROMPT_ITEMS_H_
#define WEFT_ANSWER_PROMPT_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"

namespace weft::serve {

struct PromptItems {
  struct Variable {
    std::string name;
    uint64_t hash = 0;
    bool operator==(const Variable&) const = default;
  };
  struct NamedTool {
    std::string name;
    uint64_t hash = 0;
    bool operator==(const NamedTool&) const = default;
  };
  struct Message {
    Role role = Role::kUser;
    uint64_t reasoning = 0, content = 0, calls = 0, rest = 0;
    bool operator==(const Message&) const = default;
  };

  std::vector<Variable> variables;  // by name
  std::vector<NamedTool> tools;
  std::vector<Message> messages;

  // How many messages at the beginning are the system's or the developer's.
  size_t n_system() const;
  size_t bytes() const;
};

PromptItems ItemsOf(const ChatRequest& chat);

// One item that differs.
struct ItemChange {
  enum class Item : uint8_t { kVariable, kTool, kSystem, kMessage };
  enum class Kind : uint8_t {
    kChanged,
    kAdded,
    kRemoved,
    kMoved,     // tools: the same ones in another order
    kRendered,  // the same item, which the template shows differently
    kReply,     // the model's own answer, which came back as another text
  };

  Item item = Item::kMessage;
  Kind kind = Kind::kChanged;
  // Among the tools or messages of the new prompt; of a removed one, where it would be.
  size_t index = 0;
  std::string name = {};       // the tool's or the variable's
  std::string former = {};     // kMoved, kChanged: the tool's name in its place before
  std::string_view part = {};  // a part of a message: "content", "reasoning", ...
  bool operator==(const ItemChange&) const = default;
};

// The first difference among the variables, the tools, the system's messages and the others. A
// message after the last one of `before` is none: conversations grow.
std::vector<ItemChange> ChangesBetween(const PromptItems& before, const PromptItems& now);

// Whether the two have a tool or a message in common.
bool ShareAnItem(const PromptItems& a, const PromptItems& b);

// Which of these changes made the text of the new prompt, `now`, differ from the earlier one,
// `former`, from position `at` on. If there are none: the message at this position, as kAdded if
// `before` did not have it yet, else as kRendered.
ItemChange CauseAt(const std::vector<ItemChange>& changes, const PromptItems& before,
                   const ChatRequest& chat, std::string_view former, std::string_view now,
                   size_t at);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_ITEMS_H_
