#include "answer/prompt_items.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ItemChange::Kind;
using Item = ItemChange::Item;

uint64_t HashOf(std::string_view text, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

uint64_t HashOfJson(const Json& value, uint64_t seed = 0) {
  if (value.is_null()) return seed;
  return HashOf(value.dump(-1, ' ', false, Json::error_handler_t::replace), seed + 1);
}

PromptItems::Message MessageItem(const ChatMessage& message) {
  PromptItems::Message item{.role = message.role};
  item.reasoning = HashOf(message.reasoning);
  item.content = HashOf(TextOf(message));
  for (const ToolCall& call : message.calls) {
    item.calls = HashOfJson(call.arguments, HashOf(call.name, item.calls));
    item.rest = HashOf(call.id, item.rest);
    item.rest = HashOfJson(call.function_fields, HashOfJson(call.fields, item.rest));
  }
  item.rest = HashOfJson(message.fields, HashOf(message.call_id, item.rest));
  return item;
}

const char* PartThatDiffers(const PromptItems::Message& a, const PromptItems::Message& b) {
  if (a.role != b.role) return "role";
  if (a.reasoning != b.reasoning) return "reasoning";
  if (a.content != b.content) return "content";
  if (a.calls != b.calls) return "tool_calls";
  return "";
}

// How many items are equal from these positions on.
template <typename T>
size_t EqualFrom(const std::vector<T>& a, size_t at_a, const std::vector<T>& b, size_t at_b) {
  size_t n = 0;
  while (at_a + n < a.size() && at_b + n < b.size() && a[at_a + n] == b[at_b + n]) ++n;
  return n;
}

// What happened to the messages at a position: whatever leaves the most of those after it as they
// were. Often a whole turn is added or removed, of a few messages.
Kind WhatHappened(const std::vector<PromptItems::Message>& before,
                  const std::vector<PromptItems::Message>& now, size_t at) {
  constexpr size_t kMaxMessages = 64;
  if (at == before.size()) return Kind::kAdded;
  if (at == now.size()) return Kind::kRemoved;
  Kind kind = Kind::kChanged;
  size_t most = EqualFrom(before, at + 1, now, at + 1);
  for (size_t n = 1; n <= kMaxMessages; ++n) {
    const size_t added = EqualFrom(before, at, now, at + n);
    const size_t removed = EqualFrom(before, at + n, now, at);
    if (std::max(added, removed) <= most) continue;
    most = std::max(added, removed);
    kind = added >= removed ? Kind::kAdded : Kind::kRemoved;
  }
  return kind;
}

std::optional<ItemChange> MessageChange(const std::vector<PromptItems::Message>& before,
                                        const std::vector<PromptItems::Message>& now, Item item) {
  const size_t at = EqualFrom(before, 0, now, 0);
  const bool grew = at == before.size();
  if (grew && (item == Item::kMessage || at == now.size())) return std::nullopt;
  ItemChange change{.item = item, .kind = WhatHappened(before, now, at), .index = at};
  if (change.kind == Kind::kChanged) change.part = PartThatDiffers(before[at], now[at]);
  return change;
}

std::vector<PromptItems::Message> WithoutRest(std::vector<PromptItems::Message> messages) {
  for (PromptItems::Message& message : messages) message.rest = 0;
  return messages;
}

bool HasName(const std::vector<PromptItems::NamedTool>& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const auto& t) { return t.name == name; });
}

std::optional<ItemChange> ToolChange(const std::vector<PromptItems::NamedTool>& before,
                                     const std::vector<PromptItems::NamedTool>& now) {
  const size_t at = EqualFrom(before, 0, now, 0);
  if (at == before.size() && at == now.size()) return std::nullopt;
  ItemChange change{.item = Item::kTool, .index = at};
  if (at < now.size()) change.name = now[at].name;
  if (at < before.size()) change.former = before[at].name;
  const bool is_new = at < now.size() && !HasName(before, change.name);
  const bool is_gone = at < before.size() && !HasName(now, change.former);
  if (change.name == change.former || (is_new && is_gone)) {
    change.kind = Kind::kChanged;
  } else if (is_gone || at == now.size()) {
    change.kind = Kind::kRemoved;
    change.name = std::exchange(change.former, "");
  } else if (is_new || at == before.size()) {
    change.kind = Kind::kAdded;
    change.former.clear();
  } else {
    change.kind = Kind::kMoved;
  }
  return change;
}

std::optional<ItemChange> VariableChange(const std::vector<PromptItems::Variable>& before,
                                         const std::vector<PromptItems::Variable>& now) {
  const size_t at = EqualFrom(before, 0, now, 0);
  if (at == before.size() && at == now.size()) return std::nullopt;
  ItemChange change{.item = Item::kVariable, .index = at};
  const bool ends_before = at == before.size();
  const bool ends_now = at == now.size();
  if (ends_before || (!ends_now && now[at].name < before[at].name)) {
    change.kind = Kind::kAdded;
    change.name = now[at].name;
  } else {
    change.kind = !ends_now && now[at].name == before[at].name ? Kind::kChanged : Kind::kRemoved;
    change.name = before[at].name;
  }
  return change;
}

// --- where items are in the text ----------------------------------------------------------

// Where an item is in the text, as far as it can be found there.
struct Place {
  size_t begin = std::string_view::npos;
  size_t end = std::string_view::npos;
  bool is_known() const { return begin != std::string_view::npos; }
};

// A stretch of the text that templates show as it is: they may trim it, or write it as JSON.
std::pair<size_t, std::string_view> Distinctive(std::string_view text) {
  constexpr size_t kMaxSearched = 512, kEnough = 64;
  text = text.substr(0, kMaxSearched);
  std::pair<size_t, std::string_view> best;
  for (size_t at = 0; at < text.size() && best.second.size() < kEnough;) {
    const size_t end = std::min(text.find_first_of("\n\r\t\"\\<>&'", at), text.size());
    if (end - at > best.second.size()) best = {at, text.substr(at, std::min(end - at, kEnough))};
    at = end + 1;
  }
  return best;
}

Place Find(std::string_view text, std::string_view item, size_t from) {
  const auto [offset, part] = Distinctive(item);
  if (part.empty() || from >= text.size()) return {};
  const size_t found = text.find(part, from);
  if (found == std::string_view::npos) return {};
  const size_t begin = found >= from + offset ? found - offset : found;
  return {begin, std::max(found + part.size(), begin + item.size())};
}

std::string ShownTextOf(const ChatMessage& message) {
  std::string shown = TextOf(message);
  if (!Distinctive(shown).second.empty()) return shown;
  return message.calls.empty() ? message.reasoning : message.calls.front().name;
}

std::vector<Place> PlacesOf(const std::vector<ChatMessage>& messages, std::string_view text) {
  std::vector<Place> places;
  size_t from = 0;
  for (const ChatMessage& message : messages) {
    places.push_back(Find(text, ShownTextOf(message), from));
    if (places.back().is_known()) from = std::min(places.back().end, text.size());
  }
  return places;
}

// The message at the position; text between two messages belongs to the later one.
size_t MessageAt(const std::vector<Place>& places, size_t at) {
  size_t index = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].is_known() && places[i].end <= at) index = i + 1;
  }
  return index;
}

// A prompt and the earlier one, which are the same up to a position.
struct Texts {
  const Conversation& conversation;  // the conversation of `now`
  std::vector<Place> messages;       // in `now`
  std::string_view former, now;
  size_t at = 0;
};

// A variable, or what cannot be found, may have effects anywhere.
constexpr size_t kUnknown = 256;

size_t DistanceTo(const Place& place, size_t at) {
  if (!place.is_known()) return kUnknown;
  if (at < place.begin) return place.begin - at;
  return at < place.end ? 0 : at - place.end;
}

size_t ToolDistance(const ItemChange& change, const Texts& texts) {
  const ToolList& tools = texts.conversation.tools;
  if (change.kind == Kind::kRemoved) {
    return DistanceTo(Find(texts.former, change.name, 0), texts.at);
  }
  const Tool& tool = *tools[change.index];
  Place place = Find(texts.now, tool.name, 0);
  const Json& description = tool.function().value("description", Json());
  if (place.is_known() && description.is_string()) {
    const Place shown = Find(texts.now, description.get<std::string>(), place.begin);
    if (shown.is_known()) place.end = shown.end;
  }
  return DistanceTo(place, texts.at);
}

size_t MessageDistance(const ItemChange& change, const Texts& texts) {
  if (change.index >= texts.messages.size()) return kUnknown;
  const Place& place = texts.messages[change.index];
  const size_t distance = DistanceTo(place, texts.at);
  // What precedes a message's text is the same, unless its role or its reasoning differs.
  const std::string_view part = change.part;
  const bool is_text = part == "content" || part == "tool_calls";
  return is_text && place.is_known() && texts.at < place.begin ? kUnknown + distance : distance;
}

// How far the position is from the part of the text that a change of the item affects first.
size_t Distance(const ItemChange& change, const Texts& texts) {
  switch (change.item) {
    case Item::kVariable:
      return kUnknown;
    case Item::kTool:
      return ToolDistance(change, texts);
    case Item::kSystem:
    case Item::kMessage:
      break;
  }
  return MessageDistance(change, texts);
}

}  // namespace

size_t PromptItems::n_system() const {
  size_t n = 0;
  const auto is_system = [](Role role) {
    return role == Role::kSystem || role == Role::kDeveloper;
  };
  while (n < messages.size() && is_system(messages[n].role)) ++n;
  return n;
}

size_t PromptItems::bytes() const {
  return sizeof(*this) + messages.size() * sizeof(Message) +
         tools.size() * (sizeof(NamedTool) + 32) + variables.size() * (sizeof(Variable) + 32);
}

PromptItems ItemsOf(const ChatRequest& chat) {
  PromptItems items;
  for (const auto& [name, value] : chat.variables.items()) {
    items.variables.push_back({name, HashOfJson(value)});
  }
  // They decide how the prompt ends, as a variable does.
  const bool continues = chat.continuation != Continuation::kNone;
  if (!chat.add_generation_prompt && !continues) {
    items.variables.push_back({"add_generation_prompt", 1});
  }
  if (continues) {
    items.variables.push_back({"continue_final_message", static_cast<uint64_t>(chat.continuation)});
  }
  // Sets a variable whose name depends on the template.
  if (chat.past_thoughts != PastThoughts::kDefault) {
    items.variables.push_back({"past_thoughts", static_cast<uint64_t>(chat.past_thoughts)});
  }
  std::sort(items.variables.begin(), items.variables.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& tool : chat.conversation.tools) {
    items.tools.push_back({tool->name, HashOfJson(tool->definition)});
  }
  for (const ChatMessage& message : chat.conversation.messages) {
    items.messages.push_back(MessageItem(message));
  }
  return items;
}

std::vector<ItemChange> ChangesBetween(const PromptItems& before, const PromptItems& now) {
  std::vector<ItemChange> changes;
  const auto add = [&](std::optional<ItemChange> change) {
    if (change.has_value()) changes.push_back(*std::move(change));
  };
  const auto split = [](const PromptItems& items) {
    const auto middle = items.messages.begin() + static_cast<std::ptrdiff_t>(items.n_system());
    return std::pair(std::vector(items.messages.begin(), middle),
                     std::vector(middle, items.messages.end()));
  };
  const auto [system_before, others_before] = split(before);
  const auto [system_now, others_now] = split(now);
  add(MessageChange(system_before, system_now, Item::kSystem));
  add(ToolChange(before.tools, now.tools));
  // Clients rename calls, and few templates show their ids.
  auto of_messages =
      MessageChange(WithoutRest(others_before), WithoutRest(others_now), Item::kMessage);
  if (!of_messages) of_messages = MessageChange(others_before, others_now, Item::kMessage);
  add(std::move(of_messages));
  if (!changes.empty() && changes.back().item == Item::kMessage) {
    changes.back().index += system_now.size();
  }
  add(VariableChange(before.variables, now.variables));
  return changes;
}

bool ShareAnItem(const PromptItems& a, const PromptItems& b) {
  const auto share = [](const auto& some, const auto& others) {
    return std::any_of(some.begin(), some.end(), [&](const auto& item) {
      return std::find(others.begin(), others.end(), item) != others.end();
    });
  };
  return share(a.tools, b.tools) || share(a.messages, b.messages);
}

ItemChange CauseAt(const std::vector<ItemChange>& changes, const PromptItems& before,
                   const ChatRequest& chat, std::string_view former, std::string_view now,
                   size_t at) {
  if (changes.size() == 1) return changes.front();
  const Conversation& conversation = chat.conversation;
  const Texts texts{conversation, PlacesOf(conversation.messages, now), former, now, at};
  if (changes.empty()) {
    const size_t index = MessageAt(texts.messages, at);
    const bool is_new = index >= before.messages.size();
    return {.item = index < before.n_system() ? Item::kSystem : Item::kMessage,
            .kind = is_new ? Kind::kAdded : Kind::kRendered,
            .index = index};
  }
  return *std::min_element(changes.begin(), changes.end(), [&](const auto& a, const auto& b) {
    return Distance(a, texts) < Distance(b, texts);
  });
}

}  // namespace weft::serve
