#include "tools/trainer/evaluation/text_sampler.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/row_parts.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/comm/group_agreement.h"
#include "core/model/layer_list.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "models/hugging_face/model_config.h"
#include "parallel/strategy/strategy.h"
#include "tools/generation/model_tokens.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/save_folder.h"

namespace tandem {
namespace {

// Copies a job's weights into the tensors of the same names: averages of
// parameters, where they come too, in place of the parameters.
class WeightCopy : public TensorSink {
 public:
  explicit WeightCopy(const LayerList& layers)
      : parameters_(NamedParameters(layers)), buffers_(NamedBuffers(layers)) {}

  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name < b.name;
  }

  absl::Status Begin(std::vector<TensorInfo> infos) override {
    infos_ = std::move(infos);
    std::map<std::string, at::Tensor> targets(buffers_.begin(), buffers_.end());
    for (const auto& [name, parameter] : parameters_) {
      targets[name] = parameter;
      targets[CheckpointNameOfState(absl::StrCat(name, ".", kAverageState))] =
          parameter;
    }
    for (const TensorInfo& info : infos_) {
      const auto average = targets.find(
          CheckpointNameOfState(absl::StrCat(info.name, ".", kAverageState)));
      const bool is_replaced =
          average != targets.end() && Comes(average->first);
      const auto found = targets.find(info.name);
      targets_.push_back(found == targets.end() || is_replaced ? at::Tensor()
                                                               : found->second);
    }
    return absl::OkStatus();
  }

  absl::Status Add(const at::Tensor& values) override {
    const at::Tensor& target = targets_[added_++];
    if (!target.defined()) return absl::OkStatus();
    return CatchTorch(
        [&] {
          const at::NoGradGuard no_grad;
          target.copy_(values);
        },
        absl::StrCat("a copy of ", infos_[added_ - 1].name));
  }

 private:
  bool Comes(const std::string& name) const {
    for (const TensorInfo& info : infos_) {
      if (info.name == name) return true;
    }
    return false;
  }

  const NamedTensors parameters_;
  const NamedTensors buffers_;
  std::vector<TensorInfo> infos_;
  std::vector<at::Tensor> targets_;  // by what comes; undefined: not copied
  size_t added_ = 0;
};

GenerationOptions RequestedGeneration(const TrainOptions& options) {
  GenerationOptions generation;
  generation.max_new_tokens = options.max_new_tokens;
  generation.sampling.temperature = options.temperature;
  generation.sampling.seed = options.seed;
  return generation;
}

absl::Status UnknownToken(const TrainOptions& options, int64_t token,
                          int64_t vocabulary) {
  return absl::InvalidArgumentError(
      absl::StrCat("--prompt=", options.prompt, " has token ", token,
                   ", but the model knows ", vocabulary,
                   " alone: the tokenizer is not that of its texts"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextSampler>> TextSampler::Create(Job& job) {
  auto sampler =
      absl::WrapUnique(new TextSampler(job, RequestedGeneration(job.options)));
  const absl::Status mine =
      job.is_rank_zero() ? sampler->Prepare() : absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(mine, "prepared --sample_every", *job.world));
  return sampler;
}

absl::Status TextSampler::Prepare() {
  TrainOptions options = job_.options;
  if (!job_.transformer.has_value() || !job_.data.train->tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sample_every=", options.sample_every,
                     " continues a text, but --model=", options.model,
                     " is no GPT or Llama: leave it out"));
  }
  const std::string source = JobTokenizer(options);
  if (source.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sample_every=", options.sample_every,
        " needs a tokenizer, and none lies beside the token files (--data_dir) "
        "or in --init_from: bazel run //tools:tokenize puts one there"));
  }
  TANDEM_ASSIGN_OR_RETURN(tokenizer_, OpenTokenizer(source));
  const TransformerOptions& model = job_.transformer->model;
  const int64_t vocabulary = VocabularySize(model);
  TANDEM_RETURN_IF_ERROR(
      CheckTokenizerFits(*tokenizer_, vocabulary, job_.data.train->classes()));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompt,
                          tokenizer_->Encode(options.prompt));
  prompt_.assign(tokenizer_->prefix().begin(), tokenizer_->prefix().end());
  prompt_.insert(prompt_.end(), prompt.begin(), prompt.end());
  for (const int64_t token : prompt_) {
    if (token >= vocabulary) return UnknownToken(options, token, vocabulary);
  }
  TANDEM_ASSIGN_OR_RETURN(options_.ends,
                          AllEndTokens(job_.transformer->config,
                                       job_.transformer->generation_config,
                                       tokenizer_.get(), vocabulary));
  context_ = ContextLength(model);
  // Logits of the last token are wanted, of the whole vocabulary.
  options.loss_chunk = 0;
  options.vocab_parallel = 1;
  TANDEM_ASSIGN_OR_RETURN(
      const LayerSpecs specs,
      JobLayers(options, job_.transformer, *job_.data.train));
  TANDEM_ASSIGN_OR_RETURN(layers_, MakeModelLayers(specs, options.seed));
  SetTraining(layers_, false);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextSampler::Continue() const {
  TANDEM_ASSIGN_OR_RETURN(Generator generator,
                          Generator::Read(layers_, prompt_, context_));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens,
                          generator.Generate(options_));
  const std::vector<uint32_t> text(tokens.begin(), tokens.end());
  return absl::StrCat(job_.options.prompt, tokenizer_->Decode(text));
}

absl::StatusOr<std::string> TextSampler::Sample() {
  TANDEM_RETURN_IF_ERROR(job_.strategy->Synchronise());
  StateParts parts;
  parts.optimizer = job_.options.ema_decay > 0;  // averages are part of it
  WeightCopy copy(layers_);
  JoinedRows whole(job_.row_parts, copy);
  TANDEM_RETURN_IF_ERROR(job_.strategy->StreamState(parts, whole));
  absl::StatusOr<std::string> text =
      job_.is_rank_zero() ? Continue() : std::string();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(text.status(), "continued --prompt", *job_.world));
  return text;
}

}  // namespace tandem
