#include "parallel/tensor_parallel/axis_communicator.h"

#include <c10/util/Exception.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/intern.h"
#include "core/comm/partitioned_collectives.h"
#include "core/comm/pending_collective.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

void ThrowUnlessOk(const absl::Status& status) {
  TORCH_CHECK_WITH(DistError, status.ok(), status.message());
}

CollectivePurpose Purpose(const std::string& what) {
  return [what] { return what; };
}

class AxisCommunicator : public AxisGroup {
 public:
  AxisCommunicator(const std::string& axis, Communicator& group)
      : AxisGroup(axis, group.rank(), group.size()), group_(group) {}

  void AllReduceSum(const at::Tensor& x, const std::string& what) override {
    ThrowUnlessOk(FaultPoint("tensor_parallel"));
    const FlightPurposeScope flight({Intern(what)});
    ThrowUnlessOk(group_.AllReduceSum(x, Purpose(what)));
  }

  void AllGather(const at::Tensor& all, const at::Tensor& mine,
                 const std::string& what) override {
    ThrowUnlessOk(FaultPoint("tensor_parallel"));
    const FlightPurposeScope flight({Intern(what)});
    End(StartAllGather(group_, all, mine, Purpose(what)));
  }

  void ReduceScatterSum(const at::Tensor& mine, const at::Tensor& all,
                        const std::string& what) override {
    ThrowUnlessOk(FaultPoint("tensor_parallel"));
    const FlightPurposeScope flight({Intern(what)});
    End(StartReduceScatterSum(group_, all, mine, /*factor=*/1, Purpose(what)));
  }

 private:
  static void End(absl::StatusOr<PendingCollective> started) {
    ThrowUnlessOk(started.status());
    ThrowUnlessOk(started->Wait());
  }

  Communicator& group_;
};

}  // namespace

std::shared_ptr<AxisGroup> MakeAxisGroup(const std::string& axis,
                                         Communicator& group) {
  return std::make_shared<AxisCommunicator>(axis, group);
}

}  // namespace tandem
