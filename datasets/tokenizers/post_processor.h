// The "post_processor" of a tokenizer.json: what stands around a text.

#ifndef TANDEM_DATASETS_TOKENIZERS_POST_PROCESSOR_H_
#define TANDEM_DATASETS_TOKENIZERS_POST_PROCESSOR_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct PrefixAndSuffix {
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
};

// None, ByteLevel (nothing), TemplateProcessing's "single", and a Sequence of
// them. InvalidArgument for any other.
absl::StatusOr<PrefixAndSuffix> ReadPostProcessor(const nlohmann::json& json);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_POST_PROCESSOR_H_
