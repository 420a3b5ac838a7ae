// What the thread sanitizer needs to know of the tests; linked into each of them in
// builds with -fsanitize=thread.

// The reference count of an absl::Status is atomic, but Debian's libabsl_status.so is not
// instrumented: the sanitizer does not see that the thread which frees the text comes
// after those that read it.
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*::Status::Unref\n"; }

// Tests start children by fork, whose engines have threads of their own; and a hopeless
// allocation is to return null, as the system's allocator does.
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0:allocator_may_return_null=1";
}
