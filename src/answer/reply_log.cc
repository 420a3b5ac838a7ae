#include "answer/reply_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/files/file_io.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "replies.log";
constexpr std::string_view kMagic = "weft replies 1\n";
constexpr size_t kMaxEntryBytes = size_t{64} << 20;
// Before each entry: its length and its hash.
constexpr size_t kPrefixBytes = sizeof(uint32_t) + sizeof(uint64_t);

std::string Framed(std::string_view entry) {
  const auto length = static_cast<uint32_t>(entry.size());
  const uint64_t hash = HashOfPrompt(entry);
  std::string bytes(kPrefixBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), &hash, sizeof(hash));
  return bytes.append(entry);
}

// The next entry of `bytes`, which then begin after it. False if none is complete.
bool TakeEntry(std::string_view* bytes, std::string_view* entry) {
  if (bytes->size() < kPrefixBytes) return false;
  uint32_t length = 0;
  uint64_t hash = 0;
  std::memcpy(&length, bytes->data(), sizeof(length));
  std::memcpy(&hash, bytes->data() + sizeof(length), sizeof(hash));
  if (length > kMaxEntryBytes || bytes->size() - kPrefixBytes < length) return false;
  *entry = bytes->substr(kPrefixBytes, length);
  if (HashOfPrompt(*entry) != hash) return false;
  bytes->remove_prefix(kPrefixBytes + length);
  return true;
}

std::string Packed(const Json& json) {
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Json JsonOf(const ReplyMemory::Record& record) {
  const OwnReply& reply = *record.reply;
  Json calls = Json::array();
  for (const ToolCall& call : reply.calls) {
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return {{"domain", record.domain},
          {"session", record.session},
          {"last_message", record.place.last_message},
          {"conversation", reply.conversation},
          {"id", reply.id},
          {"reasoning", reply.reasoning},
          {"content", reply.content},
          {"calls", std::move(calls)},
          {"tokens", reply.tokens},
          {"prompt_bytes", reply.prompt.bytes},
          {"prompt_hash", reply.prompt.hash},
          {"prompt_tail", reply.prompt.tail}};
}

// Throws if a member is missing or has another type.
ReplyMemory::Record RecordOf(const Json& json) {
  OwnReply reply{.reasoning = json.at("reasoning"), .content = json.at("content")};
  for (const Json& call : json.at("calls")) {
    reply.calls.push_back({.id = call.at("id"), .name = call.at("name")});
    reply.calls.back().arguments = call.at("arguments");
  }
  reply.tokens = json.at("tokens").get<std::vector<TokenId>>();
  reply.prompt = {.bytes = json.at("prompt_bytes"),
                  .hash = json.at("prompt_hash"),
                  .tail = json.at("prompt_tail")};
  reply.conversation = json.at("conversation");
  reply.id = json.at("id");
  return {.domain = json.at("domain"),
          .session = json.at("session"),
          .place = {.conversation = reply.conversation, .last_message = json.at("last_message")},
          .reply = std::make_shared<const OwnReply>(std::move(reply))};
}

// False if the entry is not one of this format.
bool Apply(std::string_view entry, std::vector<ReplyMemory::Record>* found) {
  try {
    const Json json = Json::from_cbor(entry);
    if (const auto deleted = json.find("deleted"); deleted != json.end()) {
      const std::string session = *deleted, domain = json.at("domain");
      std::erase_if(*found, [&](const ReplyMemory::Record& record) {
        return record.domain == domain && record.session == session;
      });
    } else {
      found->push_back(RecordOf(json));
      const OwnReply& reply = *found->back().reply;
      return reply.prompt.tail.size() <= reply.prompt.bytes;
    }
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

Status Failed(std::string_view doing) {
  const int error = errno;
  const std::string text = StrCat(kName, ": ", doing, ": ", std::generic_category().message(error));
  return error == ENOSPC ? ResourceExhausted(text) : Unavailable(text);
}

}  // namespace

ReplyLog::ReplyLog(Options options, FileDescriptor directory)
    : options_(std::move(options)),
      directory_(std::move(directory)),
      head_(StrCat(kMagic, Framed(options_.model))) {}

StatusOr<std::unique_ptr<ReplyLog>> ReplyLog::Open(Options options,
                                                   std::vector<ReplyMemory::Record>* found) {
  FileDescriptor directory(open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok()) return Failed("opening its directory");
  std::unique_ptr<ReplyLog> log(new ReplyLog(std::move(options), std::move(directory)));
  WEFT_RETURN_IF_ERROR(log->Read(found));
  WEFT_RETURN_IF_ERROR(log->OpenForAppending());
  log->writer_ = std::thread([log = log.get()] { log->Run(); });
  return log;
}

Status ReplyLog::Read(std::vector<ReplyMemory::Record>* found) {
  const auto source = OpenFileSource(directory_.get(), kName, kName);
  if (source.status().code() == StatusCode::kNotFound) return OkStatus();
  WEFT_RETURN_IF_ERROR(source.status());
  // Several rewritings could not have failed before it grows to this.
  if ((*source)->size() > 64 * options_.rewrite_bytes) return OkStatus();
  std::string bytes((*source)->size(), '\0');
  WEFT_RETURN_IF_ERROR((*source)->Read(0, std::as_writable_bytes(std::span(bytes))));
  if (!bytes.starts_with(head_)) return OkStatus();  // another model's, or no log
  std::string_view left = std::string_view(bytes).substr(head_.size()), entry;
  while (TakeEntry(&left, &entry) && Apply(entry, found)) {
    file_bytes_ = bytes.size() - left.size();
  }
  return OkStatus();
}

// Cuts off an incomplete end. A file of another model is replaced by a new one.
Status ReplyLog::OpenForAppending() {
  file_ = FileDescriptor(openat(directory_.get(), kName,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_.ok()) return Failed("opening");
  if (ftruncate(file_.get(), static_cast<off_t>(file_bytes_)) != 0) return Failed("shortening");
  if (file_bytes_ == 0) WEFT_RETURN_IF_ERROR(Write(head_));
  needed_bytes_ = file_bytes_;
  return OkStatus();
}

ReplyLog::~ReplyLog() {
  {
    MutexLock lock(&mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (writer_.joinable()) writer_.join();
}

void ReplyLog::Append(const ReplyMemory::Record& record) { Add(Packed(JsonOf(record))); }

void ReplyLog::AppendDeletion(std::string_view domain, std::string_view session) {
  Add(Packed({{"deleted", session}, {"domain", domain}}));
}

void ReplyLog::Add(const std::string& entry) {
  if (entry.size() > kMaxEntryBytes) return;
  MutexLock lock(&mutex_);
  if (failed_) return;
  waiting_.push_back(Framed(entry));
  changed_.NotifyAll();
}

void ReplyLog::Run() {
  while (true) {
    std::string bytes;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !ends_) changed_.Wait(&mutex_);
      if (waiting_.empty()) return;
      for (const std::string& entry : waiting_) bytes += entry;
      waiting_.clear();
    }
    Status status = Write(bytes);
    if (status.ok() && file_bytes_ > options_.rewrite_bytes && file_bytes_ > 2 * needed_bytes_) {
      status = Rewrite();
    }
    if (status.ok()) continue;
    options_.on_notice(StrCat("replies are no longer kept on disk: ", Message(status)));
    MutexLock lock(&mutex_);
    failed_ = true;
    waiting_.clear();
  }
}

Status ReplyLog::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("writing");
    bytes.remove_prefix(static_cast<size_t>(n));
    file_bytes_ += static_cast<size_t>(n);
  }
  return OkStatus();
}

// Replies that were given meanwhile may come twice: the later entry replaces the earlier.
Status ReplyLog::Rewrite() {
  auto next = AtomicFile::Create(directory_.get(), kName, kName);
  if (!next.ok()) return next.status();
  const auto append = [&](std::string_view bytes) {
    return (*next)->Append(std::as_bytes(std::span(bytes)));
  };
  WEFT_RETURN_IF_ERROR(append(head_));
  file_bytes_ = head_.size();
  for (const ReplyMemory::Record& record : options_.all()) {
    const std::string entry = Framed(Packed(JsonOf(record)));
    WEFT_RETURN_IF_ERROR(append(entry));
    file_bytes_ += entry.size();
  }
  WEFT_RETURN_IF_ERROR((*next)->CommitLoosely());
  return OpenForAppending();
}

}  // namespace weft::serve
