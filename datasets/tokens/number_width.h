// Number width: how many bytes each number of a token file without a header
// has, by what lies beside it and by the numbers themselves.

#ifndef TANDEM_DATASETS_TOKENS_NUMBER_WIDTH_H_
#define TANDEM_DATASETS_TOKENS_NUMBER_WIDTH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem {

// As Megatron-LM's index of the file `path` says, which is called .idx instead
// of .bin; 0 where there is none. InvalidArgument for numbers that are neither
// uint16 nor int32.
absl::StatusOr<int> TokenBytesByIndex(const std::string& path);

// Whether numbers of 2 bytes are halves of wider ones: of each pair the second
// is 0, or of no more than the few values that the upper half of a token's
// number has, and the first is not. Of fewer than 64 pairs nobody can tell: no.
bool AreHalves(absl::Span<const uint16_t> numbers);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENS_NUMBER_WIDTH_H_
