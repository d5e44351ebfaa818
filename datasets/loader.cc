#include "datasets/loader.h"

#include <ATen/Context.h>
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/steady_await.h"
#include "core/base/tensor_tree.h"
#include "core/base/torch_status.h"
#include "core/random/random.h"

namespace tandem {
namespace {

constexpr int64_t kMaxWorkers = 1024;

absl::Status CheckOptions(const LoaderOptions& options) {
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the batch size is ", options.batch_size, "; it must be at least 1"));
  }
  if (options.workers < 0 || options.workers > kMaxWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers is ", options.workers, "; it must be from 0 to ",
                     kMaxWorkers));
  }
  if (options.prefetch_factor < 1) {
    return absl::InvalidArgumentError(absl::StrCat("prefetch_factor is ",
                                                   options.prefetch_factor,
                                                   "; it must be at least 1"));
  }
  return absl::OkStatus();
}

bool ReadsNothing(const BatchParts& parts) {
  return !parts.inputs && !parts.targets;
}

std::string FirstSample(absl::Span<const int64_t> indices) {
  return indices.empty() ? "without samples here"
                         : absl::StrCat("first sample ", indices[0]);
}

// See Batch; never "not known".
uint64_t IndicesIdentity(absl::Span<const int64_t> indices) {
  const absl::string_view bytes(reinterpret_cast<const char*>(indices.data()),
                                indices.size() * sizeof(int64_t));
  return SipHash(0, 0, bytes) | 1;
}

absl::Status CheckSampler(const DistributedSampler& sampler, int64_t length,
                          int64_t batch_size) {
  if (sampler.length() != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sampler is for ", sampler.length(),
                     " samples, but the data set ", "has ", length));
  }
  const DistributedSamplerOptions& sampling = sampler.options();
  if (sampling.slices_of > 0 &&
      sampling.slices_of != batch_size * sampling.num_replicas) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sampler slices global batches of ", sampling.slices_of,
        " samples, but ", sampling.num_replicas, " replicas load ", batch_size,
        " each"));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Pinned(const at::Tensor& tensor,
                                  const std::string& /*path*/) {
  return tensor.defined() ? tensor.pin_memory() : tensor;
}

absl::StatusOr<Batch> GetOrCatch(const Dataset& dataset, int64_t epoch,
                                 absl::Span<const int64_t> indices,
                                 const BatchParts& parts, bool pin) {
  if (ReadsNothing(parts) || indices.empty()) {
    return Batch{{}, {}, static_cast<int64_t>(indices.size())};
  }
  return CatchTorchOr([&]() -> absl::StatusOr<Batch> {
    TANDEM_ASSIGN_OR_RETURN(Batch batch,
                            dataset.GetInEpoch(epoch, indices, parts));
    if (pin && parts.targets) {
      batch.targets = batch.targets.pin_memory();
      for (auto& [name, tree] : batch.further_targets) {
        TANDEM_ASSIGN_OR_RETURN(tree, MapTensors(tree, name, Pinned));
      }
    }
    if (pin && parts.inputs) {
      batch.inputs = batch.inputs.pin_memory();
      for (auto& [name, tree] : batch.further_inputs) {
        TANDEM_ASSIGN_OR_RETURN(tree, MapTensors(tree, name, Pinned));
      }
    }
    return batch;
  });
}

}  // namespace

Prefetcher::Prefetcher(int64_t threads, int64_t ahead) : ahead_(ahead) {
  CHECK_GE(threads, 1);
  CHECK_GE(ahead, 1);
  for (int64_t i = 0; i < threads; ++i)
    threads_.emplace_back([this] { Work(); });
}

Prefetcher::~Prefetcher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::Start(Read read, int64_t count) {
  absl::MutexLock lock(&mutex_);
  ++round_;
  read_ = std::move(read);
  count_ = count;
  next_to_read_ = 0;
  next_to_take_ = 0;
  ready_.clear();
}

std::optional<absl::StatusOr<Batch>> Prefetcher::Take(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  CHECK_LT(next_to_take_, count_);
  const absl::Condition is_ready(this, &Prefetcher::IsNextReady);
  if (!AwaitSteadily(mutex_, is_ready, timeout)) return std::nullopt;
  auto taken = ready_.extract(ready_.begin());
  ++next_to_take_;
  return std::move(taken.mapped());
}

void Prefetcher::Work() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &Prefetcher::HasWork));
    if (stopping_) return;
    const int64_t round = round_;
    const int64_t number = next_to_read_++;
    const Read read = read_;
    mutex_.Unlock();
    absl::StatusOr<Batch> batch = read(number);
    mutex_.Lock();
    // A round that began meanwhile has no use for it.
    if (round == round_) ready_.emplace(number, std::move(batch));
  }
}

bool Prefetcher::HasWork() const {
  return stopping_ ||
         (next_to_read_ < count_ && next_to_read_ < next_to_take_ + ahead_);
}

bool Prefetcher::IsNextReady() const { return ready_.count(next_to_take_) > 0; }

absl::StatusOr<int64_t> BatchSizePerReplica(int64_t global_batch_size,
                                            int64_t data_degree) {
  if (global_batch_size < 1 || data_degree < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a global batch of ", global_batch_size,
                     " samples over a data degree of ", data_degree,
                     ": both must be at least 1"));
  }
  const int64_t rest = global_batch_size % data_degree;
  if (rest == 0) return global_batch_size / data_degree;
  const int64_t below = global_batch_size - rest;
  const int64_t above = below + data_degree;
  return absl::InvalidArgumentError(absl::StrCat(
      "a global batch of ", global_batch_size,
      " samples cannot be shared equally by ", data_degree, " replicas: take ",
      below > 0 ? absl::StrCat(below, " or ") : "", above));
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create(
    std::shared_ptr<const Dataset> dataset,
    std::shared_ptr<DistributedSampler> sampler, const LoaderOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  TANDEM_RETURN_IF_ERROR(
      CheckSampler(*sampler, dataset->size(), options.batch_size));
  return std::unique_ptr<Loader>(
      new Loader(std::move(dataset), std::move(sampler), options));
}

Loader::Loader(std::shared_ptr<const Dataset> dataset,
               std::shared_ptr<DistributedSampler> sampler,
               const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      sampler_(std::move(sampler)),
      options_(options) {
  if (options.workers == 0 || ReadsNothing(options.parts)) return;
  prefetcher_ = std::make_unique<Prefetcher>(
      options.workers, options.workers * options.prefetch_factor);
}

void Loader::StartEpoch() {
  Plan plan = {sampler_->state(), sampler_->Indices()};
  plan.batches = CountBatches(plan.indices);
  plan_ = std::make_shared<const Plan>(std::move(plan));
  delivered_ = 0;
  failure_ = absl::OkStatus();
  if (prefetcher_ == nullptr) return;
  prefetcher_->Start(
      [this, plan = plan_](int64_t number) { return Read(*plan, number); },
      num_batches());
}

void Loader::StartEpoch(int64_t epoch) {
  sampler_->set_epoch(epoch);
  StartEpoch();
}

absl::StatusOr<std::optional<Batch>> Loader::Next() {
  if (plan_ == nullptr) {
    return absl::FailedPreconditionError(
        "the loader has no epoch yet: call StartEpoch before Next");
  }
  TANDEM_RETURN_IF_ERROR(failure_);
  if (delivered_ == num_batches()) return std::nullopt;
  TANDEM_ASSIGN_OR_RETURN(Batch batch, Take());
  ++delivered_;
  return batch;
}

// Where the sampler slices, those of all replicas: the last one may leave some
// of them without samples.
int64_t Loader::CountBatches(const std::vector<int64_t>& indices) const {
  const DistributedSamplerOptions& sampling = sampler_->options();
  const bool slices = sampling.slices_of > 0 && !sampling.even;
  const int64_t samples =
      slices ? sampler_->length() - sampler_->state().position : indices.size();
  const int64_t size = slices ? sampling.slices_of : options_.batch_size;
  return options_.drop_last ? samples / size : (samples + size - 1) / size;
}

int64_t Loader::num_batches() const {
  return plan_ == nullptr ? 0 : plan_->batches;
}

SamplerState Loader::state() const {
  if (plan_ == nullptr) return sampler_->state();
  if (delivered_ == num_batches()) {
    return {plan_->start.epoch, sampler_->length()};
  }
  return sampler_->After(plan_->start, delivered_ * options_.batch_size);
}

absl::Span<const int64_t> Loader::BatchIndices(const Plan& plan,
                                               int64_t number) const {
  return absl::MakeConstSpan(plan.indices)
      .subspan(number * options_.batch_size, options_.batch_size);
}

absl::StatusOr<Batch> Loader::Read(const Plan& plan, int64_t number) const {
  const absl::Span<const int64_t> indices = BatchIndices(plan, number);
  const bool pin = options_.pin_memory && at::getAccelerator().has_value();
  absl::StatusOr<Batch> batch =
      GetOrCatch(*dataset_, plan.start.epoch, indices, options_.parts, pin);
  if (batch.ok()) {
    batch->identity = IndicesIdentity(indices);
    return batch;
  }
  return absl::Status(
      batch.status().code(),
      absl::StrCat("cannot read batch ", number, " of epoch ", plan.start.epoch,
                   ", ", FirstSample(indices), ": ", batch.status().message()));
}

absl::StatusOr<Batch> Loader::Take() {
  std::optional<absl::StatusOr<Batch>> batch =
      prefetcher_ == nullptr ? Read(*plan_, delivered_)
                             : prefetcher_->Take(options_.timeout);
  if (!batch.has_value()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "batch ", delivered_, " of epoch ", plan_->start.epoch, ", ",
        FirstSample(BatchIndices(*plan_, delivered_)), ", was not read within ",
        absl::FormatDuration(options_.timeout),
        ": is the data set's storage slow or stuck?"));
  }
  failure_ = batch->status();
  return *std::move(batch);
}

}  // namespace tandem
