// Default generator of a thread: what LibTorch's operators draw from that are
// given none (torch::nn::Dropout's, say).
//
// LibTorch has one default generator for all threads of the CPU, so that what
// one thread draws depends on when others do. In a scope it is a generator of
// the scope's own, which depends on its seed alone: layers that run in several
// threads, or a second time, draw the same.

#ifndef TANDEM_CORE_DEFAULT_GENERATOR_H_
#define TANDEM_CORE_DEFAULT_GENERATOR_H_

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace tandem {

// While it lives, operators that the calling thread issues on CPU tensors and
// that are given no generator draw from one with this seed. Whatever is given
// one keeps it. Scopes nest. Costs nothing as long as nobody draws.
//
// Does nothing on another `device`: each has a default generator of its own.
class DefaultGeneratorScope {
 public:
  DefaultGeneratorScope(uint64_t seed, c10::Device device);
  ~DefaultGeneratorScope();
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

  // The calling thread's innermost scope's; undefined outside of all.
  static at::Generator Current();

 private:
  const uint64_t seed_;
  DefaultGeneratorScope* const outer_;
  at::Generator generator_;  // undefined until somebody draws
  std::optional<c10::impl::IncludeDispatchKeyGuard> guard_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_DEFAULT_GENERATOR_H_
