// Image draws: random numbers of one sample in one epoch, for one purpose.

#ifndef TANDEM_DATASETS_IMAGES_IMAGE_DRAWS_H_
#define TANDEM_DATASETS_IMAGES_IMAGE_DRAWS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/random/random.h"

namespace tandem {

// A sample in an epoch of a job with this seed.
struct SampleInEpoch {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;
};

// What is drawn is a function of the sample and the purpose, and of how much
// was drawn before: no other sample, thread or rank has a part in it. The same
// on every platform.
class ImageDraws {
 public:
  ImageDraws(const SampleInEpoch& of, absl::string_view purpose)
      : of_(of), seed_(SeedFor(of.seed, purpose)) {}

  // In [0, 1), of 53 bits.
  double Uniform() {
    const PhiloxBlock block = Philox(
        {drawn_++, Low(of_.epoch), Low(of_.sample), Low(of_.sample >> 32)},
        {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    const uint64_t bits = (uint64_t{block[0]} << 32 | block[1]) >> 11;
    return static_cast<double>(bits) / static_cast<double>(uint64_t{1} << 53);
  }

  // One of `count` numbers from 0 on.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(count));
  }

 private:
  static uint32_t Low(int64_t number) { return static_cast<uint32_t>(number); }

  const SampleInEpoch of_;
  const uint64_t seed_;
  uint32_t drawn_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_IMAGE_DRAWS_H_
