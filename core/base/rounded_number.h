// Rounding of a number to a dtype.

#ifndef TANDEM_CORE_BASE_ROUNDED_NUMBER_H_
#define TANDEM_CORE_BASE_ROUNDED_NUMBER_H_

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace tandem {

// What is left of `number` in a floating-point dtype: infinity beyond its
// greatest. Of other dtypes the number itself.
inline double RoundedTo(c10::ScalarType dtype, double number) {
  const auto single = static_cast<float>(number);
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return static_cast<float>(c10::BFloat16(single));
    case c10::ScalarType::Half:
      return static_cast<float>(c10::Half(single));
    case c10::ScalarType::Float:
      return single;
    default:
      return number;
  }
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_ROUNDED_NUMBER_H_
