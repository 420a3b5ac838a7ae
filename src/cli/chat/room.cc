#include "cli/chat/room.h"

#include <algorithm>
#include <utility>

#include "answer/answer_ends.h"
#include "answer/pictures.h"
#include "cli/flags/adapter_flags.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::cli {
namespace {

constexpr char kDomain[] = "";
constexpr char kDefaultName[] = "chat";

Status SeesNone() {
  return FailedPrecondition(
      "this model sees no pictures here: start weft chat with --mmproj FILE, the projector that "
      "was published with the model (mmproj-*.gguf)");
}

std::string Quoted(const std::string& name) { return StrCat("\"", Printable(name, 128), "\""); }

}  // namespace

StatusOr<std::unique_ptr<ChatRoom>> ChatRoom::Create(Engine* engine,
                                                     std::shared_ptr<const Model> model,
                                                     std::shared_ptr<serve::Pictures> pictures,
                                                     Notify notify) {
  WEFT_ASSIGN_OR_RETURN(
      auto answerer,
      serve::Answerer::ForCommand(model, engine, /*chat_template=*/"", std::move(pictures)));
  std::unique_ptr<ChatRoom> room(
      new ChatRoom(engine, std::move(model), std::move(answerer), std::move(notify)));
  const std::string& state_dir = engine->options().state_dir;
  if (!state_dir.empty()) {
    WEFT_ASSIGN_OR_RETURN(room->store_, ChatStore::Open(state_dir));
  }
  if (room->model_->chat_template().empty()) {
    room->notify_("the model file has no chat template; ChatML is used");
  }
  return room;
}

ChatRoom::ChatRoom(Engine* engine, std::shared_ptr<const Model> model,
                   std::unique_ptr<serve::Answerer> answerer, Notify notify)
    : engine_(engine),
      model_(std::move(model)),
      notify_(std::move(notify)),
      answerer_(std::move(answerer)),
      encoder_(MakePromptEncoder(model_->tokenizer())) {}

// --- finding and opening -----------------------------------------------------------------

OpenChat* ChatRoom::Find(const std::string& name) {
  const auto it = open_.find(name);
  return it == open_.end() ? nullptr : &it->second;
}

// Whether the engine or the state directory knows the name.
StatusOr<bool> ChatRoom::Exists(const std::string& name) {
  const Status found = engine_->FindSession(kDomain, name).status();
  if (found.code() != StatusCode::kNotFound) {
    WEFT_RETURN_IF_ERROR(found);
    return true;
  }
  if (store_ == nullptr) return false;
  WEFT_ASSIGN_OR_RETURN(const auto names, store_->List());
  return std::binary_search(names.begin(), names.end(), name);
}

// The wanted name, with "-2", "-3", ... appended if necessary.
StatusOr<std::string> ChatRoom::FreeName(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2;; ++i) {
    WEFT_ASSIGN_OR_RETURN(const bool taken, Exists(name));
    if (!taken) return name;
    name = StrCat(wanted, "-", i);
  }
}

OpenChat* ChatRoom::Add(OpenChat conversation) {
  const std::string name = conversation.name;
  return &(open_[name] = std::move(conversation));
}

Status ChatRoom::New(std::string name, const std::string& system) {
  if (name.empty()) {
    WEFT_ASSIGN_OR_RETURN(name, FreeName(kDefaultName));
  }
  WEFT_ASSIGN_OR_RETURN(const bool taken, Exists(name));
  if (taken) return AlreadyExists("there is already a conversation named ", Quoted(name));
  OpenChat conversation{.name = name, .system = system};
  WEFT_ASSIGN_OR_RETURN(conversation.session,
                        engine_->CreateSession({.name = name, .domain = kDomain}));
  current_ = Add(std::move(conversation));
  return OkStatus();
}

Status ChatRoom::Open(const std::string& name) {
  if (Find(name) == nullptr) WEFT_RETURN_IF_ERROR(Load(name));
  current_ = Find(name);
  return OkStatus();
}

// Opens what the state directory has under a name: messages, a session, or both.
Status ChatRoom::Load(const std::string& name) {
  OpenChat conversation{.name = name};
  const auto session = engine_->FindSession(kDomain, name);
  StatusOr<StoredChat> stored =
      store_ != nullptr ? store_->Load(name) : NotFound("there is no state directory");
  if (!stored.ok() && stored.status().code() != StatusCode::kNotFound) return stored.status();
  if (stored.ok()) {
    conversation.system = std::move(stored->system);
    conversation.messages = std::move(stored->messages);
    conversation.pictures = std::move(stored->pictures);
    if (!conversation.pictures.empty() && !answerer_->sees()) return SeesNone();
    WEFT_ASSIGN_OR_RETURN(conversation.context, UsableContext(*stored));
  }
  if (session.ok()) {
    conversation.session = *session;
    WEFT_RETURN_IF_ERROR(RestoreSession(&conversation, stored.ok()));
  } else if (stored.ok()) {
    WEFT_ASSIGN_OR_RETURN(conversation.session,
                          engine_->CreateSession({.name = name, .domain = kDomain}));
  } else {
    return NotFound("there is no conversation named ", Quoted(name), "; /list shows them all");
  }
  Add(std::move(conversation));
  return OkStatus();
}

// The tokens of another model are meaningless for this one and are made again.
StatusOr<ChatContext> ChatRoom::UsableContext(const StoredChat& stored) const {
  const std::vector<TokenId>& tokens = stored.context.tokens();
  const bool known = std::all_of(tokens.begin(), tokens.end(), [this](TokenId token) {
    return token >= 0 && token < model_->n_vocab();
  });
  if (known && stored.model_fingerprint == model_->fingerprint()) return stored.context;
  // The content before the messages is known only as tokens.
  if (stored.context.marks().front().n_tokens > 0) {
    return FailedPrecondition("the conversation ", Quoted(stored.name),
                              " was begun with another model, and its first messages are unknown");
  }
  return ChatContext();
}

Status ChatRoom::RestoreSession(OpenChat* conversation, bool has_messages) {
  const Status restored = engine_->Restore(conversation->session);
  if (!restored.ok()) {
    if (!has_messages || restored.code() != StatusCode::kDataLoss) return restored;
    notify_(StrCat(Message(restored), "; the model recomputes the messages of ",
                   Quoted(conversation->name), " again"));
    return engine_->Reset(conversation->session);
  }
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, engine_->Inspect(conversation->session));
  if (!info.note.empty()) notify_(info.note);
  TellAdapters(info);
  if (has_messages || info.n_tokens == 0) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(auto tokens, engine_->Tokens(conversation->session));
  notify_(StrCat("the messages of ", Quoted(conversation->name),
                 " are unknown; it continues after its ", tokens.size(), " tokens"));
  conversation->context = ChatContext(std::move(tokens));
  return OkStatus();
}

void ChatRoom::TellAdapters(const SessionInfo& session) const {
  if (session.n_tokens == 0) return;
  const std::string own = DescribeAdapters(session.adapters), wanted = DescribeAdapters(adapters_);
  if (own == wanted) return;
  notify_(StrCat(Quoted(session.name), " was begun with ", own,
                 " and goes on with it; /new begins a conversation with ", wanted));
}

// --- modifying ---------------------------------------------------------------------------

ChatContext ChatRoom::ContextOf(const OpenChat& conversation, size_t n_messages) const {
  if (!conversation.pictures.empty()) return ChatContext();
  std::vector<ChatMessage> messages(
      conversation.messages.begin(),
      conversation.messages.begin() + static_cast<std::ptrdiff_t>(n_messages));
  // A template may refuse to render nothing; then there is no text.
  std::string text;
  if (!messages.empty() || !conversation.system.empty()) {
    auto rendered = RenderMessages(conversation.system, std::move(messages), /*for_answer=*/false);
    if (rendered.ok()) text = std::move(rendered->text);
  }
  ChatContext context = conversation.context;
  context.Become(text, encoder_);
  return context;
}

Status ChatRoom::Fork(std::string name, int64_t n_messages) {
  const OpenChat& from = *current_;
  const int64_t all = static_cast<int64_t>(from.messages.size());
  if (n_messages < 0) n_messages = all;
  if (n_messages > all) {
    return OutOfRange("there is no message ", n_messages, "; the last one is ", all);
  }
  if (n_messages % 2 != 0) {
    return InvalidArgument("message ", n_messages, " is a question; fork after an answer, ",
                           n_messages - 1, " or ", n_messages + 1);
  }
  if (name.empty()) {
    WEFT_ASSIGN_OR_RETURN(name, FreeName(from.name));
  }
  WEFT_ASSIGN_OR_RETURN(const bool taken, Exists(name));
  if (taken) return AlreadyExists("there is already a conversation named ", Quoted(name));
  OpenChat fork{.name = name, .system = from.system};
  fork.messages.assign(from.messages.begin(), from.messages.begin() + n_messages);
  fork.pictures = from.pictures;
  fork.context = ContextOf(from, static_cast<size_t>(n_messages));
  WEFT_RETURN_IF_ERROR(engine_->Restore(from.session));
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, engine_->Inspect(from.session));
  const int64_t n_shared = std::min(CommonTokens(from.context, fork.context), info.n_tokens);
  WEFT_ASSIGN_OR_RETURN(fork.session,
                        engine_->Fork(from.session, n_shared, {.name = name, .domain = kDomain}));
  current_ = Add(std::move(fork));
  return Store(*current_);
}

Status ChatRoom::Undo(int64_t n_exchanges) {
  OpenChat& conversation = *current_;
  const int64_t all = static_cast<int64_t>(conversation.messages.size()) / 2;
  if (all == 0) return FailedPrecondition("there is nothing to undo");
  if (n_exchanges > all) {
    return OutOfRange("cannot undo ", n_exchanges, " exchanges, there are ", all);
  }
  WEFT_RETURN_IF_ERROR(engine_->Restore(conversation.session));
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, engine_->Inspect(conversation.session));
  const size_t n_messages = static_cast<size_t>(all - n_exchanges) * 2;
  ChatContext context = ContextOf(conversation, n_messages);
  // A session that cannot be cut holds too much until the next turn.
  if (info.state == SessionState::kReady) {
    const int64_t n_kept = std::min(CommonTokens(conversation.context, context), info.n_tokens);
    WEFT_RETURN_IF_ERROR(engine_->Truncate(conversation.session, n_kept));
  }
  conversation.messages.resize(n_messages);
  conversation.context = std::move(context);
  return Store(conversation);
}

StatusOr<ChatPrompt> ChatRoom::RenderMessages(const std::string& system,
                                              std::vector<ChatMessage> messages,
                                              bool for_answer) const {
  return answerer_->chat().Render(RequestOf(system, std::move(messages), for_answer));
}

ChatRequest ChatRoom::RequestOf(const std::string& system, std::vector<ChatMessage> messages,
                                bool for_answer) const {
  if (!system.empty()) {
    messages.insert(messages.begin(), {.role = Role::kSystem, .parts = {system}});
  }
  ChatRequest request = reasoning_;
  request.conversation.messages = std::move(messages);
  request.add_generation_prompt = for_answer;
  return request;
}

ChatRequest ChatRoom::RequestOf(const OpenChat& conversation, size_t first,
                                const std::string& question) const {
  std::vector<ChatMessage> messages(conversation.messages.begin() + static_cast<long>(first),
                                    conversation.messages.end());
  messages.push_back({.parts = {question}});
  return RequestOf(conversation.system, std::move(messages), /*for_answer=*/true);
}

StatusOr<int64_t> ChatRoom::SizeOf(const OpenChat& conversation, size_t first,
                                   const std::string& question) const {
  serve::Ask ask{.domain = kDomain, .chat = RequestOf(conversation, first, question)};
  ask.pictures = PicturesIn(conversation);
  return answerer_->CountTokens(ask);
}

std::vector<serve::AskedPicture> ChatRoom::PicturesIn(const OpenChat& conversation) {
  std::vector<serve::AskedPicture> pictures;
  for (const ChatPicture& picture : conversation.pictures) {
    pictures.push_back({picture.mark, Printable(picture.name, 200), picture.file});
  }
  return pictures;
}

StatusOr<int64_t> ChatRoom::Trim(int64_t n_exchanges, const std::string& question) {
  OpenChat& conversation = *current_;
  const int64_t all = static_cast<int64_t>(conversation.messages.size()) / 2;
  if (all == 0) return FailedPrecondition("there is nothing to trim");
  if (n_exchanges > all) {
    return OutOfRange("cannot remove ", n_exchanges, " exchanges, there are ", all);
  }
  if (n_exchanges == 0) {
    const int64_t most = model_->context_tokens() - model_->context_tokens() / 4;
    for (n_exchanges = 1; n_exchanges < all; ++n_exchanges) {
      WEFT_ASSIGN_OR_RETURN(const int64_t size,
                            SizeOf(conversation, static_cast<size_t>(n_exchanges) * 2, question));
      if (size <= most) break;
    }
  }
  conversation.messages.erase(conversation.messages.begin(),
                              conversation.messages.begin() + n_exchanges * 2);
  // The next turn cuts the session to match.
  conversation.context = ContextOf(conversation, conversation.messages.size());
  WEFT_RETURN_IF_ERROR(Store(conversation));
  return n_exchanges;
}

void ChatRoom::SetReasoning(const ReplyFlags& flags) {
  serve::ThinkingDefaults thinking = ThinkingOf(flags);
  reasoning_ = ChatRequest();
  serve::SetThinking(thinking, thinking.limit, &reasoning_);
  thought_ = std::move(thinking.limit);
}

Status ChatRoom::SetSystem(const std::string& system) {
  current_->system = system;
  return Store(*current_);
}

// --- saving ------------------------------------------------------------------------------

Status ChatRoom::Store(const OpenChat& conversation) {
  if (store_ == nullptr) return OkStatus();
  return store_->Save({.name = conversation.name,
                       .system = conversation.system,
                       .messages = conversation.messages,
                       .pictures = conversation.pictures,
                       .model_fingerprint = model_->fingerprint(),
                       .context = conversation.context});
}

Status ChatRoom::Save() {
  WEFT_RETURN_IF_ERROR(engine_->Save(current_->session));
  return Store(*current_);
}

Status ChatRoom::Park(const std::string& name) {
  if (name.empty()) return engine_->Park(current_->session);
  WEFT_ASSIGN_OR_RETURN(const SessionId session, engine_->FindSession(kDomain, name));
  return engine_->Park(session);
}

Status ChatRoom::Rename(const std::string& name) {
  const std::string former = current_->name;
  if (name == former) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const bool taken, Exists(name));
  if (taken) return AlreadyExists("there is already a conversation named ", Quoted(name));
  WEFT_RETURN_IF_ERROR(engine_->Rename(current_->session, name));
  auto node = open_.extract(former);
  node.key() = name;
  node.mapped().name = name;
  current_ = &open_.insert(std::move(node)).position->second;
  if (store_ == nullptr) return OkStatus();
  WEFT_RETURN_IF_ERROR(Store(*current_));
  return store_->Remove(former);
}

Status ChatRoom::Drop(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const bool exists, Exists(name));
  if (!exists) return NotFound("there is no conversation named ", Quoted(name));
  if (const auto session = engine_->FindSession(kDomain, name); session.ok()) {
    WEFT_RETURN_IF_ERROR(engine_->Close(*session, /*forget=*/true));
  }
  const bool was_current = current_->name == name;
  open_.erase(name);
  if (was_current) current_ = open_.empty() ? nullptr : &open_.begin()->second;
  const Status removed = store_ != nullptr ? store_->Remove(name) : OkStatus();
  if (current_ == nullptr) WEFT_RETURN_IF_ERROR(New("", ""));
  return removed;
}

Status ChatRoom::Leave() {
  if (store_ == nullptr) return OkStatus();
  Status first;
  for (auto& [name, conversation] : open_) {
    const auto info = engine_->Inspect(conversation.session);
    if (info.ok() && info->state == SessionState::kReady && info->n_tokens > 0) {
      first.Update(Annotate(engine_->Park(conversation.session), Quoted(name), ": "));
    }
  }
  return first;
}

StatusOr<std::vector<ChatRoom::Listed>> ChatRoom::List() {
  std::map<std::string, Listed> all;
  WEFT_ASSIGN_OR_RETURN(const auto sessions, engine_->ListSessions(kDomain));
  for (const SessionInfo& info : sessions) all[info.name].session = info;
  if (store_ != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const auto names, store_->List());
    for (const std::string& name : names) all[name];
  }
  std::vector<Listed> list;
  for (auto& [name, listed] : all) {
    listed.name = name;
    listed.conversation = Find(name);
    listed.is_current = listed.conversation != nullptr && listed.conversation == current_;
    list.push_back(std::move(listed));
  }
  return list;
}

// --- turns -------------------------------------------------------------------------------

ChatRoom::Waiting::Begun ChatRoom::Ask(const std::string& question, TurnOptions options,
                                       const Waiting& waiting) {
  OpenChat& conversation = *current_;
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, engine_->Inspect(conversation.session));
  if (info.state == SessionState::kPoisoned) {
    WEFT_RETURN_IF_ERROR(engine_->Reset(conversation.session));
    notify_("the KV cache of this conversation was lost; the model recomputes it");
  }
  options.adapters = adapters_;
  options.adapters_are_default = true;
  ChatContext context = conversation.context;
  serve::Ask ask{.domain = kDomain,
                 .session = {.name = conversation.name, .required = true},
                 .turn = std::move(options),
                 .keeps_context = true,
                 .thought = thought_,
                 .as_written = true};
  WEFT_RETURN_IF_ERROR(SetPrompt(conversation, question, &context, &ask));
  serve::AnswerReader reader;
  reader.left = waiting.left;
  auto answer = waiting.wait(answerer_->Begin(std::move(ask), std::move(reader)));
  if (answer.status().code() == StatusCode::kCancelled) {
    conversation.attached = LeadingMarks(question, conversation.pictures);
  }
  if (!answer.ok()) return answer;
  conversation.messages.push_back({.parts = {question}});
  conversation.context = std::move(context);
  return answer;
}

Status ChatRoom::SetPrompt(const OpenChat& conversation, const std::string& question,
                           ChatContext* context, serve::Ask* ask) const {
  ask->chat = RequestOf(conversation, 0, question);
  if (!conversation.pictures.empty()) {
    ask->pictures = PicturesIn(conversation);
    return OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const ChatPrompt prompt, answerer_->chat().Render(ask->chat));
  context->Become(prompt.text, encoder_);
  TurnOptions& turn = ask->turn;
  const AnswerEnds& ends = answerer_->chat().ends();
  ask->input = serve::Ask::Input::kRendered;
  ask->ends_in_thought = prompt.reasoning_is_open;
  turn.tokens = context->tokens();
  turn.stop_strings.insert(turn.stop_strings.end(), ends.texts.begin(), ends.texts.end());
  serve::AddEndTokens(ends.tokens, &turn);
  return OkStatus();
}

// --- pictures ----------------------------------------------------------------------------

StatusOr<std::string> ChatRoom::Attach(const std::string& path) {
  if (!answerer_->sees()) return SeesNone();
  WEFT_ASSIGN_OR_RETURN(ChatPicture picture, ReadChatPicture(path));
  const Status seen = answerer_->pictures()->Measure(kDomain, *picture.file).status();
  WEFT_RETURN_IF_ERROR(Annotate(seen, Printable(path, 300), ": "));
  if (current_->pictures.size() == serve::kMaxPictures) {
    return ResourceExhausted("a conversation may have at most ", serve::kMaxPictures, " pictures");
  }
  current_->attached += picture.mark;
  current_->pictures.push_back(picture);
  current_->context = ChatContext();
  return picture.name;
}

std::string ChatRoom::WithAttached(const std::string& question) {
  return StrCat(std::exchange(current_->attached, ""), question);
}

Status ChatRoom::Finish(const serve::Answer& answer, ChatAnswer ended) {
  OpenChat& conversation = *current_;
  conversation.last_turn = answer.usage();
  const bool nothing_said = ended.reason == FinishReason::kCancelled && ended.text.empty();
  if (!ended.status.ok() || nothing_said) {
    if (nothing_said) {
      conversation.attached =
          LeadingMarks(TextOf(conversation.messages.back()), conversation.pictures);
    }
    conversation.messages.pop_back();
    conversation.context = ContextOf(conversation, conversation.messages.size());
    return ended.status;
  }
  if (conversation.pictures.empty()) {
    const Tokenizer& tokenizer = *model_->tokenizer();
    for (const TokenId token : answer.reply_tokens()) {
      conversation.context.Append(token, tokenizer.Piece(token, /*render_special=*/true));
    }
  }
  conversation.messages.push_back({.role = Role::kAssistant, .parts = {std::move(ended.text)}});
  return Annotate(Store(conversation), "the messages could not be saved: ");
}

}  // namespace weft::cli
