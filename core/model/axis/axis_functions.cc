#include "core/model/axis/axis_functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/collective_node.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

enum class Operation {
  kCopy,
  kReduce,
  kScatter,
  kGather,
  kAllGather,
  kReduceScatter,
};

Operation Transpose(Operation operation) {
  switch (operation) {
    case Operation::kCopy:
      return Operation::kReduce;
    case Operation::kReduce:
      return Operation::kCopy;
    case Operation::kScatter:
      return Operation::kGather;
    case Operation::kGather:
      return Operation::kScatter;
    case Operation::kAllGather:
      return Operation::kReduceScatter;
    case Operation::kReduceScatter:
      return Operation::kAllGather;
  }
  TORCH_CHECK(false, "no such operation over an axis");
}

struct AxisCall {
  Operation operation = Operation::kCopy;
  AxisGroupPtr group;
  std::string what;
  int64_t dim = 0;
  int64_t size = 0;  // of the whole, along `dim`
};

AxisCall TransposeOf(const AxisCall& call) {
  AxisCall transpose = call;
  transpose.operation = Transpose(call.operation);
  transpose.what = absl::StrCat("gradient of ", call.what);
  return transpose;
}

int64_t PartSize(int64_t size, int64_t degree) {
  return (size + degree - 1) / degree;
}

// x with zeros behind it along `dim`, until it is as long as all parts.
at::Tensor Padded(const at::Tensor& x, int64_t dim, int64_t degree) {
  const int64_t missing = PartSize(x.size(dim), degree) * degree - x.size(dim);
  if (missing == 0) return x;
  // Before and behind each dimension, from the last one to `dim`.
  std::vector<int64_t> pads(static_cast<size_t>(2 * (x.dim() - dim)), 0);
  pads.back() = missing;
  return at::constant_pad_nd(x, pads);
}

// Parts one behind the other, [degree, ...].
at::Tensor AsParts(const at::Tensor& x, int64_t dim, int64_t degree) {
  const at::Tensor padded = Padded(x, dim, degree);
  return padded.unflatten(dim, {degree, padded.size(dim) / degree})
      .movedim(dim, 0);
}

at::Tensor Join(const at::Tensor& parts, int64_t dim, int64_t size) {
  return parts.movedim(0, dim)
      .flatten(dim, dim + 1)
      .narrow(dim, 0, size)
      .contiguous();
}

at::Tensor GatherParts(const at::Tensor& x, const AxisCall& call) {
  const at::Tensor mine = x.contiguous();
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), call.group->degree());
  const at::Tensor all = at::empty(sizes, x.options());
  call.group->AllGather(all, mine, call.what);
  return Join(all, call.dim, call.size);
}

at::Tensor SumParts(const at::Tensor& x, const AxisCall& call) {
  const at::Tensor all =
      AsParts(x, call.dim, call.group->degree()).contiguous();
  const at::Tensor mine = at::empty(all.sizes().slice(1), all.options());
  call.group->ReduceScatterSum(mine, all, call.what);
  return mine;
}

// Whether nobody else has the tensor, a view of it, or keeps its values.
bool IsOnlyHere(const at::Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == 1 &&
         x.is_contiguous() && !(x.is_leaf() && x.requires_grad());
}

// Takes x, which somebody may have written to.
at::Tensor SumOfAll(at::Tensor x, const AxisCall& call) {
  at::Tensor sum = IsOnlyHere(x)
                       ? x.detach()
                       : x.detach().clone(at::MemoryFormat::Contiguous);
  call.group->AllReduceSum(sum, call.what);
  return sum;
}

at::Tensor Compute(const AxisCall& call, at::Tensor x) {
  switch (call.operation) {
    case Operation::kCopy:
      return x.view_as(x);
    case Operation::kReduce:
      return SumOfAll(std::move(x), call);
    case Operation::kScatter:
      return AsParts(x, call.dim, call.group->degree())
          .select(0, call.group->index())
          .contiguous();
    case Operation::kGather:
    case Operation::kAllGather:
      return GatherParts(x, call);
    case Operation::kReduceScatter:
      return SumParts(x, call);
  }
  TORCH_CHECK(false, "no such operation over an axis");
}

at::Tensor Run(const AxisCall& call, at::Tensor x);

class AxisBackward : public torch::autograd::Node, public CollectiveNode {
 public:
  AxisBackward(AxisCall call, const at::Tensor& x) : call_(std::move(call)) {
    if (call_.operation == Operation::kAllGather) {
      part_ = SavedVariable(x, /*is_output=*/false);
    }
  }

  std::string name() const override { return "AxisBackward"; }

  variable_list apply(variable_list&& gradients) override {
    at::Tensor dy = std::move(gradients[0]);
    gradients.clear();
    if (!dy.defined()) return variable_list(1);
    return {Run(TransposeOf(call_), std::move(dy))};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    part_.reset_data();
    whole_.reset();
  }

  bool can_gather() const { return call_.operation == Operation::kAllGather; }

  void Expect() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++expected_;
  }

  at::Tensor GatherAgain() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!whole_.defined()) {
      whole_ = Run(call_, part_.unpack(getptr()));
      to_come_ = expected_;
    }
    --to_come_;
    return to_come_ > 0 ? whole_ : std::exchange(whole_, at::Tensor());
  }

 private:
  const AxisCall call_;
  SavedVariable part_;  // of an all-gather
  int expected_ = 0;    // how many ask for the whole in a backward
  int to_come_ = 0;     // of them
  at::Tensor whole_;    // for those
};

at::Tensor Run(const AxisCall& call, at::Tensor x) {
  if (call.group->degree() == 1) return x;
  c10::intrusive_ptr<AxisBackward> node;
  if (torch::autograd::compute_requires_grad(x)) {
    node = c10::make_intrusive<AxisBackward>(call, x);
    node->set_next_edges(torch::autograd::collect_next_edges(x));
  } else if (call.operation == Operation::kCopy) {
    return x;
  }
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = Compute(call, std::move(x));
  }
  if (node != nullptr) torch::autograd::set_history(y, node);
  return y;
}

AxisCall CallAlong(Operation operation, const at::Tensor& x, int64_t dim,
                   const AxisGroupPtr& group, const std::string& what) {
  TORCH_CHECK(0 <= dim && dim < x.dim(), what, ": dimension ", dim,
              " of a tensor ", x.sizes(), " is to be divided along ",
              group->axis(), ", which it has not");
  return {operation, group, what, dim, x.size(dim)};
}

// The same for who puts parts together.
AxisCall CallOfParts(Operation operation, const at::Tensor& x, int64_t dim,
                     const AxisGroupPtr& group, const std::string& what,
                     int64_t size) {
  AxisCall call = CallAlong(operation, x, dim, group, what);
  const int64_t degree = group->degree();
  call.size = size == 0 ? degree * x.size(dim) : size;
  TORCH_CHECK(PartSize(call.size, degree) == x.size(dim), what, ": ", degree,
              " parts of ", x.size(dim), " along ", group->axis(),
              " do not make up ", call.size);
  return call;
}

}  // namespace

at::Tensor CopyToAxis(const at::Tensor& x, const AxisGroupPtr& group,
                      const std::string& what) {
  return Run({Operation::kCopy, group, what}, x);
}

at::Tensor ReduceFromAxis(at::Tensor x, const AxisGroupPtr& group,
                          const std::string& what) {
  return Run({Operation::kReduce, group, what}, std::move(x));
}

at::Tensor ScatterToAxis(const at::Tensor& x, int64_t dim,
                         const AxisGroupPtr& group, const std::string& what) {
  return Run(CallAlong(Operation::kScatter, x, dim, group, what), x);
}

at::Tensor GatherFromAxis(const at::Tensor& x, int64_t dim,
                          const AxisGroupPtr& group, const std::string& what,
                          int64_t size) {
  return Run(CallOfParts(Operation::kGather, x, dim, group, what, size), x);
}

at::Tensor AllGatherAlong(const at::Tensor& x, int64_t dim,
                          const AxisGroupPtr& group, const std::string& what,
                          int64_t size) {
  return Run(CallOfParts(Operation::kAllGather, x, dim, group, what, size), x);
}

at::Tensor ReduceScatterAlong(const at::Tensor& x, int64_t dim,
                              const AxisGroupPtr& group,
                              const std::string& what) {
  return Run(CallAlong(Operation::kReduceScatter, x, dim, group, what), x);
}

GatheredInput::GatheredInput(const at::Tensor& x) {
  const auto& node = x.grad_fn();
  auto* const gather = dynamic_cast<AxisBackward*>(node.get());
  if (gather == nullptr || !gather->can_gather()) return;
  gather->Expect();
  node_ = node;
}

at::Tensor GatheredInput::Gather() const {
  return static_cast<AxisBackward&>(*node_).GatherAgain();
}

}  // namespace tandem
