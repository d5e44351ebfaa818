// What ThreadSanitizer is told to pass over: what others' code does, which is
// right or harmless, and which it cannot see through. It is linked into every
// program itself, where the sanitizer looks first, by --custom_malloc in
// .bazelrc.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return
      // Abseil keeps a thread's identity in memory that it maps itself: the
      // mapping is taken for a write that races with the thread's first
      // wake-up.
      "race:absl::*::synchronization_internal::Waiter::Post\n"
      // Threads that reach a VLOG for the first time set its level to the same.
      "race:google::InitVLOG3__\n"
      // std::regex asks a locale that all threads share, which keeps answers.
      "race:bits/locale_facets.h\n"
      // Whoever has an exception last frees it; its owners are counted in
      // libstdc++, which is not instrumented.
      "race:std::__exception_ptr::exception_ptr::_M_release\n"
      // Autograd records an event on one thread and destroys it on another; the
      // locks between are LibTorch's, which is not instrumented.
      "race:tandem::sim::*::Guard::destroyEvent\n";
}
