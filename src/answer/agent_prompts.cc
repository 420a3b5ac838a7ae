#include "answer/agent_prompts.h"

#include <fcntl.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "answer/chat/own_reply.h"
#include "base/clock.h"
#include "base/files/file_io.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

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
  (void)json.at("variables").get_ref<const Json::object_t&>();
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

uint64_t IdOf(std::string_view tenant, std::string_view chat) {
  return HashOfPrompt(StrCat(tenant, "\n", chat));
}

}  // namespace

StatusOr<std::unique_ptr<AgentPrompts>> AgentPrompts::Open(Options options) {
  FileDescriptor directory(open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok()) return ErrnoStatus(errno, options.directory);
  std::unique_ptr<AgentPrompts> prompts(new AgentPrompts(std::move(options), std::move(directory)));
  WEFT_RETURN_IF_ERROR(prompts->Read());
  return prompts;
}

int64_t AgentPrompts::Now() const {
  return options_.now_s != 0 ? options_.now_s : WallClockMicros() / 1'000'000;
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
    for (const Json& each : json.at("prompts")) {
      Entry entry;
      entry.tenant = each.at("tenant").get<std::string>();
      entry.conversations = each.at("conversations").get<int64_t>();
      entry.used_s = each.at("used_s").get<int64_t>();
      entry.form = each.at("form").get<std::string>();
      entry.chat = std::make_shared<const std::string>(JsonText(ChatJson(ChatOf(each.at("chat")))));
      entry.id = IdOf(entry.tenant, *entry.chat);
      if (Now() - entry.used_s <= options_.max_age_s) entries_.push_back(std::move(entry));
    }
  } catch (const Json::exception&) {
    entries_.clear();
  }
  return OkStatus();
}

void AgentPrompts::MakeRoom(std::string_view tenant) {
  const auto n_own = std::ranges::count(entries_, tenant, &Entry::tenant);
  const bool is_full = entries_.size() >= options_.max_prompts;
  if (!is_full && static_cast<size_t>(n_own) < options_.max_prompts_of_tenant) return;
  entries_.erase(std::ranges::min_element(entries_, {}, [&](const Entry& entry) {
    return std::tuple(!is_full && entry.tenant != tenant, ComesBack(entry), entry.used_s);
  }));
}

uint64_t AgentPrompts::Note(std::string_view tenant, const ChatRequest& chat) {
  if (!Begins(chat.conversation)) return 0;
  const ChatRequest beginning = BeginningOf(chat);
  if (beginning.conversation.messages.empty() && beginning.conversation.tools.empty()) return 0;
  auto text = std::make_shared<const std::string>(JsonText(ChatJson(beginning)));
  if (text->size() < options_.min_bytes || text->size() > options_.max_bytes) return 0;
  const uint64_t id = IdOf(tenant, *text);
  MutexLock lock(&mutex_);
  auto found = std::ranges::find(entries_, id, &Entry::id);
  if (found == entries_.end()) {
    MakeRoom(tenant);
    entries_.push_back({.id = id, .tenant = std::string(tenant), .chat = std::move(text)});
    found = entries_.end() - 1;
  }
  ++found->conversations;
  found->used_s = Now();
  is_saved_ = false;
  return id;
}

void AgentPrompts::SetReady(uint64_t id) {
  MutexLock lock(&mutex_);
  const auto found = std::ranges::find(entries_, id, &Entry::id);
  if (found == entries_.end() || IsReady(*found)) return;
  found->form = options_.form;
  is_saved_ = false;
}

std::optional<AgentPrompt> AgentPrompts::Next(const std::set<uint64_t>& skipped) const {
  std::optional<Entry> next;
  {
    MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) {
      if (!ComesBack(entry) || IsReady(entry) || skipped.contains(entry.id)) continue;
      if (!next || entry.used_s > next->used_s) next = entry;
    }
  }
  if (!next) return std::nullopt;
  return AgentPrompt{
      .id = next->id, .tenant = next->tenant, .chat = ChatOf(Json::parse(*next->chat))};
}

AgentPrompts::Counts AgentPrompts::counts() const {
  MutexLock lock(&mutex_);
  Counts counts;
  for (const Entry& entry : entries_) {
    if (!ComesBack(entry)) continue;
    ++counts.known;
    if (IsReady(entry)) ++counts.ready;
  }
  return counts;
}

Status AgentPrompts::Save() {
  std::vector<Entry> entries;
  {
    MutexLock lock(&mutex_);
    if (is_saved_) return OkStatus();
    is_saved_ = true;
    entries = entries_;
  }
  Json prompts = Json::array();
  for (const Entry& entry : entries) {
    prompts.push_back({{"tenant", entry.tenant},
                       {"conversations", entry.conversations},
                       {"used_s", entry.used_s},
                       {"form", entry.form},
                       {"chat", Json::parse(*entry.chat)}});
  }
  const std::string text = JsonText({{"version", kAgentsVersion}, {"prompts", std::move(prompts)}});
  const std::string path = StrCat(options_.directory, "/", kAgentsFile);
  WEFT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(directory_.get(), kAgentsFile, path));
  WEFT_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(text))));
  return file->CommitLoosely();
}

}  // namespace weft::serve
