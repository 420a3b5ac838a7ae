// What a prompt has in common with the earlier prompts of its tenant, and where it first differs.
//
// Made when the prompt is encoded; only a prompt that does differ costs more than one hash of each
// item. Values; any thread.
#ifndef WEFT_ANSWER_PROMPT_TRAIL_H_
#define WEFT_ANSWER_PROMPT_TRAIL_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/prompt_items.h"
#include "answer/prompt_memory.h"

namespace weft::serve {

// Where a client finds the messages of a conversation in its own request.
struct ClientList {
  const char* name = "messages";
  // The index of each message there; empty: the conversation has the same ones.
  std::vector<size_t> places = {};

  // "messages[7]"; of an index after the last message too.
  std::string PathOf(size_t message) const;
};

struct PromptDifference {
  ItemChange cause;
  // The line of the rendered text in which the two differ first: of the earlier prompt or its
  // reply, and of the new one. Long lines are cut.
  std::string before, now;
};

struct PromptTrail {
  std::shared_ptr<const PromptItems> items;  // this prompt's
  EarlierPrompt earlier = {};
  // Nothing if one of the two texts continues the other, or there is no earlier one.
  std::optional<PromptDifference> difference = std::nullopt;
  ClientList list = {};
};

// `items` are those of `chat`, which was rendered as `text`. An earlier prompt that has hardly more
// than the template's first words in common is another conversation, and left out.
PromptTrail MakeTrail(EarlierPrompt earlier, std::shared_ptr<const PromptItems> items,
                      const ChatRequest& chat, std::string_view text, ClientList list);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_TRAIL_H_
