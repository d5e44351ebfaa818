#include "parallel/data_parallel/data_parallel.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Tensor.h>
#include <ATen/core/Generator.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/torch_status.h"
#include "core/context/compute_context.h"
#include "core/loss/loss_terms.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {
namespace {

// Seed of what the other replicas draw. It takes nothing from the generator:
// what comes after is drawn as without them.
uint64_t SeedOfDraws(c10::Device device) {
  if (device.is_cpu()) device = c10::kCPU;
  at::Generator generator = DefaultGeneratorScope::On(device);
  if (!generator.defined()) {
    generator = at::globalContext().defaultGenerator(device);
  }
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return SipHash(/*key0=*/0, /*key1=*/0,
                 {static_cast<const char*>(state.const_data_ptr()),
                  static_cast<size_t>(state.nbytes())});
}

// What layers may ask for on the calling thread.
struct CallerContext {
  std::optional<Samples> samples = SampleScope::Current();
  std::optional<Microbatch> microbatch = MicrobatchScope::Current();
  std::vector<c10::Stream> streams;
  uint64_t seed;
};

// The same on a replica's thread.
class CallerContextScope {
 public:
  CallerContextScope(const CallerContext& context, size_t replica,
                     int64_t first)
      : streams_(context.streams),
        draws_(SipHash(context.seed, replica, "draws of a replica")) {
    if (context.samples.has_value()) {
      Samples mine = *context.samples;
      mine.first += first;
      samples_.emplace(mine);
    }
    if (context.microbatch.has_value()) {
      Microbatch mine = *context.microbatch;
      mine.records = nullptr;  // one thread's
      microbatch_.emplace(mine);
    }
  }

 private:
  const c10::MultiStreamGuard streams_;
  const DefaultGeneratorScope draws_;
  std::optional<SampleScope> samples_;
  std::optional<MicrobatchScope> microbatch_;
};

// Means over a replica's samples become parts of the mean over all; sums are
// sums.
absl::Status AddWeighed(const std::vector<LossTerms>& terms,
                        const std::vector<int64_t>& rows, c10::Device device) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  return CatchTorch([&] {
    for (size_t r = 0; r < terms.size(); ++r) {
      const double weight =
          all == 0 ? 1. / static_cast<double>(terms.size())
                   : static_cast<double>(rows[r]) / static_cast<double>(all);
      for (const LossTerm& each : terms[r].terms()) {
        const at::Tensor here = each.loss.to(device);
        if (each.is_sum) {
          AddSum(each.name, here);
        } else {
          AddAuxiliaryLoss(each.name, here.mul(weight));
        }
      }
    }
  });
}

std::vector<c10::Device> AllDevices() {
  std::vector<c10::Device> devices;
  const std::optional<c10::DeviceType> type = at::accelerator::getAccelerator();
  const int count = type.has_value() ? at::accelerator::deviceCount() : 0;
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(*type, static_cast<c10::DeviceIndex>(i));
  }
  if (devices.empty()) devices.emplace_back(c10::kCPU);
  return devices;
}

absl::Status CheckNumber(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "device ", device.str(), " of DataParallel has no number: ", "give ",
      device.str(), ":0, say"));
}

}  // namespace

ReplicaThreads::ReplicaThreads(std::vector<c10::Device> devices)
    : devices_(std::move(devices)), threads_(devices_.size()) {}

DeviceThread& ReplicaThreads::ReplicaThread(size_t replica) {
  std::unique_ptr<DeviceThread>& thread = threads_[replica];
  if (thread == nullptr)
    thread = std::make_unique<DeviceThread>(devices_[replica]);
  return *thread;
}

absl::Status ReplicaThreads::Run(
    const ReplicaRows& rows,
    absl::FunctionRef<absl::Status(size_t replica)> work) {
  const size_t count = rows.first.size();
  CallerContext caller;
  caller.streams = CurrentStreams(devices_);
  caller.seed = SeedOfDraws(devices_[0]);
  std::vector<LossTerms> terms(count);
  std::vector<std::future<absl::Status>> running;
  for (size_t r = 1; r < count; ++r) {
    running.push_back(ReplicaThread(r).Submit([&, r] {
      const CallerContextScope scope(caller, r, rows.first[r]);
      const LossTerms::Scope collecting(&terms[r]);
      return work(r);
    }));
  }
  absl::Status done = RunOnDevice(devices_[0], [&] {
    const LossTerms::Scope collecting(&terms[0]);
    return work(0);
  });
  const auto name = [&](size_t r) {
    return absl::StrCat("replica ", r, " of ", count, ", on ",
                        devices_[r].str());
  };
  done = Annotate(done, name(0));
  for (size_t r = 1; r < count; ++r) {
    done.Update(Annotate(running[r - 1].get(), name(r)));
  }
  if (!done.ok()) return done;
  return AddWeighed(terms, rows.count, devices_[0]);
}

absl::StatusOr<std::vector<c10::Device>> DataParallelDevices(
    const DataParallelOptions& options) {
  const std::vector<c10::Device> devices =
      options.device_ids.empty() ? AllDevices() : options.device_ids;
  for (const c10::Device& each : devices) {
    const absl::Status numbered = CheckNumber(each);
    if (!numbered.ok()) return numbered;
  }
  return devices;
}

}  // namespace tandem
