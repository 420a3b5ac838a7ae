// The thread sanitizer's settings for tests; linked into each test in builds with
// -fsanitize=thread.

// The reference count of an absl::Status is atomic, but Debian's libabsl_status.so is not
// instrumented: the sanitizer does not see that the thread which frees the text and the
// payloads comes after those that read them.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::Unref\nrace:absl::*::status_internal::Payload\n";
}

// Tests fork children whose engines have their own threads; and an allocation that is too large
// must return null, as the system's allocator does.
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0:allocator_may_return_null=1";
}
