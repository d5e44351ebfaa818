// What ThreadSanitizer is told to pass over; without it, this file has no
// effect. Linked into the program itself, where the sanitizer looks first.
//
// Abseil keeps a thread's identity in memory that it maps itself, and
// ThreadSanitizer takes the mapping for a write that races with the thread's
// first wake-up.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::synchronization_internal::Waiter::Post\n";
}
