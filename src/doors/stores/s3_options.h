// Where an S3 store is and how to sign requests to it: values, from flags and the environment.
#ifndef WEFT_DOORS_STORES_S3_OPTIONS_H_
#define WEFT_DOORS_STORES_S3_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::stores {

struct S3Options {
  std::string bucket;
  std::string prefix;    // of all names, without a slash at its ends; may be empty
  std::string endpoint;  // "https://host:port"
  std::string region;
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: none

  std::chrono::milliseconds connect_timeout{2000};
  // A request may take `request_timeout`, and longer for its bytes: what they need at
  // `slow_bytes_per_s`. Without any byte for `stall_timeout` it ends before.
  std::chrono::milliseconds request_timeout{10'000};
  std::chrono::milliseconds stall_timeout{5'000};
  int64_t slow_bytes_per_s = int64_t{1} << 20;
  int64_t max_object_bytes = int64_t{513} << 20;
};

// `address` is "s3://BUCKET/PREFIX"; `endpoint` an http or https URL, or empty for Amazon's in the
// region. The region and the keys come from AWS_REGION or AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. INVALID_ARGUMENT: what to write or to set.
StatusOr<S3Options> ReadS3Options(std::string_view address, std::string_view endpoint);

}  // namespace weft::stores

#endif  // WEFT_DOORS_STORES_S3_OPTIONS_H_
