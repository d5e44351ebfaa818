// Rounding up to a multiple.

#ifndef TANDEM_CORE_BASE_ROUND_UP_H_
#define TANDEM_CORE_BASE_ROUND_UP_H_

namespace tandem {

// The least multiple of `unit` that is not less than `value`. Requires `value`
// >= 0 and `unit` > 0.
template <typename Integer>
constexpr Integer RoundUp(Integer value, Integer unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_ROUND_UP_H_
