#include "parallel/data_parallel/replica_threads.h"

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/core/Generator.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/torch_status.h"
#include "core/loss/loss_terms.h"
#include "core/model/microbatch_scope.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "core/random/sample_scope.h"
#include "parallel/channel/stream_order.h"

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
struct Surroundings {
  std::optional<Samples> samples = SampleScope::Current();
  std::optional<Microbatch> microbatch = MicrobatchScope::Current();
  std::vector<c10::Stream> streams;
  uint64_t seed;
};

// The same on a replica's thread.
class SurroundingsScope {
 public:
  SurroundingsScope(const Surroundings& its, size_t replica, int64_t first)
      : streams_(its.streams),
        draws_(SipHash(its.seed, replica, "draws of a replica")) {
    if (its.samples.has_value()) {
      Samples mine = *its.samples;
      mine.first += first;
      samples_.emplace(mine);
    }
    if (its.microbatch.has_value()) {
      Microbatch mine = *its.microbatch;
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

}  // namespace

ReplicaThreads::ReplicaThreads(std::vector<c10::Device> devices)
    : devices_(std::move(devices)), threads_(devices_.size()) {}

DeviceThread& ReplicaThreads::ReplicaThread(size_t replica) {
  std::unique_ptr<DeviceThread>& its = threads_[replica];
  if (its == nullptr) its = std::make_unique<DeviceThread>(devices_[replica]);
  return *its;
}

absl::Status ReplicaThreads::Run(
    const ReplicaRows& rows,
    absl::FunctionRef<absl::Status(size_t replica)> work) {
  const size_t count = rows.first.size();
  Surroundings around;
  around.streams = CurrentStreams(devices_);
  around.seed = SeedOfDraws(devices_[0]);
  std::vector<LossTerms> terms(count);
  std::vector<std::future<absl::Status>> running;
  for (size_t r = 1; r < count; ++r) {
    running.push_back(ReplicaThread(r).Submit([&, r] {
      const SurroundingsScope scope(around, r, rows.first[r]);
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

}  // namespace tandem
