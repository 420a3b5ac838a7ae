// Random edits of conversations, rendered by real templates: the report names the item that was
// edited and the first token that differs, and never shows text of another tenant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "answer/cache_report.h"
#include "answer/chat/chat_format_test_util.h"
#include "answer/prompt_memory.h"
#include "answer/prompt_trail.h"
#include "tests/support/slow_build.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using Item = ItemChange::Item;
using Kind = ItemChange::Kind;

constexpr char kOwnTemplate[] =
    "{% if mood %}[mood {{ mood }}]\n{% endif %}"
    "{% if messages[0].role == 'system' %}[system]\n{{ messages[0].content }}\n{% endif %}"
    "{% for tool in tools %}[tool] {{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]\n"
    "{{ m.content | trim }}"
    "{% for call in m.tool_calls %}<call>{{ call | tojson }}</call>{% endfor %}\n"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% if enable_thinking %}<think>{% endif %}"
    "{% endif %}";

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Maybe() { return Below(2) == 0; }

  // No two are alike; `mark` is in each.
  std::string Text(std::string_view mark = "") {
    constexpr std::string_view kWords[] = {"the", "loom",   "is", "a \"place\"",
                                           "of",  "work\n", "and"};
    std::string text = StrCat(Maybe() ? "note " : "", mark, serial_++, " ");
    for (size_t n = 1 + Below(8); n > 0; --n) StrAppend(&text, kWords[Below(7)], " ");
    return StrCat(text, "end");
  }

  ChatMessage User(std::string_view mark = "") {
    return {.role = Role::kUser, .parts = {Text(mark)}};
  }
  ChatMessage Assistant(std::string_view mark = "") {
    return {.role = Role::kAssistant, .parts = {Text(mark)}};
  }

  std::shared_ptr<const Tool> NewTool(std::string_view mark = "") {
    const std::string name = StrCat(Maybe() ? "read" : "write", mark, serial_++);
    const Json parameters = {{"type", "object"}, {"properties", {{"path", {{"type", "string"}}}}}};
    const Json function = {{"name", name}, {"description", Text(mark)}, {"parameters", parameters}};
    return std::make_shared<const Tool>(
        Tool{.name = name, .definition = {{"type", "function"}, {"function", function}}});
  }

  ChatRequest Chat(std::string_view mark = "") {
    ChatRequest chat;
    chat.render.wall_clock_s = 0;
    Conversation& conversation = chat.conversation;
    if (Below(4) > 0) {
      conversation.messages.push_back({.role = Role::kSystem, .parts = {Text(mark)}});
    }
    for (size_t n = Below(4); n > 0; --n) conversation.tools.push_back(NewTool(mark));
    for (size_t n = Below(5); n > 0; --n) {
      conversation.messages.push_back(User(mark));
      conversation.messages.push_back(Assistant(mark));
    }
    conversation.messages.push_back(User(mark));
    if (Maybe()) chat.variables["mood"] = "calm";
    return chat;
  }

 private:
  std::mt19937_64 random_;
  int serial_ = 100;
};

// An edit, and what a report must say of it.
struct Edit {
  ChatRequest chat;
  ItemChange expected;
};

size_t SystemOf(const ChatRequest& chat) { return ItemsOf(chat).n_system(); }

Edit EditMessage(Writer* writer, ChatRequest chat) {
  std::vector<ChatMessage>& messages = chat.conversation.messages;
  const size_t system = SystemOf(chat);
  // In pairs: many templates want the roles to alternate.
  const size_t pairs = (messages.size() - system) / 2;
  const auto at = [&](size_t index) {
    return messages.begin() + static_cast<std::ptrdiff_t>(index);
  };
  switch (writer->Below(3)) {
    case 0: {
      const size_t index = system + 2 * writer->Below(pairs + 1);
      const ChatMessage added[] = {writer->User(), writer->Assistant()};
      messages.insert(at(index), std::begin(added), std::end(added));
      return {std::move(chat), {.kind = Kind::kAdded, .index = index}};
    }
    case 1:
      if (pairs > 0) {
        const size_t index = system + 2 * writer->Below(pairs);
        messages.erase(at(index), at(index + 2));
        return {std::move(chat), {.kind = Kind::kRemoved, .index = index}};
      }
      [[fallthrough]];
    default: {
      const size_t index = system + writer->Below(messages.size() - system);
      std::string& text = messages[index].parts[0];
      const size_t place = writer->Below(text.size());
      text[place] = text[place] == 'x' ? 'y' : 'x';
      return {std::move(chat), {.kind = Kind::kChanged, .index = index, .part = "content"}};
    }
  }
}

Edit EditTools(Writer* writer, ChatRequest chat) {
  ToolList& tools = chat.conversation.tools;
  const size_t index = writer->Below(tools.size() + 1);
  const auto at = [&](size_t i) { return tools.begin() + static_cast<std::ptrdiff_t>(i); };
  ItemChange change{.item = Item::kTool, .index = index};
  const size_t which = writer->Below(4);
  if (which == 0 || index == tools.size()) {
    change.kind = Kind::kAdded;
    const auto tool = writer->NewTool();
    change.name = tool->name;
    tools.insert(at(index), tool);
  } else if (which == 1) {
    change.kind = Kind::kRemoved;
    change.name = tools[index]->name;
    tools.erase(at(index));
  } else if (which == 2 && tools.size() > 1) {
    const size_t to = (index + 1 + writer->Below(tools.size() - 1)) % tools.size();
    const ToolList former = tools;
    const auto moved = tools[index];
    tools.erase(at(index));
    tools.insert(at(to), moved);
    change = {.item = Item::kTool, .kind = Kind::kMoved, .index = std::min(index, to)};
    change.name = tools[change.index]->name;
    change.former = former[change.index]->name;
  } else {
    Tool tool = *tools[index];
    tool.definition["function"]["description"] = writer->Text();
    change.name = change.former = tool.name;
    tools[index] = std::make_shared<const Tool>(std::move(tool));
  }
  return {std::move(chat), std::move(change)};
}

Edit EditRest(Writer* writer, ChatRequest chat) {
  if (SystemOf(chat) > 0 && writer->Maybe()) {
    chat.conversation.messages[0].parts[0] += StrCat(" and ", writer->Text());
    return {std::move(chat), {.item = Item::kSystem, .part = "content"}};
  }
  const char* const name = writer->Maybe() ? "mood" : "enable_thinking";
  const bool had = chat.variables.contains(name);
  if (had && writer->Maybe()) {
    chat.variables.erase(name);
    return {std::move(chat), {.item = Item::kVariable, .kind = Kind::kRemoved, .name = name}};
  }
  if (name == std::string_view("mood")) {
    chat.variables[name] = writer->Text();
  } else {
    chat.variables[name] = writer->Maybe();
  }
  const Kind kind = had ? Kind::kChanged : Kind::kAdded;
  return {std::move(chat), {.item = Item::kVariable, .kind = kind, .name = name}};
}

Edit RandomEdit(Writer* writer, const ChatRequest& chat) {
  switch (writer->Below(3)) {
    case 0:
      return EditMessage(writer, chat);
    case 1:
      return EditTools(writer, chat);
    default:
      return EditRest(writer, chat);
  }
}

// A prompt as a server takes it.
struct Taken {
  std::string text;
  std::vector<TokenId> tokens;
  PromptTrail trail;
};

StatusOr<Taken> Take(const ChatFormat& format, PromptMemory* memory, const std::string& domain,
                     const ChatRequest& chat) {
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, format.Render(chat));
  Taken taken{.text = prompt.text};
  const auto items = std::make_shared<const PromptItems>(ItemsOf(chat));
  taken.tokens = memory->Encode(domain, prompt.text);
  taken.trail = MakeTrail(memory->Track(domain, prompt.text, items), items, chat, prompt.text, {});
  return taken;
}

std::vector<std::shared_ptr<const ChatFormat>> Formats() {
  std::vector<std::shared_ptr<const ChatFormat>> formats = {Format(kOwnTemplate), Format("")};
  for (const char* const name :
       {"Qwen-Qwen3-0.6B", "Qwen3.5-4B", "GLM-4.6", "HuggingFaceTB-SmolLM3-3B",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "LFM2.5-8B-A1B"}) {
    if (std::string source = GoldenSource(name); !source.empty()) {
      formats.push_back(Format(std::move(source)));
    }
  }
  return formats;
}

class PromptTrailPropertyTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Tokenizer> tokenizer_ = testing::TinyModel("llama")->tokenizer();
};

// The engine's part: everything in common was found, or it was evicted.
StartedEvent FoundOf(const Taken& taken, int64_t common, bool evicted) {
  StartedEvent started;
  started.prompt_tokens = std::ssize(taken.tokens);
  started.cached_tokens = evicted ? 0 : std::min(common, started.prompt_tokens - 1);
  started.known_tokens = started.cached_tokens;
  return started;
}

TEST_F(PromptTrailPropertyTest, NamesTheItemAndTheTokenOfEveryEdit) {
  const auto formats = Formats();
  Writer writer(43);
  const int n_edits = testing::kSlowBuild ? 300 : 10'000;
  int n_seen = 0, n_evicted = 0;
  for (int i = 0; i < n_edits; ++i) {
    SCOPED_TRACE(i);
    const ChatFormat& format = *formats[static_cast<size_t>(i) % formats.size()];
    PromptMemory memory(tokenizer_, {});
    const ChatRequest chat = writer.Chat();
    auto base = Take(format, &memory, "d", chat);
    ASSERT_TRUE(base.ok()) << base.status();
    const auto reply = testing::Bytes(writer.Text());
    memory.Remember("d", base->text, base->tokens, reply, base->trail.items);
    Edit edit = RandomEdit(&writer, chat);
    if (edit.expected.item != Item::kMessage && writer.Maybe()) {
      // As agents do: the conversation has also grown.
      edit.chat.conversation.messages.push_back(writer.Assistant());
      edit.chat.conversation.messages.push_back(writer.User());
    }
    const auto edited = Take(format, &memory, "d", edit.chat);
    ASSERT_TRUE(edited.ok()) << edited.status();
    std::vector<TokenId> former = base->tokens;
    former.insert(former.end(), reply.begin(), reply.end());
    const auto common =
        std::mismatch(former.begin(), former.end(), edited->tokens.begin(), edited->tokens.end())
            .first -
        former.begin();
    const auto same = std::mismatch(base->text.begin(), base->text.end(), edited->text.begin(),
                                    edited->text.end());
    if (edited->trail.earlier.prompt == nullptr) {
      // The edit left nothing of it.
      EXPECT_EQ(chat.conversation.messages.size() + chat.conversation.tools.size(), 1u);
      continue;
    }
    const bool evicted = common > 32 && writer.Below(4) == 0;
    const StartedEvent started = FoundOf(*edited, common, evicted);
    const CacheReport report =
        MakeCacheReport({.trail = &edited->trail, .tokens = edited->tokens, .started = &started});
    EXPECT_EQ(report.common_tokens, common);
    if (evicted) {
      ++n_evicted;
      EXPECT_THAT(report.sentence, ::testing::HasSubstr("evicted")) << report.sentence;
    }
    // A template need not show what was edited.
    if (same.first == base->text.end() || same.second == edited->text.end()) continue;
    ++n_seen;
    ASSERT_TRUE(edited->trail.difference.has_value());
    EXPECT_EQ(edited->trail.difference->cause, edit.expected) << report.sentence << "\n--- before\n"
                                                              << base->text << "\n--- now\n"
                                                              << edited->text;
    EXPECT_EQ(report.differs_at, common);
    EXPECT_NE(report.before, report.now);
  }
  EXPECT_GT(n_seen, n_edits / 2);
  EXPECT_GT(n_evicted, n_edits / 20);
}

TEST_F(PromptTrailPropertyTest, ShowsNothingOfAnotherTenant) {
  const auto formats = Formats();
  Writer writer(44);
  PromptMemory memory(tokenizer_, {});
  const std::string keys[] = {"alice", "bobby"};
  std::vector<ChatRequest> chats[2];
  for (int i = 0; i < (testing::kSlowBuild ? 200 : 3000); ++i) {
    SCOPED_TRACE(i);
    const ChatFormat& format = *formats[writer.Below(2)];
    const size_t who = writer.Below(2);
    const std::string mark = StrCat("secret-of-", keys[who], "-");
    ChatRequest chat = writer.Chat(mark);
    // Prompts that begin like those of the other one: all but the marked texts is public.
    if (!chats[who].empty() && writer.Maybe()) {
      chat = chats[who][writer.Below(chats[who].size())];
      chat.conversation.messages.push_back(writer.Assistant(mark));
      chat.conversation.messages.push_back(writer.User(mark));
    }
    chats[who].push_back(chat);
    const auto taken = Take(format, &memory, keys[who], chat);
    ASSERT_TRUE(taken.ok()) << taken.status();
    const StartedEvent started = FoundOf(*taken, 0, writer.Maybe());
    const CacheReport report =
        MakeCacheReport({.trail = &taken->trail, .tokens = taken->tokens, .started = &started});
    const std::string others = StrCat("secret-of-", keys[1 - who]);
    for (const std::string* text :
         {&report.sentence, &report.before, &report.now, &report.item, &report.name}) {
      EXPECT_THAT(*text, ::testing::Not(::testing::HasSubstr(others)));
    }
  }
}

}  // namespace
}  // namespace weft::serve
