// Default generator of a thread: what LibTorch's operators draw from that are
// given none (torch::nn::Dropout's, say).
//
// LibTorch has one default generator for all threads of the CPU, and one for
// each other device, so that what one thread draws depends on when others do,
// and how often. In a scope they are generators of the scope's own, which
// depend on its seed alone: layers that run in several threads, or a second
// time, draw the same.

#ifndef TANDEM_CORE_RANDOM_DEFAULT_GENERATOR_H_
#define TANDEM_CORE_RANDOM_DEFAULT_GENERATOR_H_

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <vector>

namespace tandem {

// While it lives, operators that the calling thread issues and that are given
// no generator draw from one with this seed, on whatever device they work.
// Whatever is given one keeps it. Scopes nest. Costs nothing as long as nobody
// draws.
//
// Operators that take no generator, and draw inside of a device's kernel, are
// not reached: on CUDA those of cuDNN's RNN, and of fused attention with
// dropout. (Dropout is computed without its fused kernel there.)
class DefaultGeneratorScope {
 public:
  explicit DefaultGeneratorScope(uint64_t seed);
  virtual ~DefaultGeneratorScope();
  DefaultGeneratorScope(const DefaultGeneratorScope&) = delete;
  DefaultGeneratorScope& operator=(const DefaultGeneratorScope&) = delete;

  // The calling thread's innermost scope's for a device, which has a number
  // unless it is the CPU; undefined outside of all, and for devices that have
  // no numbers of their own (meta).
  static at::Generator On(c10::Device device);

  // Is the calling thread within an operator that draws from a scope's? What
  // such a one has kept for backward it may have yet to fill (rrelu's noise).
  static bool IsDrawing();

 protected:
  // The scope's for a device, when somebody first draws there; undefined where
  // there is none.
  virtual at::Generator Make(c10::Device device) const;
  // What operators would draw from without this scope.
  at::Generator Outside(c10::Device device) const;

 private:
  at::Generator Find(c10::Device device);

  const uint64_t seed_;
  DefaultGeneratorScope* const outer_;
  std::vector<at::Generator> generators_;  // of devices where somebody drew
  const c10::impl::IncludeDispatchKeyGuard guard_;
};

// Recorded draws: what operators draw from LibTorch's default generators, to be
// drawn once more (torch.random.fork_rng and set_rng_state, for one thread).
// Holds the states of default generators before somebody first drew from them:
// one for each device where somebody did. Used by one thread at a time.
class DrawRecord {
 public:
  // While it lives, the calling thread's operators draw what they would without
  // it, and `record` notes from where on. Costs nothing as long as nobody
  // draws.
  class Recording : public DefaultGeneratorScope {
   public:
    explicit Recording(DrawRecord* record)
        : DefaultGeneratorScope(0), record_(record) {}

   protected:
    at::Generator Make(c10::Device device) const override;

   private:
    DrawRecord* const record_;
  };

  // While it lives, they draw the same again, and no generator of others moves.
  // On a device where nobody drew the first time they draw as without it.
  //
  // LibTorch's own default generator does not take part in that: what is drawn
  // from it by its name, or inside of a device's kernel
  // (default_generator.h), is something new.
  class Replay : public DefaultGeneratorScope {
   public:
    explicit Replay(const DrawRecord* record)
        : DefaultGeneratorScope(0), record_(record) {}

   protected:
    at::Generator Make(c10::Device device) const override;

   private:
    const DrawRecord* const record_;
  };

 private:
  std::vector<at::Generator> before_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_DEFAULT_GENERATOR_H_
