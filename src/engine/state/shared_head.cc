#include "engine/state/shared_head.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/state/fields.h"
#include "engine/state/state_directory.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr std::array<char, 8> kHeadMagic = {'\x89', 'W', 'E', 'F', 'T', 'H', 'E', 'D'};
constexpr uint32_t kHeadVersion = 1;
constexpr size_t kMaxOwnerBytes = 2048;

uint64_t ChecksumOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Status NotAHead(std::string_view why) {
  return DataLoss("what the store has of this session is not a complete head: ", why);
}

}  // namespace

std::string BytesOf(const SharedHead& head) {
  FieldWriter out;
  for (const char c : kHeadMagic) out.Put(c);
  out.Put(kHeadVersion);
  out.Put(static_cast<uint32_t>(head.is_deleted ? 1 : 0));
  out.Put(head.epoch);
  for (const Fingerprint& print : {head.commit, head.parent}) {
    out.Put(print.low);
    out.Put(print.high);
  }
  out.Put(head.until_us);
  out.Put(head.state_tokens);
  out.PutText(head.owner);
  std::string bytes(reinterpret_cast<const char*>(out.bytes().data()), out.bytes().size());
  bytes += head.session;
  const uint64_t checksum = ChecksumOf(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return bytes;
}

StatusOr<SharedHead> ReadSharedHead(std::string_view bytes) {
  uint64_t checksum = 0;
  if (bytes.size() < kHeadMagic.size() + sizeof(checksum)) return NotAHead("it is too short");
  if (!std::equal(kHeadMagic.begin(), kHeadMagic.end(), bytes.begin())) {
    return NotAHead("it begins differently");
  }
  const std::string_view checked = bytes.substr(0, bytes.size() - sizeof(checksum));
  std::memcpy(&checksum, bytes.data() + checked.size(), sizeof(checksum));
  if (ChecksumOf(checked) != checksum) return NotAHead("it fails its checksum");
  FieldReader in(std::as_bytes(std::span(checked.substr(kHeadMagic.size()))));
  if (const uint32_t version = in.Get<uint32_t>(); version != kHeadVersion) {
    return Unimplemented("the store has this session in version ", version,
                         " of heads; this program reads version ", kHeadVersion,
                         ": use the program that wrote it, or a newer one");
  }
  SharedHead head;
  head.is_deleted = in.Get<uint32_t>() != 0;
  head.epoch = in.Get<uint64_t>();
  for (Fingerprint* print : {&head.commit, &head.parent}) {
    print->low = in.Get<uint64_t>();
    print->high = in.Get<uint64_t>();
  }
  head.until_us = in.Get<int64_t>();
  head.state_tokens = in.Get<int64_t>();
  head.owner = in.GetText();
  if (!in.ok() || head.owner.size() > kMaxOwnerBytes) return NotAHead("its fields are cut off");
  head.session = std::string(checked.substr(checked.size() - in.n_left()));
  return head;
}

std::string HeadName(std::string_view domain, std::string_view name) {
  return StrCat("sessions/@", SafeFileName(domain), "/", SafeFileName(name));
}

}  // namespace weft
