#include "models/layers/vocab_parallel_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/precision/autocast.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"
#include "models/functions/embedding_function.h"
#include "models/layers/linear_head.h"

namespace tandem {
namespace {

constexpr char kWeightName[] = "weight";
constexpr char kTakes[] = "a vocabulary in parts divides a layer's weight";

at::Tensor VocabRows(const at::Tensor& weight, const VocabRange& range) {
  return weight.detach().narrow(0, range.first, range.rows).clone();
}

class DividedEmbedding : public torch::nn::Module {
 public:
  DividedEmbedding(const at::Tensor& weight, std::vector<VocabRange> ranges)
      : ranges_(std::move(ranges)) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      weights_.push_back(register_parameter(VocabPartOfEmbedding(i),
                                            VocabRows(weight, ranges_[i])));
    }
  }

  // Every token is in one part, and looked up in each.
  at::Tensor forward(const at::Tensor& tokens) const {
    at::Tensor y;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      const at::Tensor local = tokens - ranges_[i].first;
      const at::Tensor found = EmbeddingFunction(Within(local, i), weights_[i]);
      y = i == 0 ? found : at::where(local.ge(0).unsqueeze(-1), found, y);
    }
    return y;
  }

 private:
  // Numbers of no token stay what they are, and are refused.
  at::Tensor Within(const at::Tensor& local, size_t i) const {
    const at::Tensor low = i == 0 ? local : local.clamp_min(0);
    return i + 1 == ranges_.size() ? low : low.clamp_max(ranges_[i].rows - 1);
  }

  const std::vector<VocabRange> ranges_;
  std::vector<at::Tensor> weights_;
};

class HeadPart : public torch::nn::Module {
 public:
  HeadPart(const at::Tensor& weight, VocabParallelHeadOptions options)
      : options_(std::move(options)),
        weight_(register_parameter(kWeightName, weight)) {}

  at::Tensor forward(const at::Tensor& x, Skips& skips) const {
    const at::Tensor& targets = skips.at(options_.targets);
    at::Tensor numbers = TokenNumbers(x, targets.flatten());
    if (!options_.before.empty()) {
      const at::Tensor before = skips.at(options_.before);
      numbers = JoinVocabParts(before.reshape(numbers.sizes()), numbers);
    }
    std::vector<int64_t> sizes = targets.sizes().vec();
    sizes.push_back(kVocabPartNumbers);
    skips[options_.after] = numbers.view(sizes);
    return x.view_as(x);  // with a node in the graph
  }

 private:
  at::Tensor TokenNumbers(const at::Tensor& x,
                          const at::Tensor& targets) const {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    return VocabPartFunction(
        rows.to(AutocastDtype(x.device().type(), x.scalar_type())), weight_,
        targets, options_.range.first, options_.chunk);
  }

  const VocabParallelHeadOptions options_;
  const at::Tensor weight_;
};

Layer HeadLayer(const at::Tensor& weight,
                const VocabParallelHeadOptions& options) {
  const auto module = std::make_shared<HeadPart>(weight, options);
  Layer layer;
  layer.name = options.name;
  layer.module = module;
  layer.forward_with_skips = [module](const at::Tensor& x, Skips& skips) {
    return module->forward(x, skips);
  };
  return layer;
}

}  // namespace

std::vector<VocabRange> VocabRanges(int64_t rows, int64_t parts) {
  std::vector<VocabRange> ranges;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first =
        ranges.empty() ? 0 : ranges.back().first + ranges.back().rows;
    ranges.push_back({first, rows / parts + (i < rows % parts ? 1 : 0)});
  }
  return ranges;
}

std::string VocabPartOfEmbedding(size_t part) {
  return absl::StrCat(kWeightName, "_", part);
}

LayerSpec VocabParallelEmbedding(const LayerSpec& whole,
                                 const std::vector<VocabRange>& ranges) {
  LayerSpec spec = whole;
  spec.make = [name = whole.name, make = whole.make, ranges](uint64_t seed) {
    const auto module = std::make_shared<DividedEmbedding>(
        OnlyWeight(make(seed), kTakes), ranges);
    return Layer{name, module, [module](const at::Tensor& tokens) {
                   return module->forward(tokens);
                 }};
  };
  const auto traits = whole.traits.find(kWeightName);
  spec.traits.clear();
  for (size_t i = 0; traits != whole.traits.end() && i < ranges.size(); ++i) {
    spec.traits[VocabPartOfEmbedding(i)] = traits->second;
  }
  return spec;
}

LayerSpec VocabParallelHead(const LayerSpec& whole,
                            const VocabParallelHeadOptions& options) {
  LayerSpec spec;
  spec.name = options.name;
  spec.type = whole.type;
  spec.traits = whole.traits;
  spec.links.reads = {options.targets};
  if (!options.before.empty()) spec.links.pop = {options.before};
  spec.links.stash = {options.after};
  if (options.tied_to.empty()) {
    spec.make = [options, make = whole.make](uint64_t seed) {
      return HeadLayer(VocabRows(OnlyWeight(make(seed), kTakes), options.range),
                       options);
    };
    return spec;
  }
  spec.links.ties = {{kWeightName, options.tied_to}};
  spec.make_tied = [options, make = whole.make_tied](
                       uint64_t seed, const NamedTensors& shared) {
    return HeadLayer(
        shared.empty()
            ? VocabRows(OnlyWeight(make(seed, {}), kTakes), options.range)
            : shared.front().second,
        options);
  };
  return spec;
}

}  // namespace tandem
