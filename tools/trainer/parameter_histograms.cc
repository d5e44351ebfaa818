#include "tools/trainer/parameter_histograms.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/text_fields.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"
#include "core/tensorboard/histogram.h"
#include "parallel/strategy/strategy.h"

namespace tandem {
namespace {

using HistogramsByTag = std::map<std::string, Histogram>;

void NoteLeftOut(const absl::Status& why) {
  LOG_FIRST_N(WARNING, 1) << "a histogram of --histograms_every is left out: "
                          << why.message();
}

void AddHistograms(const std::string& section, const NamedTensors& tensors,
                   const std::set<std::string>& names,
                   HistogramsByTag* histograms) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0 || names.count(name) == 0) continue;
    const absl::StatusOr<Histogram> added = ValueHistogram(tensor);
    if (added.ok()) {
      (*histograms)[absl::StrCat(section, "/", name)] = *added;
    } else {
      NoteLeftOut(added.status());
    }
  }
}

// What this rank tells of the model.
absl::StatusOr<HistogramsByTag> OwnHistograms(const Job& job) {
  std::set<std::string> names;
  for (const auto& each : job.strategy->Parameters()) names.insert(each.first);
  // Devices are waited for.
  TANDEM_ASSIGN_OR_RETURN(const StatePart weights, job.strategy->PartToSave());
  TANDEM_ASSIGN_OR_RETURN(const StatePart gradients,
                          job.strategy->GradientPart());
  HistogramsByTag own;
  AddHistograms("weights", weights.tensors, names, &own);
  AddHistograms("gradients", gradients.tensors, names, &own);
  return own;
}

void AppendDouble(double number, std::string* text) {
  int64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  AppendNumber(bits, text);
}

double TakeDouble(absl::string_view* text) {
  const int64_t bits = TakeInt64(text).value_or(0);
  double number = 0;
  std::memcpy(&number, &bits, sizeof(bits));
  return number;
}

std::string Encode(const HistogramsByTag& histograms) {
  std::string text;
  for (const auto& [tag, each] : histograms) {
    AppendField(tag, &text);
    AppendNumber(each.count, &text);
    AppendNumber(each.nonfinite, &text);
    for (const double moment :
         {each.min, each.max, each.sum, each.sum_of_squares}) {
      AppendDouble(moment, &text);
    }
    AppendNumber(static_cast<int64_t>(each.counts.size()), &text);
    for (const int64_t count : each.counts) AppendNumber(count, &text);
    for (const double limit : each.limits) AppendDouble(limit, &text);
  }
  return text;
}

// Another rank's, which comes from Encode.
void Merge(absl::string_view text, HistogramsByTag* histograms) {
  while (const auto tag = TakeField(&text)) {
    Histogram theirs;
    theirs.count = TakeInt64(&text).value_or(0);
    theirs.nonfinite = TakeInt64(&text).value_or(0);
    for (double* const moment :
         {&theirs.min, &theirs.max, &theirs.sum, &theirs.sum_of_squares}) {
      *moment = TakeDouble(&text);
    }
    for (int64_t left = TakeInt64(&text).value_or(0); left > 0; --left) {
      theirs.counts.push_back(TakeInt64(&text).value_or(0));
    }
    for (size_t i = 0; i < theirs.counts.size(); ++i) {
      theirs.limits.push_back(TakeDouble(&text));
    }
    Histogram& mine = (*histograms)[std::string(*tag)];
    mine = Merged(mine, theirs);
  }
}

}  // namespace

absl::StatusOr<Summary> ParameterHistograms(Job& job) {
  TANDEM_ASSIGN_OR_RETURN(HistogramsByTag all, OwnHistograms(job));
  if (job.world->size() > 1) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<std::string> texts,
        job.world->AllGatherString(Encode(all), [] {
          return std::string("histograms of parameters (--histograms_every)");
        }));
    for (size_t rank = 1; rank < texts.size(); ++rank) {
      Merge(texts[rank], &all);
    }
  }
  Summary summary;
  if (!job.is_rank_zero()) return summary;
  for (const auto& [tag, histogram] : all) {
    const absl::Status added = summary.AddHistogram(tag, histogram);
    if (!added.ok()) NoteLeftOut(added);
  }
  return summary;
}

}  // namespace tandem
