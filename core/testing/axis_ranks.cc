#include "core/testing/axis_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

at::ScalarType SumType(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

// Where the threads leave what the others read.
class ThreadAxisGroup::Meeting {
 public:
  explicit Meeting(int64_t degree)
      : tensors_(static_cast<size_t>(degree)),
        calls_(static_cast<size_t>(degree)) {}

  // Every rank's tensor, by index, on the host, whatever device it is on. They
  // stay as they are until all ranks have called Part.
  std::vector<at::Tensor> Meet(int64_t index, const std::string& call,
                               const at::Tensor& tensor) {
    at::Tensor on_host = tensor.detach().cpu();
    {
      const absl::MutexLock lock(&mutex_);
      tensors_[static_cast<size_t>(index)] = std::move(on_host);
      calls_[static_cast<size_t>(index)] =
          absl::StrCat(call, ", ", DescribeTensor(tensor));
    }
    Barrier(index, call);
    const absl::MutexLock lock(&mutex_);
    for (const std::string& each : calls_) {
      TORCH_CHECK_WITH(
          DistError, each == calls_[0],
          "ranks issue different collectives: ", absl::StrJoin(calls_, " | "));
    }
    return tensors_;
  }

  void Part(int64_t index, const std::string& call) { Barrier(index, call); }

  void Fail(int64_t index) {
    const absl::MutexLock lock(&mutex_);
    failed_ = index;
  }

 private:
  void Barrier(int64_t index, const std::string& call) {
    const absl::MutexLock lock(&mutex_);
    const int64_t round = round_;
    arrived_.push_back(index);
    if (arrived_.size() == tensors_.size()) {
      arrived_.clear();
      ++round_;
      return;
    }
    const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return round_ > round || failed_ >= 0;
    };
    const bool has_ended =
        mutex_.AwaitWithTimeout(absl::Condition(&is_over), kPatience);
    TORCH_CHECK_WITH(DistError, has_ended, call, ": only ranks ",
                     absl::StrJoin(arrived_, ", "), " of ", tensors_.size(),
                     " came within half a minute");
    TORCH_CHECK_WITH(DistError, round_ > round, call, ": rank ", failed_,
                     " has failed");
  }

  absl::Mutex mutex_;
  std::vector<at::Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> arrived_ ABSL_GUARDED_BY(mutex_);
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failed_ ABSL_GUARDED_BY(mutex_) = -1;
};

ThreadAxisGroup::ThreadAxisGroup(std::shared_ptr<Meeting> meeting,
                                 int64_t index, int64_t degree)
    : AxisGroup("tensor", index, degree), meeting_(std::move(meeting)) {}

void ThreadAxisGroup::AllReduceSum(const at::Tensor& x,
                                   const std::string& what) {
  const at::NoGradGuard no_grad;
  calls_.push_back(absl::StrCat("all-reduce ", what));
  at::Tensor sum = at::zeros(x.sizes(), SumType(x));
  for (const at::Tensor& each : meeting_->Meet(index(), calls_.back(), x)) {
    sum += each;
  }
  meeting_->Part(index(), calls_.back());
  x.detach().copy_(sum);
}

void ThreadAxisGroup::AllGather(const at::Tensor& all, const at::Tensor& mine,
                                const std::string& what) {
  const at::NoGradGuard no_grad;
  calls_.push_back(absl::StrCat("all-gather ", what));
  const auto tensors = meeting_->Meet(index(), calls_.back(), mine);
  for (int64_t i = 0; i < degree(); ++i) {
    all[i].copy_(tensors[static_cast<size_t>(i)]);
  }
  meeting_->Part(index(), calls_.back());
}

void ThreadAxisGroup::ReduceScatterSum(const at::Tensor& mine,
                                       const at::Tensor& all,
                                       const std::string& what) {
  const at::NoGradGuard no_grad;
  calls_.push_back(absl::StrCat("reduce-scatter ", what));
  at::Tensor sum = at::zeros(mine.sizes(), SumType(mine));
  for (const at::Tensor& each : meeting_->Meet(index(), calls_.back(), all)) {
    sum += each[index()];
  }
  meeting_->Part(index(), calls_.back());
  mine.detach().copy_(sum);
}

AxisCalls ThreadAxisGroup::TakeCalls() { return std::exchange(calls_, {}); }

absl::Status RunAxisRanks(
    int64_t degree,
    const std::function<absl::Status(std::shared_ptr<ThreadAxisGroup>)>& fn) {
  const auto meeting = std::make_shared<ThreadAxisGroup::Meeting>(degree);
  absl::Mutex mutex;
  absl::Status first;
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < degree; ++index) {
    threads.emplace_back([&, index] {
      at::init_num_threads();  // as a process's only thread has it
      const absl::Status status = CatchTorch([&] {
        return fn(std::make_shared<ThreadAxisGroup>(meeting, index, degree));
      });
      if (status.ok()) return;
      const absl::MutexLock lock(&mutex);
      if (first.ok()) first = Annotate(status, absl::StrCat("rank ", index));
      meeting->Fail(index);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace tandem
