// For tests: the ranks along an axis as threads of one process, with an axis
// group between them that needs no communicator.

#ifndef TANDEM_CORE_TESTING_AXIS_RANKS_H_
#define TANDEM_CORE_TESTING_AXIS_RANKS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/axis/axis_group.h"

namespace tandem {

// One rank's collectives, as "all-reduce WHAT", in the order in which they were
// issued.
using AxisCalls = std::vector<std::string>;

// An axis group of threads, called "tensor". Sums are of floats, or doubles,
// from the first rank to the last, and rounded once. Ranks that issue different
// collectives, of other tensors or for something else, get a c10::DistError
// that says so; so do those that wait for half a minute, or for a rank that has
// failed, and it names who is missing.
class ThreadAxisGroup : public AxisGroup {
 public:
  class Meeting;

  ThreadAxisGroup(std::shared_ptr<Meeting> meeting, int64_t index,
                  int64_t degree);

  void AllReduceSum(const at::Tensor& x, const std::string& what) override;
  void AllGather(const at::Tensor& all, const at::Tensor& mine,
                 const std::string& what) override;
  void ReduceScatterSum(const at::Tensor& mine, const at::Tensor& all,
                        const std::string& what) override;

  // This rank's, since the last Take.
  AxisCalls TakeCalls();

 private:
  const std::shared_ptr<Meeting> meeting_;
  AxisCalls calls_;
};

// Calls `fn` on `degree` threads, each with its rank's group. Returns the first
// failure, as "rank 2: ..."; exceptions are failures too.
//
//   EXPECT_TRUE(RunAxisRanks(3, [](auto group) {
//     const TensorParallelScope scope(...);
//     return absl::OkStatus();
//   }).ok());
absl::Status RunAxisRanks(
    int64_t degree,
    const std::function<absl::Status(std::shared_ptr<ThreadAxisGroup>)>& fn);

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_AXIS_RANKS_H_
