// The greatest sizes that a config.json may ask for: beyond any model there is,
// and small enough that no product of two of them overflows.

#ifndef TANDEM_MODELS_HUGGING_FACE_CONFIG_LIMITS_H_
#define TANDEM_MODELS_HUGGING_FACE_CONFIG_LIMITS_H_

#include <cstdint>

namespace tandem {

constexpr int64_t kMostLayers = 10000;
constexpr int64_t kMostWidth = int64_t{1} << 24;   // and heads
constexpr int64_t kMostTokens = int64_t{1} << 28;  // context, vocabulary

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_CONFIG_LIMITS_H_
