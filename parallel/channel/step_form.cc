#include "parallel/channel/step_form.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/random/random.h"

namespace tandem {
namespace {

int64_t ShownRows(int64_t microbatches) {
  return std::clamp<int64_t>(microbatches, 0, kShownRows);
}

// "2, 1", and of many "1, 1, 1 and 4 more".
std::string Sizes(const StepForm& form) {
  const int64_t more = form.microbatches - ShownRows(form.microbatches);
  return absl::StrCat(absl::StrJoin(form.first_rows, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace

StepForm StepFormOf(const ChannelStep& step) {
  const absl::string_view rows(reinterpret_cast<const char*>(step.rows.data()),
                               step.rows.size() * sizeof(step.rows[0]));
  StepForm form;
  form.microbatches = static_cast<int64_t>(step.rows.size());
  form.samples =
      std::accumulate(step.rows.begin(), step.rows.end(), int64_t{0});
  form.rows = static_cast<int64_t>(SipHash(0, 0, rows));
  form.identity = static_cast<int64_t>(step.identity);
  form.first_rows.assign(step.rows.begin(),
                         step.rows.begin() + ShownRows(form.microbatches));
  return form;
}

at::Tensor Encode(const StepForm& form) {
  at::Tensor numbers = at::zeros({kStepFormNumbers}, at::kLong);
  auto* next = numbers.mutable_data_ptr<int64_t>();
  *next++ = form.microbatches;
  *next++ = form.samples;
  *next++ = form.rows;
  *next++ = form.identity;
  std::copy(form.first_rows.begin(), form.first_rows.end(), next);
  return numbers;
}

StepForm DecodeStepForm(const at::Tensor& numbers) {
  CHECK_EQ(numbers.numel(), kStepFormNumbers);
  const auto* next = numbers.const_data_ptr<int64_t>();
  StepForm form;
  form.microbatches = *next++;
  form.samples = *next++;
  form.rows = *next++;
  form.identity = *next++;
  form.first_rows.assign(next, next + ShownRows(form.microbatches));
  return form;
}

absl::Status CheckSameStep(const StepForm& form, int rank,
                           const StepForm& other, int other_rank) {
  const std::string ranks =
      absl::StrCat("ranks ", rank, " and ", other_rank, " of one replica ");
  if (form.samples != other.samples) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, "have batches of ", form.samples, " and ",
                     other.samples, " samples: give them the same"));
  }
  if (form.microbatches != other.microbatches || form.rows != other.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, "cut their batch of ", form.samples,
                     " samples into microbatches of ", Sizes(form), " and of ",
                     Sizes(other), ": cut it alike"));
  }
  const bool knows = form.identity != 0 && other.identity != 0;
  if (!knows || form.identity == other.identity) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ranks,
      "have batches of other samples: inputs would be trained on the targets "
      "of others. A sampler goes by replica, not by rank: num_replicas is "
      "mesh.data(), and its rank mesh.IndexAlong(kDataAxis, rank) "
      "(core/mesh/mesh.h), with the same seed and epoch on both"));
}

}  // namespace tandem
