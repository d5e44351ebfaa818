#include "parallel/channel/message_layout.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"
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

constexpr size_t kNumbersOfTensor = 3 + 2 * kMostDimensions;

TensorLayout OneLayout(const at::Tensor& tensor) {
  TensorLayout layout{tensor.scalar_type(), tensor.sizes().vec(), {}, false};
  layout.takes_gradient = tensor.requires_grad();
  layout.strides = tensor.is_non_overlapping_and_dense()
                       ? tensor.strides().vec()
                       : tensor.contiguous().strides().vec();
  return layout;
}

}  // namespace

StepForm MakeStepForm(const ChannelStep& step) {
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
      "mesh.replicas(), and its rank mesh.ReplicaIndex(rank) "
      "(core/mesh/mesh.h), with the same seed and epoch on both"));
}

bool TensorLayout::Fits(const at::Tensor& tensor) const {
  return tensor.scalar_type() == dtype && tensor.sizes() == sizes &&
         (takes_gradient || !tensor.requires_grad());
}

absl::StatusOr<MessageLayout> MakeMessageLayout(
    const std::vector<at::Tensor>& message) {
  if (message.size() > kMostTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(message.size(), " tensors cross a cut between ranks, but ",
                     kMostTensors,
                     " at most can: cut where fewer skip "
                     "connections are on their way"));
  }
  MessageLayout layout;
  for (const at::Tensor& each : message) {
    if (!each.defined() || each.dim() > static_cast<int64_t>(kMostDimensions)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "what crosses a cut between ranks must be a tensor of at most ",
          kMostDimensions, " dimensions, not ",
          each.defined() ? DescribeTensor(each) : "an undefined one"));
    }
    layout.push_back(OneLayout(each));
  }
  return layout;
}

std::string ToString(const MessageLayout& layout) {
  return absl::StrJoin(layout, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, c10::toString(each.dtype), " [",
                    absl::StrJoin(each.sizes, ", "), "]",
                    each.takes_gradient ? " with gradient" : "");
  });
}

int64_t EncodedSize() { return 1 + kMostTensors * kNumbersOfTensor; }

at::Tensor Encode(const MessageLayout& layout) {
  CHECK_LE(layout.size(), kMostTensors);
  at::Tensor numbers = at::zeros({EncodedSize()}, at::kLong);
  auto* next = numbers.mutable_data_ptr<int64_t>();
  *next++ = static_cast<int64_t>(layout.size());
  for (const TensorLayout& each : layout) {
    CHECK_LE(each.sizes.size(), kMostDimensions);
    *next++ = static_cast<int64_t>(each.dtype);
    *next++ = each.takes_gradient ? 1 : 0;
    *next++ = static_cast<int64_t>(each.sizes.size());
    for (int64_t size : each.sizes) *next++ = size;
    for (int64_t stride : each.strides) *next++ = stride;
  }
  return numbers;
}

MessageLayout Decode(const at::Tensor& numbers) {
  CHECK_EQ(numbers.numel(), EncodedSize());
  const auto* next = numbers.const_data_ptr<int64_t>();
  const int64_t count = *next++;
  CHECK(count >= 0 && count <= static_cast<int64_t>(kMostTensors)) << count;
  MessageLayout layout(static_cast<size_t>(count));
  for (TensorLayout& each : layout) {
    each.dtype = static_cast<at::ScalarType>(*next++);
    each.takes_gradient = *next++ != 0;
    const int64_t dimensions = *next++;
    CHECK(dimensions >= 0 &&
          dimensions <= static_cast<int64_t>(kMostDimensions))
        << dimensions;
    each.sizes.assign(next, next + dimensions);
    next += dimensions;
    each.strides.assign(next, next + dimensions);
    next += dimensions;
  }
  return layout;
}

at::Tensor NewTensor(const TensorLayout& layout, c10::Device device) {
  return at::empty_strided(layout.sizes, layout.strides,
                           at::device(device).dtype(layout.dtype));
}

at::Tensor FlatView(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

}  // namespace tandem
