#include "cli/chat/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "answer/row_file.h"
#include "engine/state/state_directory.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSuffix = ".json";
constexpr int64_t kFileVersion = 1;
constexpr int64_t kPictureVersion = 2;  // with pictures
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

std::string FileOf(const std::string& name) { return StrCat(SafeFileName(name), kSuffix); }

StatusOr<std::vector<std::string>> FilesIn(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  auto it = std::filesystem::directory_iterator(path, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    files.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), StrCat("cannot list ", Printable(path, 300)));
  return files;
}

Json ToJson(const StoredChat& chat) {
  Json messages = Json::array(), marks = Json::array();
  for (const ChatMessage& message : chat.messages) {
    messages.push_back({{"role", NameOf(message.role)}, {"content", TextOf(message)}});
  }
  for (const ChatContext::Mark& mark : chat.context.marks()) {
    marks.push_back({mark.text_bytes, mark.n_tokens, mark.text_hash});
  }
  Json json = {{"version", chat.pictures.empty() ? kFileVersion : kPictureVersion},
               {"name", chat.name},
               {"system", chat.system},
               {"messages", std::move(messages)},
               {"model", chat.model_fingerprint},
               {"tokens", chat.context.tokens()},
               {"marks", std::move(marks)}};
  for (const ChatPicture& picture : chat.pictures) {
    json["pictures"].push_back({{"mark", picture.mark},
                                {"name", picture.name},
                                {"data", serve::EncodeBase64(picture.file->bytes)}});
  }
  return json;
}

// Reads the fields of an object, and remembers whether any was invalid.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) { Expect(object.is_object()); }

  bool ok() const { return ok_; }
  void Expect(bool condition) { ok_ = ok_ && condition; }

  std::string String(const char* name) {
    const Json* const value = Find(name);
    Expect(value != nullptr && value->is_string());
    return ok_ ? value->get<std::string>() : std::string();
  }
  // Null if there is no such array.
  const Json* Array(const char* name) {
    const Json* const value = Find(name);
    Expect(value != nullptr && value->is_array());
    return ok_ ? value : nullptr;
  }
  int64_t Integer(const Json& value, int64_t max) {
    Expect(value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(max));
    return ok_ ? value.get<int64_t>() : 0;
  }
  const Json* Find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }

 private:
  const Json& object_;
  bool ok_ = true;
};

std::vector<ChatMessage> ReadMessages(FieldReader* reader) {
  std::vector<ChatMessage> messages;
  const Json* const array = reader->Array("messages");
  if (array == nullptr) return messages;
  for (const Json& item : *array) {
    FieldReader fields(item);
    // Questions and answers alternate.
    const Role role = messages.size() % 2 == 0 ? Role::kUser : Role::kAssistant;
    fields.Expect(fields.String("role") == NameOf(role));
    messages.push_back({.role = role, .parts = {fields.String("content")}});
    reader->Expect(fields.ok());
  }
  return messages;
}

std::vector<ChatPicture> ReadPictures(FieldReader* reader) {
  std::vector<ChatPicture> pictures;
  const Json* const array = reader->Array("pictures");
  if (array == nullptr) return pictures;
  for (const Json& item : *array) {
    FieldReader fields(item);
    ChatPicture picture{.mark = fields.String("mark"), .name = fields.String("name")};
    std::optional<std::string> bytes = serve::DecodeBase64(fields.String("data"));
    fields.Expect(!picture.mark.empty() && bytes.has_value());
    reader->Expect(fields.ok());
    if (!reader->ok()) return {};
    picture.file = std::make_shared<const serve::PictureFile>(*std::move(bytes));
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

ChatContext ReadContext(FieldReader* reader) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<TokenId> tokens;
  std::vector<ChatContext::Mark> marks;
  const Json* const token_items = reader->Array("tokens");
  const Json* const mark_items = reader->Array("marks");
  if (token_items == nullptr || mark_items == nullptr) return ChatContext();
  for (const Json& item : *token_items) {
    tokens.push_back(
        static_cast<TokenId>(reader->Integer(item, std::numeric_limits<TokenId>::max())));
  }
  for (const Json& item : *mark_items) {
    reader->Expect(item.is_array() && item.size() == 3 && item[2].is_number_unsigned());
    if (!reader->ok()) return ChatContext();
    marks.push_back({.text_bytes = reader->Integer(item[0], kMax),
                     .n_tokens = reader->Integer(item[1], kMax),
                     .text_hash = item[2].get<uint64_t>()});
  }
  ChatContext context;
  reader->Expect(context.Restore(std::move(tokens), std::move(marks)));
  return context;
}

StatusOr<StoredChat> FromJson(const Json& json) {
  FieldReader reader(json);
  const Json* const version = reader.Find("version");
  if (version != nullptr && version->is_number_integer() && *version != kFileVersion &&
      *version != kPictureVersion) {
    return FailedPrecondition("its version is ", version->dump(), "; this program reads ",
                              kFileVersion, " and ", kPictureVersion);
  }
  reader.Expect(version != nullptr && version->is_number_integer());
  StoredChat chat;
  chat.name = reader.String("name");
  chat.system = reader.String("system");
  chat.messages = ReadMessages(&reader);
  if (reader.ok() && *version == kPictureVersion) chat.pictures = ReadPictures(&reader);
  chat.model_fingerprint = reader.String("model");
  chat.context = ReadContext(&reader);
  if (!reader.ok()) return DataLoss("it does not hold a conversation; remove it");
  return chat;
}

}  // namespace

std::string ChatStore::PathOf(const std::string& file) const { return StrCat(path_, "/", file); }

StatusOr<std::unique_ptr<ChatStore>> ChatStore::Open(const std::string& state_dir) {
  const std::string path = StrCat(state_dir, "/chat");
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, StrCat("cannot create ", Printable(path, 300)));
  }
  WEFT_ASSIGN_OR_RETURN(FileDescriptor dir, OpenOwnDirectory(AT_FDCWD, path, path));
  WEFT_ASSIGN_OR_RETURN(const auto files, FilesIn(path));
  for (const std::string& file : files) {
    if (file.starts_with(AtomicFile::kTempPrefix)) (void)unlinkat(dir.get(), file.c_str(), 0);
  }
  return std::unique_ptr<ChatStore>(new ChatStore(path, std::move(dir)));
}

Status ChatStore::Save(const StoredChat& chat) {
  const std::string file = FileOf(chat.name);
  const std::string text = ToJson(chat).dump(-1, ' ', false, Json::error_handler_t::replace);
  WEFT_ASSIGN_OR_RETURN(const auto out, AtomicFile::Create(dir_.get(), file, PathOf(file)));
  WEFT_RETURN_IF_ERROR(out->Append(std::as_bytes(std::span(text))));
  return out->Commit();
}

StatusOr<StoredChat> ChatStore::Load(const std::string& name) const {
  const std::string file = FileOf(name);
  WEFT_ASSIGN_OR_RETURN(const auto source, OpenFileSource(dir_.get(), file, PathOf(file)));
  if (source->size() > kMaxFileBytes) {
    return DataLoss(Printable(PathOf(file), 300), " is too large for a conversation");
  }
  std::string text(source->size(), '\0');
  WEFT_RETURN_IF_ERROR(source->Read(0, std::as_writable_bytes(std::span(text))));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto chat = FromJson(json);
  if (chat.ok() && chat->name != name) chat = DataLoss("it holds another conversation");
  if (!chat.ok()) {
    return Annotate(chat.status(), "cannot read ", Printable(PathOf(file), 300), ": ");
  }
  return chat;
}

Status ChatStore::Remove(const std::string& name) {
  const std::string file = FileOf(name);
  if (unlinkat(dir_.get(), file.c_str(), 0) != 0) {
    if (errno == ENOENT) return OkStatus();
    return ErrnoStatus(errno, StrCat("cannot remove ", Printable(PathOf(file), 300)));
  }
  return SyncDirectory(dir_.get(), path_);
}

StatusOr<std::vector<std::string>> ChatStore::List() const {
  WEFT_ASSIGN_OR_RETURN(const auto files, FilesIn(path_));
  std::vector<std::string> names;
  for (const std::string& file : files) {
    if (!file.ends_with(kSuffix)) continue;
    auto name = NameOfSafeFile(file.substr(0, file.size() - kSuffix.size()));
    if (name.has_value() && !name->empty()) names.push_back(*std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weft::cli
