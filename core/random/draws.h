// Recorded draws: what operators draw from LibTorch's default generators, to be
// drawn once more (torch.random.fork_rng and set_rng_state, for one thread).

#ifndef TANDEM_CORE_RANDOM_DRAWS_H_
#define TANDEM_CORE_RANDOM_DRAWS_H_

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <vector>

#include "core/random/default_generator.h"

namespace tandem {

// The states of default generators before somebody first drew from them: one
// for each device where somebody did. Used by one thread at a time.
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

#endif  // TANDEM_CORE_RANDOM_DRAWS_H_
