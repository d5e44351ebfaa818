#include "models/vocab_parallel.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/meta/shapes.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"
#include "models/layers/linear_head.h"
#include "models/layers/vocab_parallel_layers.h"

namespace tandem {
namespace {

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
