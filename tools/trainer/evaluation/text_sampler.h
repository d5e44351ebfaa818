// Text samples while a model trains: what it makes of a prompt by now.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_SAMPLER_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "models/decoding/generator.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// Samples are drawn from a copy of the model on rank 0 (model_copy.h). Every
// rank has one, and calls the same methods. Not thread-safe.
class TextSampler {
 public:
  // For a job that is set up. InvalidArgument, on every rank alike, where its
  // model is no decoder of text, no tokenizer lies beside its data, or --prompt
  // has tokens that the model does not know. Collective.
  static absl::StatusOr<std::unique_ptr<TextSampler>> Create(Job& job);

  // The prompt and what the model puts behind it, on rank 0; empty on others.
  // Collective.
  absl::StatusOr<std::string> Sample();

 private:
  TextSampler(Job& job, GenerationOptions options)
      : job_(job), options_(std::move(options)) {}

  absl::Status Prepare();
  absl::StatusOr<std::string> Continue() const;

  Job& job_;
  GenerationOptions options_;
  // On rank 0.
  LayerList layers_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int64_t> prompt_;
  int64_t context_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_SAMPLER_H_
