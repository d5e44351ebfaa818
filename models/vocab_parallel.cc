#include "models/vocab_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/meta/shapes.h"
#include "core/model/axis/shard.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer.h"
#include "core/precision/autocast.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"
#include "models/functions/embedding_function.h"
#include "models/layers/token_embedding.h"

namespace tandem {
namespace {

// Rows [first, first + rows) of a weight.
struct VocabRange {
  int64_t first = 0;
  int64_t rows = 0;
};

struct VocabParallelHeadOptions {
  std::string name;
  VocabRange range;
  std::string targets;  // the further input that it reads
  std::string before;  // the skip of the part before it; empty: it is the first
  std::string after;   // the skip that it leaves
  std::string tied_to;  // the parameter that its weight is; empty: its own
  int64_t chunk = 1;    // tokens whose logits are computed at a time
};

constexpr char kWeightName[] = "weight";
constexpr char kTakes[] = "a vocabulary in parts divides a layer's weight";

// "weight_0", of the embedding's part 0.
std::string VocabPartOfEmbedding(size_t part) {
  return absl::StrCat(kWeightName, "_", part);
}

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

// Rows that are divided over stages, and over ranks again, nobody joins.
void CheckIsWhole(const std::string& layer) {
  TORCH_CHECK_VALUE(TensorParallelScope::Current() == nullptr, "layer ", layer,
                    ": its vocabulary is divided over the stages of a "
                    "pipeline, and over ranks by tensor parallelism: leave one "
                    "of the two out");
}

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

// All of `rows` in so many ranges, which differ by 1 at most.
std::vector<VocabRange> VocabRanges(int64_t rows, int64_t parts) {
  std::vector<VocabRange> ranges;
  for (int64_t i = 0; i < parts; ++i) {
    const ShardRange range = RangeOfRank(rows, parts, i);
    ranges.push_back({range.begin, range.size});
  }
  return ranges;
}

// The token embedding of `whole`, with a parameter for each range. Its type,
// links and initial values are those of `whole`.
LayerSpec VocabParallelEmbedding(const LayerSpec& whole,
                                 const std::vector<VocabRange>& ranges) {
  LayerSpec spec = whole;
  spec.make = [name = whole.name, make = whole.make, ranges](uint64_t seed) {
    CheckIsWhole(name);
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

// Gives its input on, [n, tokens, width], and leaves [n, tokens, 5], the
// numbers of VocabPartFunction, of all parts up to it. Its initial values are
// those rows of the weight of `whole`, which is linear and has no bias: making
// it throws c10::ValueError where it has one.
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
      CheckIsWhole(options.name);
      return HeadLayer(VocabRows(OnlyWeight(make(seed), kTakes), options.range),
                       options);
    };
    return spec;
  }
  spec.links.ties = {{kWeightName, options.tied_to}};
  spec.make_tied = [options, make = whole.make_tied](
                       uint64_t seed, const NamedTensors& shared) {
    CheckIsWhole(options.name);
    return HeadLayer(
        shared.empty()
            ? VocabRows(OnlyWeight(make(seed, {}), kTakes), options.range)
            : shared.front().second,
        options);
  };
  return spec;
}

constexpr char kWeight[] = "weight";

std::string PartOfHead(const std::string& head, size_t part) {
  return absl::StrCat(head, ".", part);
}

std::string PartNumbersName(const std::string& head, size_t part) {
  return absl::StrCat(PartOfHead(head, part), ".numbers");
}

// Rows of the last layer's weight: of its own, where it is tied to others.
absl::StatusOr<int64_t> HeadRows(const LayerSpec& head, int64_t parts) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorShape> shapes,
                          ModelShapes({head}));
  const int64_t rows =
      shapes.empty() || shapes[0].sizes.empty() ? 0 : shapes[0].sizes[0];
  if (parts >= 2 && parts <= rows) return rows;
  return absl::InvalidArgumentError(
      absl::StrCat("layer ", head.name, " has ", rows, " rows to divide into ",
                   parts, " parts: expected 2 to ", rows));
}

// The embedding whose weight the head's is; null: it has one of its own.
absl::StatusOr<LayerSpec*> Owner(LayerSpecs& specs) {
  const LayerSpec& head = specs.back();
  const auto tie = head.links.ties.find(kWeight);
  if (tie == head.links.ties.end()) return nullptr;
  for (LayerSpec& each : specs) {
    if (absl::StrCat(each.name, ".", kWeight) != tie->second) continue;
    if (each.type == "Embedding" && each.make && !each.links.has_skips()) {
      return &each;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "layer ", head.name, " is tied to ", tie->second,
      ": a vocabulary in parts divides a token embedding alone with it"));
}

// Notes that parameters of these names, in this order, make up one.
void AddParts(const std::string& weight, const std::vector<std::string>& names,
              const std::vector<VocabRange>& ranges, RowParts& parts) {
  const int64_t all = ranges.back().first + ranges.back().rows;
  for (size_t i = 0; i < ranges.size(); ++i) {
    parts[names[i]] = {weight, ranges[i].first, ranges[i].rows, all};
  }
}

// Gives the names of its parameters.
std::vector<std::string> DivideEmbedding(const std::vector<VocabRange>& ranges,
                                         LayerSpec& embedding,
                                         RowParts& parts) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ranges.size(); ++i) {
    names.push_back(absl::StrCat(embedding.name, ".", VocabPartOfEmbedding(i)));
  }
  AddParts(absl::StrCat(embedding.name, ".", kWeight), names, ranges, parts);
  embedding = VocabParallelEmbedding(embedding, ranges);
  return names;
}

// `tied_to`: of each part; empty: of none.
void DivideHead(const std::vector<VocabRange>& ranges,
                const std::vector<std::string>& tied_to, int64_t chunk,
                VocabParallelModel& model) {
  const LayerSpec head = model.specs.back();
  model.specs.pop_back();
  std::vector<std::string> names;
  for (size_t i = 0; i < ranges.size(); ++i) {
    VocabParallelHeadOptions part;
    part.name = PartOfHead(head.name, i);
    part.range = ranges[i];
    part.targets = kVocabTargets;
    if (i > 0) part.before = PartNumbersName(head.name, i - 1);
    part.after = PartNumbersName(head.name, i);
    if (!tied_to.empty()) part.tied_to = tied_to[i];
    part.chunk = chunk;
    names.push_back(absl::StrCat(part.name, ".", kWeight));
    model.specs.push_back(VocabParallelHead(head, part));
  }
  AddParts(absl::StrCat(head.name, ".", kWeight), names, ranges, model.parts);
}

}  // namespace

absl::StatusOr<VocabParallelModel> DivideVocabulary(
    const LayerSpecs& specs, const VocabParallelOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckEndsInLinear(specs, "a vocabulary in parts"));
  TANDEM_ASSIGN_OR_RETURN(const int64_t rows,
                          HeadRows(specs.back(), options.parts));
  const std::vector<VocabRange> ranges = VocabRanges(rows, options.parts);
  VocabParallelModel model = {specs, {}};
  TANDEM_ASSIGN_OR_RETURN(LayerSpec* const embedding, Owner(model.specs));
  std::vector<std::string> tied_to;
  if (embedding != nullptr) {
    tied_to = DivideEmbedding(ranges, *embedding, model.parts);
  }
  DivideHead(ranges, tied_to, options.chunk, model);
  return model;
}

LossFunction VocabParallelCrossEntropy(const std::string& head, int64_t parts,
                                       std::optional<int64_t> ignore_index) {
  const std::string numbers =
      PartNumbersName(head, static_cast<size_t>(parts - 1));
  LossNames names;
  names.outputs = {numbers};
  return CrossEntropyOfRows(
      std::move(names),
      [=](const LossArguments& arguments, const at::Tensor& labels) {
        return CrossEntropyOfVocabParts(
            arguments.further_outputs.at(numbers).reshape(
                {-1, kVocabPartNumbers}),
            labels, ignore_index);
      },
      ignore_index);
}

}  // namespace tandem
