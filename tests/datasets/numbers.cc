#include "tests/datasets/numbers.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace tandem {

namespace {

at::Tensor NumberTensor(absl::Span<const int64_t> numbers) {
  const at::Tensor tensor =
      at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

absl::StatusOr<Batch> Numbers::Get(absl::Span<const int64_t> indices,
                                   const BatchParts& parts) const {
  ++reads_;
  for (int64_t index : indices) {
    if (index == bad_sample) return absl::DataLossError("unreadable");
    if (index == throwing_sample) throw std::runtime_error("boom\nframe #0");
    TORCH_CHECK(index != refusing_sample, "no such sample");
    if (index == late_sample) released.WaitForNotification();
  }
  // Lets workers overtake each other.
  if (indices[0] % 3 == 0) std::this_thread::yield();
  Batch batch;
  batch.size = static_cast<int64_t>(indices.size());
  if (parts.inputs) {
    inputs_read_ += batch.size;
    batch.inputs = NumberTensor(indices);
  }
  if (parts.targets) {
    targets_read_ += batch.size;
    batch.targets = NumberTensor(indices);
  }
  return batch;
}

std::shared_ptr<DistributedSampler> MakeSampler(
    int64_t length, const DistributedSamplerOptions& options) {
  auto sampler = DistributedSampler::Create(length, options);
  CHECK(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

Indices WholeEpoch(int64_t length) {
  const auto sampler = MakeSampler(length);
  sampler->set_epoch(3);
  return sampler->Indices();
}

DistributedSamplerOptions InOrder() {
  DistributedSamplerOptions options;
  options.shuffle = false;
  return options;
}

LoaderOptions BatchOptions(int64_t size, int64_t workers) {
  LoaderOptions options;
  options.batch_size = size;
  options.workers = workers;
  return options;
}

std::unique_ptr<Loader> MakeLoader(std::shared_ptr<const Dataset> dataset,
                                   std::shared_ptr<DistributedSampler> sampler,
                                   const LoaderOptions& options) {
  auto loader = Loader::Create(dataset, sampler, options);
  CHECK(loader.ok()) << loader.status();
  return *std::move(loader);
}

Indices Take(Loader& loader) {
  const absl::StatusOr<std::optional<Batch>> batch = loader.Next();
  EXPECT_TRUE(batch.ok()) << batch.status();
  if (!batch.ok() || !batch->has_value()) return {};
  const int64_t* samples = (*batch)->inputs.const_data_ptr<int64_t>();
  return Indices(samples, samples + (*batch)->size);
}

std::vector<Indices> TakeAll(Loader& loader) {
  std::vector<Indices> batches;
  for (Indices batch = Take(loader); !batch.empty(); batch = Take(loader)) {
    batches.push_back(batch);
  }
  return batches;
}

std::vector<Indices> Epoch(Loader& loader, int64_t epoch) {
  loader.StartEpoch(epoch);
  return TakeAll(loader);
}

Indices Flat(const std::vector<Indices>& batches) {
  Indices all;
  for (const Indices& batch : batches) {
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

Indices Sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices Range(int64_t length) {
  Indices range(length);
  std::iota(range.begin(), range.end(), 0);
  return range;
}

}  // namespace tandem
