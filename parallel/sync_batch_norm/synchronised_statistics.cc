#include "parallel/sync_batch_norm/synchronised_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/instrument/fault_point.h"
#include "core/model/collective_node.h"
#include "core/model/shared_statistics.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

void ThrowUnlessOk(const absl::Status& status) {
  TORCH_CHECK_WITH(DistError, status.ok(), status.message());
}

// What is computed in: float for what is shorter.
at::ScalarType TypeFor(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor As(const at::Tensor& tensor, const at::Tensor& x) {
  if (!tensor.defined()) return tensor;
  return tensor.detach().to(x.device(), TypeFor(x));
}

// (mean, variance, count) of this rank's samples.
at::Tensor StatisticsRow(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  at::Tensor row =
      at::zeros({2 * channels + 1}, x.options().dtype(at::kDouble));
  if (x.numel() == 0) return row;
  const auto [mean, variance] =
      at::batch_norm_update_stats(As(x, x), {}, {}, /*momentum=*/0);
  row.narrow(0, 0, channels).copy_(mean);
  row.narrow(0, channels, channels).copy_(variance);
  row.narrow(0, 2 * channels, 1).fill_(x.numel() / channels);
  return row;
}

// Statistics of [ranks, 2 * channels + 1], from the first rank to the last.
SharedStatistics Combined(const at::Tensor& rows) {
  const int64_t channels = rows.size(1) / 2;
  GatheredStatistics sum;
  for (const at::Tensor& row : rows.unbind()) {
    const double count = row.const_data_ptr<double>()[2 * channels];
    Add({static_cast<int64_t>(count), row.narrow(0, 0, channels),
         row.narrow(0, channels, channels) * count},
        &sum);
  }
  SharedStatistics whole = {sum.count, sum.mean, at::Tensor()};
  if (sum.count > 0)
    whole.variance = sum.squares / static_cast<double>(sum.count);
  return whole;
}

// Sums over this rank's samples, then over all. [2, channels] doubles.
void SumOverRanks(at::Tensor sums, Communicator& group) {
  ThrowUnlessOk(FaultPoint("sync_batch_norm:backward"));
  ThrowUnlessOk(group.AllReduceSum(std::move(sums), [] {
    return "batch statistics' gradients (SyncBatchNorm)";
  }));
}

struct Normalisation {
  Communicator* group = nullptr;
  int64_t count = 0;
  double eps = 0;
  at::Tensor mean, variance;  // as the values that are normalised
};

at::Tensor Normalised(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, const Normalisation& by) {
  const at::NoGradGuard no_grad;
  if (x.numel() == 0) return at::empty_like(x);
  const at::Tensor y = std::get<0>(at::native_batch_norm(
      As(x, x), As(weight, x), As(bias, x), by.mean, by.variance,
      /*training=*/false, /*momentum=*/0, by.eps));
  return y.to(x.scalar_type());
}

// weight / deviation * (dy - mean of dy - x_hat * mean of dy * x_hat), the
// means over all ranks.
at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& weight, const at::Tensor& sums,
                         const Normalisation& by) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  const at::Tensor means =
      (sums / static_cast<double>(by.count)).to(TypeFor(x));
  const at::Tensor inverse = (by.variance + by.eps).rsqrt();
  at::Tensor scale = inverse;
  if (weight.defined()) scale = scale * As(weight, x);
  const at::Tensor slope = -scale * inverse * means[1];
  at::Tensor dx = As(x, x) - by.mean.view(shape);
  dx.mul_(slope.view(shape));
  dx.addcmul_(As(dy, x), scale.view(shape));
  dx.sub_((scale * means[0]).view(shape));
  return dx.to(x.scalar_type());
}

// Gradients of x, the weight and the bias. When its forward is computed again,
// statistics are those of the first time.
class NormaliseBackward : public torch::autograd::Node, public CollectiveNode {
 public:
  NormaliseBackward(const at::Tensor& x, const at::Tensor& weight,
                    Normalisation by)
      : CollectiveNode(Forward::kIsLocal),
        x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        by_(std::move(by)) {}

  std::string name() const override { return "NormaliseBackward"; }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "SyncBatchNorm's gradient has no derivative of its own: do not "
                "ask for one (create_graph)");
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::Tensor x = x_.unpack(getptr());
    const at::Tensor weight = weight_.unpack(getptr());
    // The others wait, whether or not there is a gradient here.
    const at::Tensor dy =
        gradients[0].defined() ? gradients[0] : at::zeros_like(x);
    const at::Tensor sums =
        at::zeros({2, x.size(1)}, x.options().dtype(at::kDouble));
    at::Tensor dx, of_weight, of_bias;
    if (x.numel() == 0) dx = at::zeros_like(x);
    if (weight.defined()) {
      of_weight = at::zeros_like(weight);
      of_bias = at::zeros_like(weight);
    }
    if (x.numel() > 0) {
      const auto [ignored, x_hats, ones] = at::native_batch_norm_backward(
          As(dy, x), As(x, x), As(weight, x), by_.mean, by_.variance, {}, {},
          /*train=*/false, by_.eps, {false, true, true});
      sums[0].copy_(ones);
      sums[1].copy_(x_hats);
      if (weight.defined()) {
        of_weight.copy_(x_hats);
        of_bias.copy_(ones);
      }
    }
    SumOverRanks(sums, *by_.group);
    if (x.numel() > 0 && task_should_compute_output(0)) {
      dx = InputGradient(dy, x, weight, sums, by_);
    }
    return {dx, of_weight, of_bias};
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
  }

 private:
  SavedVariable x_;
  SavedVariable weight_;
  const Normalisation by_;
};

}  // namespace

SharedStatistics SynchronisedStatistics::Share(
    const at::Tensor& x, const SharesStatistics& /*layer*/) {
  if (const auto first = KeptStatistics::Next()) {
    KeptStatistics::Note(*first);
    return *first;
  }
  TORCH_CHECK(x.dim() >= 2 && x.size(1) > 0 && x.is_floating_point(),
              "SyncBatchNorm takes floating-point values [n, channels, ...] "
              "with channels, but got ",
              x.toString(), " ", x.sizes());
  const at::NoGradGuard no_grad;
  ThrowUnlessOk(FaultPoint("sync_batch_norm:forward"));
  const auto rows = group_.AllGather(
      StatisticsRow(x), [] { return "batch statistics (SyncBatchNorm)"; });
  ThrowUnlessOk(rows.status());
  const at::Tensor on_host = at::stack(*rows).cpu();
  // Where a stream ran it, values of a rank that has gone mean nothing.
  ThrowUnlessOk(group_.Synchronize());
  SharedStatistics statistics = Combined(on_host);
  TORCH_CHECK(statistics.count != 1,
              "Expected more than 1 value per channel over the ranks when "
              "training, got input size ",
              x.sizes(), " here");
  KeptStatistics::Note(statistics);
  return statistics;
}

at::Tensor SynchronisedStatistics::Normalise(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps, const SharedStatistics& statistics) {
  const Normalisation by = {&group_, statistics.count, eps,
                            As(statistics.mean, x), As(statistics.variance, x)};
  c10::intrusive_ptr<NormaliseBackward> node;
  if (torch::autograd::compute_requires_grad(x, weight, bias)) {
    node = c10::make_intrusive<NormaliseBackward>(x, weight, by);
    node->set_next_edges(torch::autograd::collect_next_edges(x, weight, bias));
  }
  at::Tensor y = Normalised(x, weight, bias, by);
  if (node != nullptr) torch::autograd::set_history(y, node);
  return y;
}

void SynchronisedStatistics::AddNothing(const at::Tensor& none) {
  const at::NoGradGuard no_grad;
  SumOverRanks(at::zeros({2, none.size(1)}, none.options().dtype(at::kDouble)),
               group_);
}

std::shared_ptr<StatisticsGroup> StatisticsOver(Communicator& group) {
  if (group.size() == 1) return nullptr;
  return std::make_shared<SynchronisedStatistics>(group);
}

}  // namespace tandem
