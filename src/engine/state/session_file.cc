#include "engine/state/session_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/state/fields.h"
#include "engine/state/session_section.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr std::array<char, 8> kMagic = {'\x89', 'W', 'E', 'F', 'T', 'S', 'E', 'S'};
constexpr uint32_t kFirstVersion = 1;
constexpr uint32_t kCheckpointVersion = 2;  // the first version with checkpoints
constexpr uint32_t kRowVersion = 3;         // and with rows
constexpr uint32_t kAdapterVersion = 4;     // and with adapters and rows that belong together
constexpr uint32_t kInvocationVersion = 5;  // and with an adapter that acts from a position on
constexpr size_t kFileHeaderBytes = 24;
constexpr size_t kMaxMetaBytes = size_t{64} << 10;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Older programs can read a file without checkpoints, rows and adapters.
uint32_t VersionFor(const SessionHead& head) {
  if (head.adapter_from.has_value()) return kInvocationVersion;
  if (!head.adapters.empty() || !head.spans.empty()) return kAdapterVersion;
  if (head.row_values > 0) return kRowVersion;
  return head.checkpoints.empty() ? kFirstVersion : kCheckpointVersion;
}

void PutAdapters(const SessionHead& head, FieldWriter* out) {
  out->Put(static_cast<uint32_t>(head.adapters.size()));
  for (const SessionHead::Adapter& adapter : head.adapters) {
    out->PutText(adapter.name);
    out->Put(adapter.content.low);
    out->Put(adapter.content.high);
    out->Put(adapter.scale);
  }
}

void PutSpans(const SessionHead& head, FieldWriter* out) {
  out->Put(static_cast<uint32_t>(head.spans.size()));
  for (const SessionHead::Span& span : head.spans) {
    for (const int64_t n : {span.first, span.n_rows, span.grid_rows, span.grid_columns}) {
      out->Put(n);
    }
    out->Put(static_cast<uint32_t>(span.mutual));
  }
}

void PutHead(const SessionHead& head, FieldWriter* out) {
  for (const Fingerprint& print : {head.model, head.layout}) {
    out->Put(print.low);
    out->Put(print.high);
  }
  out->PutText(head.kv_type);
  out->PutText(head.domain);
  out->PutText(head.name);
  out->Put(head.created_us);
  out->Put(head.updated_us);
  out->Put(static_cast<int64_t>(head.tokens.size()));
  out->Put(head.state_tokens);
  out->Put(static_cast<uint32_t>(head.page_tokens));
  out->Put(static_cast<uint32_t>(head.groups.size()));
  for (const SessionHead::Group& group : head.groups) {
    out->Put(group.page_bytes);
    out->Put(group.first_page);
  }
  out->Put(head.slot_bytes);
  if (VersionFor(head) < kCheckpointVersion) return;
  out->Put(static_cast<uint32_t>(head.checkpoints.size()));
  for (const int64_t n_tokens : head.checkpoints) out->Put(n_tokens);
  if (VersionFor(head) >= kRowVersion) out->Put(head.row_values);
  if (VersionFor(head) < kAdapterVersion) return;
  PutAdapters(head, out);
  PutSpans(head, out);
  if (head.adapter_from) out->Put(*head.adapter_from);
}

bool GetAdapters(FieldReader* in, std::vector<SessionHead::Adapter>* adapters) {
  const uint32_t n = in->Get<uint32_t>();
  if (!in->ok() || n > kMaxSessionAdapters) return false;
  adapters->resize(n);
  for (SessionHead::Adapter& adapter : *adapters) {
    adapter.name = in->GetText();
    adapter.content.low = in->Get<uint64_t>();
    adapter.content.high = in->Get<uint64_t>();
    adapter.scale = in->Get<float>();
  }
  return true;
}

bool GetSpans(FieldReader* in, std::vector<SessionHead::Span>* spans) {
  const uint32_t n_spans = in->Get<uint32_t>();
  if (!in->ok() || n_spans > kMaxSessionSpans) return false;
  spans->resize(n_spans);
  for (SessionHead::Span& span : *spans) {
    for (int64_t* n : {&span.first, &span.n_rows, &span.grid_rows, &span.grid_columns}) {
      *n = in->Get<int64_t>();
    }
    span.mutual = in->Get<uint32_t>() != 0;
  }
  return true;
}

// Reads all but the tokens. Returns the number of tokens.
std::optional<int64_t> GetHead(std::span<const std::byte> bytes, uint32_t version,
                               SessionHead* head) {
  FieldReader in(bytes);
  for (Fingerprint* print : {&head->model, &head->layout}) {
    print->low = in.Get<uint64_t>();
    print->high = in.Get<uint64_t>();
  }
  head->kv_type = in.GetText();
  head->domain = in.GetText();
  head->name = in.GetText();
  head->created_us = in.Get<int64_t>();
  head->updated_us = in.Get<int64_t>();
  const int64_t n_tokens = in.Get<int64_t>();
  head->state_tokens = in.Get<int64_t>();
  const uint32_t page_tokens = in.Get<uint32_t>();
  const uint32_t n_groups = in.Get<uint32_t>();
  if (!in.ok() || page_tokens > kMaxSessionTokens || n_groups > kMaxSessionGroups) {
    return std::nullopt;
  }
  head->page_tokens = static_cast<int>(page_tokens);
  head->groups.resize(n_groups);
  for (SessionHead::Group& group : head->groups) {
    group.page_bytes = in.Get<int64_t>();
    group.first_page = in.Get<int64_t>();
  }
  head->slot_bytes = in.Get<int64_t>();
  if (version >= kCheckpointVersion) {
    const uint32_t n_checkpoints = in.Get<uint32_t>();
    if (!in.ok() || n_checkpoints > kMaxSessionCheckpoints) return std::nullopt;
    head->checkpoints.resize(n_checkpoints);
    for (int64_t& n_tokens : head->checkpoints) n_tokens = in.Get<int64_t>();
  }
  if (version >= kRowVersion) head->row_values = in.Get<int64_t>();
  if (version >= kAdapterVersion &&
      !(GetAdapters(&in, &head->adapters) && GetSpans(&in, &head->spans))) {
    return std::nullopt;
  }
  if (version >= kInvocationVersion) head->adapter_from = in.Get<int64_t>();
  if (!in.at_end()) return std::nullopt;
  return n_tokens;
}

// The problem with the adapters of a head of this many tokens; "" if there is none.
std::string WrongWithAdapters(const SessionHead& head, int64_t n_tokens) {
  if (head.adapters.size() > kMaxSessionAdapters) {
    return StrCat("it has ", head.adapters.size(), " adapters");
  }
  for (const SessionHead::Adapter& adapter : head.adapters) {
    if (adapter.name.size() > kMaxSessionNameBytes) {
      return StrCat("an adapter's name is longer than ", kMaxSessionNameBytes, " bytes");
    }
    if (!std::isfinite(adapter.scale) || adapter.scale == 0) {
      return StrCat("it uses an adapter at scale ", adapter.scale);
    }
  }
  const int64_t from = head.adapter_from.value_or(0);
  if (from < 0 || from > n_tokens || (head.adapter_from && head.adapters.empty())) {
    return StrCat("an adapter acts from token ", from, " on, which cannot be");
  }
  return "";
}

// The problem with the head's checkpoints; "" if there is none.
std::string WrongWithCheckpoints(const SessionHead& head) {
  if (head.checkpoints.empty()) return "";
  if (head.slot_bytes == 0 || head.page_tokens == 0) {
    return "it has checkpoints but no recurrent state";
  }
  if (head.checkpoints.size() > kMaxSessionCheckpoints) {
    return StrCat("it has ", head.checkpoints.size(), " checkpoints");
  }
  int64_t former = 0;
  for (const int64_t n_tokens : head.checkpoints) {
    if (n_tokens <= former || n_tokens >= head.state_tokens || n_tokens % head.page_tokens != 0) {
      return StrCat("it has a checkpoint after ", n_tokens, " tokens, which cannot be");
    }
    former = n_tokens;
  }
  return "";
}

// The problem with a head of this many tokens; "" if there is none.
std::string WrongWith(const SessionHead& head, int64_t n_tokens) {
  if (head.name.size() > kMaxSessionNameBytes || head.domain.size() > kMaxSessionNameBytes) {
    return StrCat("its name or domain is longer than ", kMaxSessionNameBytes, " bytes");
  }
  if (head.kv_type.size() > 32) return "its KV type's name is longer than 32 bytes";
  if (n_tokens < 0 || n_tokens > kMaxSessionTokens) return StrCat("it has ", n_tokens, " tokens");
  if (head.state_tokens < 0 || head.state_tokens > n_tokens) {
    return StrCat("it has the state of ", head.state_tokens, " tokens of ", n_tokens);
  }
  if (head.groups.size() > kMaxSessionGroups) {
    return StrCat("it has ", head.groups.size(), " layer groups");
  }
  if (head.slot_bytes < 0 || head.slot_bytes > kMaxStatePartBytes) {
    return StrCat("its recurrent state has ", head.slot_bytes, " bytes");
  }
  if (head.page_tokens < 0 || (head.page_tokens == 0 && !head.groups.empty())) {
    return StrCat("its pages hold ", head.page_tokens, " tokens");
  }
  if (head.state_tokens == 0 && (!head.groups.empty() || head.slot_bytes > 0)) {
    return "it has the state of no token, which is not empty";
  }
  for (const SessionHead::Group& group : head.groups) {
    if (group.page_bytes <= 0 || group.page_bytes > kMaxStatePartBytes) {
      return StrCat("its pages have ", group.page_bytes, " bytes");
    }
    if (group.first_page < 0 || group.first_page > head.end_page()) {
      return StrCat("its pages go from ", group.first_page, " to ", head.end_page());
    }
  }
  if (head.row_values < 0 || head.row_values > kMaxRowValues) {
    return StrCat("its rows have ", head.row_values, " values");
  }
  const std::string wrong = WrongWithAdapters(head, n_tokens);
  return wrong.empty() ? WrongWithCheckpoints(head) : wrong;
}

// Whether the spans are rows of the head, apart from each other and in order.
bool AreSpansSound(const SessionHead& head) {
  int64_t from = 0;
  for (const SessionHead::Span& span : head.spans) {
    const int64_t n_tokens = std::ssize(head.tokens);
    if (span.first < from || span.first > n_tokens || span.n_rows < 1 ||
        span.n_rows > n_tokens - span.first || span.grid_rows < 0 || span.grid_columns < 0) {
      return false;
    }
    const bool has_grid = span.grid_rows > 0;
    if (!has_grid && !span.mutual) return false;
    if (has_grid &&
        (span.n_rows / span.grid_rows != span.grid_columns || span.n_rows % span.grid_rows != 0)) {
      return false;
    }
    from = span.first + span.n_rows;
    if (!std::all_of(head.tokens.begin() + span.first, head.tokens.begin() + from, IsRow)) {
      return false;
    }
  }
  return true;
}

// The problem with a head's tokens; "" if there is none.
std::string WrongWithTokens(const SessionHead& head) {
  const auto is_foreign = [](TokenId token) { return token < kAnyRow; };
  if (std::ranges::any_of(head.tokens, is_foreign)) return "its rows have ids";
  const int64_t n_rows = head.n_rows();
  if ((n_rows > 0) != (head.row_values > 0)) {
    return StrCat("it has ", n_rows, " rows of ", head.row_values, " values");
  }
  if (head.spans.size() > kMaxSessionSpans) {
    return StrCat("it has ", head.spans.size(), " pictures, more than ", kMaxSessionSpans);
  }
  if (!AreSpansSound(head)) return "its pictures are not where its rows are";
  return "";
}

// --- writing ------------------------------------------------------------------------

Status WriteFileHeader(uint32_t version, const ByteSink& sink) {
  FieldWriter header;
  for (const char c : kMagic) header.Put(c);
  header.Put(version);
  header.Put(uint32_t{0});
  header.Put(uint64_t{XXH3_64bits(header.bytes().data(), header.bytes().size())});
  return sink(header.bytes());
}

Status WriteRows(const SessionHead& head, const StateSource& source, SectionWriter* writer) {
  std::vector<std::byte> raw(static_cast<size_t>(head.row_values) * sizeof(float));
  for (int64_t i = 0; i < head.n_rows(); ++i) {
    WEFT_RETURN_IF_ERROR(source(kRowPart, i, raw));
    WEFT_RETURN_IF_ERROR(writer->Write({SectionKind::kRow, 0, i}, raw));
  }
  return OkStatus();
}

Status WriteState(const SessionHead& head, const StateSource& source, SectionWriter* writer) {
  std::vector<std::byte> raw;
  for (size_t g = 0; g < head.groups.size(); ++g) {
    raw.resize(static_cast<size_t>(head.groups[g].page_bytes));
    for (int64_t page = head.groups[g].first_page; page < head.end_page(); ++page) {
      WEFT_RETURN_IF_ERROR(source(static_cast<int>(g), page, raw));
      WEFT_RETURN_IF_ERROR(writer->Write({SectionKind::kPage, static_cast<int64_t>(g), page}, raw));
    }
  }
  if (head.slot_bytes == 0) return OkStatus();
  raw.resize(static_cast<size_t>(head.slot_bytes));
  WEFT_RETURN_IF_ERROR(source(kSlotPart, 0, raw));
  WEFT_RETURN_IF_ERROR(writer->Write({SectionKind::kSlot}, raw));
  for (int64_t i = 0; i < static_cast<int64_t>(head.checkpoints.size()); ++i) {
    WEFT_RETURN_IF_ERROR(source(kCheckpointPart, i, raw));
    WEFT_RETURN_IF_ERROR(writer->Write({SectionKind::kCheckpoint, 0, i}, raw));
  }
  return OkStatus();
}

// --- reading ------------------------------------------------------------------------

// Returns the version.
StatusOr<uint32_t> ReadFileHeader(const ByteSource& source) {
  std::array<std::byte, kFileHeaderBytes> bytes{};
  const size_t n = std::min<size_t>(bytes.size(), static_cast<size_t>(source.size()));
  WEFT_RETURN_IF_ERROR(source.Read(0, std::span(bytes).first(n)));
  if (std::memcmp(bytes.data(), kMagic.data(), std::min(n, kMagic.size())) != 0) {
    return InvalidArgument("it is not a session file");
  }
  if (n < bytes.size()) return DataLoss("the file ends within its first ", bytes.size(), " bytes");
  FieldReader fields(std::span<const std::byte>(bytes).subspan(kMagic.size()));
  const uint32_t version = fields.Get<uint32_t>();
  const uint32_t reserved = fields.Get<uint32_t>();
  if (fields.Get<uint64_t>() != XXH3_64bits(bytes.data(), bytes.size() - sizeof(uint64_t))) {
    return DataLoss("its header fails its checksum");
  }
  if (version < kFirstVersion || version > kInvocationVersion || reserved != 0) {
    return Unimplemented("it has format version ", version, "; this program reads versions ",
                         kFirstVersion, " to ", kInvocationVersion,
                         "; use the program that wrote it, or a newer one");
  }
  return version;
}

Status ReadHead(uint32_t version, SectionReader* sections, SessionHead* head) {
  WEFT_ASSIGN_OR_RETURN(const auto meta, sections->Read({SectionKind::kMeta}, 0, kMaxMetaBytes));
  const std::optional<int64_t> n_tokens = GetHead(meta, version, head);
  if (!n_tokens.has_value()) return DataLoss("its description is malformed");
  if (const std::string wrong = WrongWith(*head, *n_tokens); !wrong.empty()) {
    return DataLoss("its description contradicts itself: ", wrong);
  }
  const size_t n = static_cast<size_t>(*n_tokens);
  const size_t token_bytes = n * sizeof(TokenId);
  WEFT_ASSIGN_OR_RETURN(const auto tokens,
                        sections->Read({SectionKind::kTokens}, token_bytes, token_bytes));
  head->tokens.resize(n);
  if (n > 0) std::memcpy(head->tokens.data(), tokens.data(), token_bytes);
  if (const std::string wrong = WrongWithTokens(*head); !wrong.empty()) {
    return DataLoss("its tokens contradict its description: ", wrong);
  }
  return sections->Read({SectionKind::kReserved}, 0, kMaxReservedBytes).status();
}

}  // namespace

// --- the interface ------------------------------------------------------------------

std::string Fingerprint::ToHex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint64_t half : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) hex.push_back(kDigits[(half >> shift) & 15]);
  }
  return hex;
}

Fingerprint FingerprintOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Fingerprint FingerprintOf(std::string_view text) { return FingerprintOf(BytesOf(text)); }

Status WriteSession(const SessionHead& head, const StateSource& source, const ByteSink& sink) {
  std::string wrong = WrongWith(head, static_cast<int64_t>(head.tokens.size()));
  if (wrong.empty()) wrong = WrongWithTokens(head);
  if (!wrong.empty()) {
    return InvalidArgument("cannot save session ", Printable(head.name), ": ", wrong);
  }
  WEFT_RETURN_IF_ERROR(WriteFileHeader(VersionFor(head), sink));
  SectionWriter writer(sink);
  FieldWriter meta;
  PutHead(head, &meta);
  WEFT_RETURN_IF_ERROR(writer.Write({SectionKind::kMeta}, meta.bytes()));
  WEFT_RETURN_IF_ERROR(writer.Write({SectionKind::kTokens}, std::as_bytes(std::span(head.tokens))));
  WEFT_RETURN_IF_ERROR(writer.Write({SectionKind::kReserved}, {}));
  WEFT_RETURN_IF_ERROR(WriteRows(head, source, &writer));
  WEFT_RETURN_IF_ERROR(WriteState(head, source, &writer));
  return writer.Write({SectionKind::kEnd}, {});
}

StatusOr<std::unique_ptr<SessionReader>> SessionReader::Open(std::unique_ptr<ByteSource> source) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t version, ReadFileHeader(*source));
  SectionReader sections(*source, kFileHeaderBytes);
  SessionHead head;
  WEFT_RETURN_IF_ERROR(ReadHead(version, &sections, &head));
  const uint64_t offset = sections.offset();
  return std::unique_ptr<SessionReader>(
      new SessionReader(std::move(source), std::move(head), offset));
}

Status SessionReader::CheckModel(const Fingerprint& model) const {
  if (head_.model == model) return OkStatus();
  return FailedPrecondition("session ", Printable(head_.name), " belongs to model ",
                            head_.model.ToHex(), ", the loaded one is ", model.ToHex(),
                            "; load the model that it was saved with");
}

Status SessionReader::CheckLayout(const Fingerprint& layout, std::string_view kv_type) const {
  if (head_.layout == layout && head_.kv_type == kv_type) return OkStatus();
  return FailedPrecondition("the state of session ", Printable(head_.name), " has layout ",
                            head_.layout.ToHex(), " with KV type ", Printable(head_.kv_type),
                            ", this engine uses ", layout.ToHex(), " with KV type ", kv_type);
}

Status SessionReader::Damaged(const Status& why) const {
  if (why.code() != StatusCode::kDataLoss) return why;
  return DataLoss("the saved state of session ", Printable(head_.name), " is damaged (",
                  Message(why), "); its ", head_.tokens.size(),
                  " tokens are intact and the state can be recomputed from them");
}

Status SessionReader::ReadRows(const StateSink& sink) {
  SectionReader sections(*source_, offset_);
  const uint64_t n_bytes = static_cast<uint64_t>(head_.row_values) * sizeof(float);
  for (int64_t i = 0; i < head_.n_rows(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const auto contents,
                          sections.Read({SectionKind::kRow, 0, i}, n_bytes, n_bytes));
    WEFT_RETURN_IF_ERROR(sink(kRowPart, i, contents));
  }
  offset_ = sections.offset();
  return OkStatus();
}

Status SessionReader::ReadState(const StateSink& sink) const {
  SectionReader sections(*source_, offset_);
  const auto read = [&](const SectionId& id, int64_t n_bytes, int part) -> Status {
    const uint64_t bytes = static_cast<uint64_t>(n_bytes);
    const auto contents = sections.Read(id, bytes, bytes);
    return contents.ok() ? sink(part, id.page, *contents) : Damaged(contents.status());
  };
  for (size_t g = 0; g < head_.groups.size(); ++g) {
    const SessionHead::Group& group = head_.groups[g];
    for (int64_t page = group.first_page; page < head_.end_page(); ++page) {
      WEFT_RETURN_IF_ERROR(read({SectionKind::kPage, static_cast<int64_t>(g), page},
                                group.page_bytes, static_cast<int>(g)));
    }
  }
  if (head_.slot_bytes > 0) {
    WEFT_RETURN_IF_ERROR(read({SectionKind::kSlot}, head_.slot_bytes, kSlotPart));
  }
  for (int64_t i = 0; i < static_cast<int64_t>(head_.checkpoints.size()); ++i) {
    WEFT_RETURN_IF_ERROR(read({SectionKind::kCheckpoint, 0, i}, head_.slot_bytes, kCheckpointPart));
  }
  const auto end = sections.Read({SectionKind::kEnd}, 0, 0);
  if (!end.ok()) return Damaged(end.status());
  if (sections.offset() != source_->size()) {
    return Damaged(DataLoss("the file continues after its end mark"));
  }
  return OkStatus();
}

}  // namespace weft
