#include "parallel/tensor_parallel/axis_communicator.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
    ThrowUnlessOk(group_.AllReduceSum(x, Purpose(what)));
  }

  void AllGather(const at::Tensor& all, const at::Tensor& mine,
                 const std::string& what) override {
    ThrowUnlessOk(FaultPoint("tensor_parallel"));
    const absl::StatusOr<std::vector<at::Tensor>> parts =
        group_.AllGather(mine, Purpose(what));
    ThrowUnlessOk(parts.status());
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parts->size(); ++i) {
      all.select(0, static_cast<int64_t>(i)).copy_((*parts)[i]);
    }
  }

  void ReduceScatterSum(const at::Tensor& mine, const at::Tensor& all,
                        const std::string& what) override {
    ThrowUnlessOk(FaultPoint("tensor_parallel"));
    const at::NoGradGuard no_grad;
    const at::Tensor sums = all.clone();
    ThrowUnlessOk(group_.AllReduceSum(sums, Purpose(what)));
    mine.copy_(sums.select(0, index()));
  }

 private:
  Communicator& group_;
};

}  // namespace

std::shared_ptr<AxisGroup> MakeAxisGroup(const std::string& axis,
                                         Communicator& group) {
  return std::make_shared<AxisCommunicator>(axis, group);
}

}  // namespace tandem
