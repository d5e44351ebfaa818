// Gradient halves: a parameter's gradients where backward comes in two parts,
// which microbatch's is whole, in which order.

#ifndef TANDEM_PARALLEL_REPRODUCIBLE_GRADIENT_HALVES_H_
#define TANDEM_PARALLEL_REPRODUCIBLE_GRADIENT_HALVES_H_

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>

namespace tandem {

// A microbatch's gradient comes at once, or in two parts, of which the first
// may be missing. Whole ones are given in the order of their first parts: one
// that comes at once waits for those before it. Not thread-safe.
class GradientHalves {
 public:
  struct Whole {
    int microbatch = 0;
    at::Tensor gradient;
  };

  // `part` is added up where it lies, and is not used after the Next() that
  // gives nothing: what is kept longer is copied. Undefined: there is no first
  // part. `awaits`: another one will come. Requires that second parts come in
  // the order of the first ones.
  void Add(int microbatch, const at::Tensor& part, bool awaits);

  // The next microbatch's, once.
  std::optional<Whole> Next();

  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    Whole sum;
    bool is_whole = false;
  };

  std::deque<Entry> entries_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPRODUCIBLE_GRADIENT_HALVES_H_
