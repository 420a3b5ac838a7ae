// An ObjectStore in a bucket of S3, or of a server that speaks its protocol.
//
// The object NAME is at ENDPOINT/BUCKET/PREFIX/NAME. Each request is signed (AWS signature version
// 4, with the hash of its body). Conditions are S3's conditional writes, which a server must really
// keep: see store_probe.h. Proxies and certificates are found as for downloads.
//
// Any number of threads, with a connection each; connections stay open for the next call.
#ifndef WEFT_DOORS_STORES_S3_STORE_H_
#define WEFT_DOORS_STORES_S3_STORE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "doors/stores/s3_options.h"
#include "weft/shared_store.h"

namespace weft::stores {

class S3Store : public ObjectStore {
 public:
  explicit S3Store(S3Options options);
  ~S3Store() override;
  S3Store(const S3Store&) = delete;
  S3Store& operator=(const S3Store&) = delete;

  // A name has parts with slashes between them; no part is empty, "." or "..". Any byte but control
  // characters is allowed in it, and arrives as it is.
  //
  // Beside what ObjectStore says: PERMISSION_DENIED if the store refuses the key, INVALID_ARGUMENT
  // if there is no such bucket or it lies elsewhere, RESOURCE_EXHAUSTED if an object is larger than
  // `max_object_bytes`, INTERNAL if an answer is not S3's.
  absl::StatusOr<Object> Get(const std::string& name) override;
  absl::StatusOr<std::string> Put(const std::string& name, std::string_view body,
                                  const Condition& condition) override;
  absl::Status Remove(const std::string& name) override;

  // "s3://bucket/prefix at http://127.0.0.1:9000", for people.
  std::string Place() const;

 private:
  struct Request;
  struct Answer;
  struct Transfer;
  class Connections;

  StatusOr<Answer> Send(const Request& request);
  void SetUp(const Request& request, Transfer* transfer) const;
  Status TransportError(int code, const Transfer& transfer) const;
  Status RefusalOf(const Answer& answer) const;
  Status CheckName(const std::string& name) const;
  std::string UrlOf(const std::string& name) const;

  const S3Options options_;
  const std::string host_;  // for messages
  const std::unique_ptr<Connections> connections_;
};

}  // namespace weft::stores

#endif  // WEFT_DOORS_STORES_S3_STORE_H_
