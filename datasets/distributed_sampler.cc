#include "datasets/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckSlices(const DistributedSamplerOptions& options) {
  if (options.slices_of < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slices_of is ", options.slices_of,
                     "; expected the size of a global batch, or 0"));
  }
  if (options.slices_of % options.num_replicas != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a global batch of ", options.slices_of,
                     " samples cannot be cut for ", options.num_replicas,
                     " replicas: their number must divide the batch size"));
  }
  if (options.slices_of > 0 && options.even && !options.drop_last) {
    return absl::InvalidArgumentError(
        "slices_of without drop_last or even = false: padding would depend on "
        "the number of replicas; choose what becomes of the epoch's tail");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DistributedSampler>> DistributedSampler::Create(
    int64_t length, const DistributedSamplerOptions& options) {
  if (length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a data set of length ", length,
                     " cannot be sampled: the length must not be negative"));
  }
  if (options.num_replicas < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_replicas is ", options.num_replicas, "; it must be at least 1"));
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid rank ", options.rank, ": the rank should be in the interval ",
        "[0, ", options.num_replicas - 1, "]"));
  }
  if (options.drop_last && !options.even) {
    return absl::InvalidArgumentError(
        "drop_last leaves samples out and even = false leaves none out: "
        "choose one");
  }
  TANDEM_RETURN_IF_ERROR(CheckSlices(options));
  return std::unique_ptr<DistributedSampler>(
      new DistributedSampler(length, options));
}

int64_t DistributedSampler::num_samples() const {
  const int64_t remaining = length_ - state_.position;
  const int64_t replicas = options_.num_replicas;
  if (slices()) {
    const int64_t batch = options_.slices_of;
    const int64_t tail = options_.drop_last ? 0 : remaining % batch;
    return remaining / batch * (batch / replicas) + RankPart(tail).size;
  }
  const int64_t whole_rounds = remaining / replicas;
  const int64_t in_last_round = remaining % replicas;
  if (options_.drop_last || in_last_round == 0) return whole_rounds;
  const bool takes_part = options_.even || options_.rank < in_last_round;
  return whole_rounds + (takes_part ? 1 : 0);
}

std::vector<int64_t> DistributedSampler::Indices() const {
  std::vector<int64_t> indices(num_samples());
  if (indices.empty()) return indices;
  const std::vector<int64_t> permutation = Permutation();
  if (slices()) return Slices(permutation);
  int64_t entry = state_.position + options_.rank;
  for (int64_t& index : indices) {
    // Past the end, padding: the permutation again, as often as need be.
    index = permutation[entry % length_];
    entry += options_.num_replicas;
  }
  return indices;
}

DistributedSampler::Part DistributedSampler::RankPart(int64_t samples) const {
  const int64_t share = options_.slices_of / options_.num_replicas;
  const int64_t begin = std::min(options_.rank * share, samples);
  return {begin, std::min(share, samples - begin)};
}

std::vector<int64_t> DistributedSampler::Slices(
    const std::vector<int64_t>& permutation) const {
  std::vector<int64_t> indices;
  const auto wanted = static_cast<size_t>(num_samples());
  int64_t begin = state_.position;
  while (indices.size() < wanted) {
    const int64_t batch = std::min(options_.slices_of, length_ - begin);
    const Part part = RankPart(batch);
    const auto first = permutation.begin() + begin + part.begin;
    indices.insert(indices.end(), first, first + part.size);
    begin += batch;
  }
  return indices;
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  if (state.epoch < 0 || state.position < 0 || state.position > length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot go on from epoch ", state.epoch, ", sample ",
                     state.position, " of a data set of length ", length_,
                     ": is this the data set that the state was saved with?"));
  }
  state_ = state;
  return absl::OkStatus();
}

SamplerState DistributedSampler::After(const SamplerState& start,
                                       int64_t samples) const {
  int64_t taken = samples * options_.num_replicas;
  if (slices()) {
    const int64_t batch = options_.slices_of;
    taken = (taken + batch - 1) / batch * batch;
  }
  return {start.epoch, std::min(start.position + taken, length_)};
}

std::vector<int64_t> DistributedSampler::Permutation() const {
  std::vector<int64_t> order(length_);
  if (!options_.shuffle) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const uint64_t seed = options_.seed + static_cast<uint64_t>(state_.epoch);
  const at::Tensor permutation =
      at::randperm(length_, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kLong).device(at::kCPU));
  const int64_t* entries = permutation.const_data_ptr<int64_t>();
  std::copy(entries, entries + length_, order.begin());
  return order;
}

}  // namespace tandem
