#include "answer/agent_prompts.h"

#include <fcntl.h>

#include <algorithm>
#include <span>
#include <utility>

#include "answer/chat/own_reply.h"
#include "base/clock.h"
#include "base/files/file_io.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAgentsFile[] = "agents.json";
constexpr int kAgentsVersion = 1;

bool IsInstruction(const ChatMessage& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

bool Begins(const Conversation& conversation) {
  return std::ranges::none_of(conversation.messages, [](const ChatMessage& message) {
    return message.role == Role::kAssistant || message.role == Role::kTool;
  });
}

// Without what only one request has.
ChatRequest BeginningOf(const ChatRequest& chat) {
  const std::vector<ChatMessage>& messages = chat.conversation.messages;
  const auto end = std::ranges::find_if_not(messages, IsInstruction);
  return {.conversation = {.messages = {messages.begin(), end}, .tools = chat.conversation.tools},
          .add_generation_prompt = false,
          .variables = chat.variables,
          .past_thoughts = chat.past_thoughts};
}

Json ChatJson(const ChatRequest& chat) {
  Json messages = Json::array(), tools = Json::array();
  for (const ChatMessage& message : chat.conversation.messages) {
    messages.push_back(
        {{"role", NameOf(message.role)}, {"parts", message.parts}, {"fields", message.fields}});
  }
  for (const auto& tool : chat.conversation.tools) {
    tools.push_back({{"name", tool->name}, {"definition", tool->definition}});
  }
  return {{"messages", std::move(messages)},
          {"tools", std::move(tools)},
          {"variables", chat.variables},
          {"past_thoughts", static_cast<int>(chat.past_thoughts)}};
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Throws if the JSON is not as ChatJson makes it.
ChatRequest ChatOf(const Json& json) {
  ChatRequest chat;
  chat.add_generation_prompt = false;
  chat.variables = json.at("variables");
  chat.past_thoughts =
      static_cast<PastThoughts>(std::clamp(json.at("past_thoughts").get<int>(), 0, 2));
  for (const Json& message : json.at("messages")) {
    ChatMessage& read = chat.conversation.messages.emplace_back();
    read.role = RoleNamed(message.at("role").get<std::string>()).value_or(Role::kSystem);
    read.parts = message.at("parts").get<std::vector<std::string>>();
    read.fields = message.at("fields");
  }
  for (const Json& tool : json.at("tools")) {
    Tool read;
    read.name = tool.at("name").get<std::string>();
    read.definition = tool.at("definition");
    (void)read.definition.at("function").at("name");
    chat.conversation.tools.push_back(std::make_shared<const Tool>(std::move(read)));
  }
  return chat;
}

uint64_t IdOf(std::string_view domain, const ChatRequest& chat, size_t* n_bytes) {
  const std::string text = JsonText(ChatJson(chat));
  *n_bytes = text.size();
  return HashOfPrompt(StrCat(domain, "\n", text));
}

}  // namespace

StatusOr<std::unique_ptr<AgentPrompts>> AgentPrompts::Open(Options options) {
  FileDescriptor directory(open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok()) return ErrnoStatus(errno, options.directory);
  std::unique_ptr<AgentPrompts> prompts(new AgentPrompts(std::move(options), std::move(directory)));
  WEFT_RETURN_IF_ERROR(prompts->Read());
  return prompts;
}

nlohmann::ordered_json AgentPrompts::JsonOf(const Entry& entry) {
  return {{"domain", entry.prompt.domain},
          {"conversations", entry.conversations},
          {"used_s", entry.used_s},
          {"form", entry.form},
          {"chat", ChatJson(entry.prompt.chat)}};
}

AgentPrompts::Entry AgentPrompts::EntryOf(const Json& json) {
  Entry entry;
  entry.conversations = json.at("conversations").get<int64_t>();
  entry.used_s = json.at("used_s").get<int64_t>();
  entry.form = json.at("form").get<std::string>();
  entry.prompt.domain = json.at("domain").get<std::string>();
  entry.prompt.chat = ChatOf(json.at("chat"));
  size_t n_bytes = 0;
  entry.prompt.id = IdOf(entry.prompt.domain, entry.prompt.chat, &n_bytes);
  return entry;
}

Status AgentPrompts::Read() {
  const std::string path = StrCat(options_.directory, "/", kAgentsFile);
  const auto source = OpenFileSource(directory_.get(), kAgentsFile, path);
  if (source.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!source.ok()) return source.status();
  constexpr size_t kMaxOthers = 4096;
  if ((*source)->size() > options_.max_prompts * (options_.max_bytes + kMaxOthers)) {
    return OkStatus();
  }
  std::string text((*source)->size(), '\0');
  WEFT_RETURN_IF_ERROR((*source)->Read(0, std::as_writable_bytes(std::span(text))));
  MutexLock lock(&mutex_);
  try {
    const Json json = Json::parse(text);
    if (json.at("version").get<int>() != kAgentsVersion) return OkStatus();
    for (const Json& entry : json.at("prompts")) entries_.push_back(EntryOf(entry));
  } catch (const Json::exception&) {
    entries_.clear();
  }
  return OkStatus();
}

void AgentPrompts::Note(std::string_view domain, const ChatRequest& chat) {
  if (!Begins(chat.conversation)) return;
  ChatRequest beginning = BeginningOf(chat);
  if (beginning.conversation.messages.empty() && beginning.conversation.tools.empty()) return;
  size_t n_bytes = 0;
  const uint64_t id = IdOf(domain, beginning, &n_bytes);
  if (n_bytes < options_.min_bytes || n_bytes > options_.max_bytes) return;
  MutexLock lock(&mutex_);
  auto found = std::ranges::find(entries_, id, [](const Entry& entry) { return entry.prompt.id; });
  if (found == entries_.end()) {
    if (entries_.size() >= options_.max_prompts) {
      entries_.erase(std::ranges::min_element(entries_, {}, [this](const Entry& entry) {
        return std::pair(ComesBack(entry), entry.used_s);
      }));
    }
    entries_.push_back(
        {.prompt = {.id = id, .domain = std::string(domain), .chat = std::move(beginning)}});
    found = entries_.end() - 1;
  }
  ++found->conversations;
  found->used_s = WallClockMicros() / 1'000'000;
  found->form = options_.form;
  is_saved_ = false;
}

std::optional<AgentPrompt> AgentPrompts::Next() const {
  MutexLock lock(&mutex_);
  const Entry* next = nullptr;
  for (const Entry& entry : entries_) {
    if (!ComesBack(entry) || entry.form == options_.form) continue;
    if (next == nullptr || entry.conversations > next->conversations) next = &entry;
  }
  if (next == nullptr) return std::nullopt;
  return next->prompt;
}

void AgentPrompts::SetReady(uint64_t id) {
  MutexLock lock(&mutex_);
  for (Entry& entry : entries_) {
    if (entry.prompt.id != id || entry.form == options_.form) continue;
    entry.form = options_.form;
    is_saved_ = false;
  }
}

AgentPrompts::Counts AgentPrompts::counts() const {
  MutexLock lock(&mutex_);
  Counts counts;
  for (const Entry& entry : entries_) {
    if (!ComesBack(entry)) continue;
    ++counts.known;
    if (entry.form == options_.form) ++counts.ready;
  }
  return counts;
}

Status AgentPrompts::Save() {
  std::string text;
  {
    MutexLock lock(&mutex_);
    if (is_saved_) return OkStatus();
    is_saved_ = true;
    Json prompts = Json::array();
    for (const Entry& entry : entries_) prompts.push_back(JsonOf(entry));
    text = JsonText({{"version", kAgentsVersion}, {"prompts", std::move(prompts)}});
  }
  const std::string path = StrCat(options_.directory, "/", kAgentsFile);
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(directory_.get(), kAgentsFile, path));
  WEFT_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(text))));
  return file->Commit();
}

}  // namespace weft::serve
