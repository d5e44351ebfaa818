// Options of DistributedDataParallel that change how gradients travel, and what
// it tells of itself.

#include <ATen/ops/empty.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/ddp/logging.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/models/formula_values.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::options_test {
namespace {

using testing::ElementsAre;

class DdpOptions : public DdpTest {};

// `used` of 4 x 4 or more, then `unused`.
struct HalfUsed : torch::nn::Module {
  HalfUsed()
      : used(register_module(
            "used",
            torch::nn::Linear(torch::nn::LinearOptions(4, 6).bias(false)))),
        unused(register_module(
            "unused",
            torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)))) {}
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  torch::nn::Linear used, unused;
};

TEST_P(DdpOptions, SkipAllReduceUnusedParamsReducesFewerBuckets) {
  for (bool skip : {false, true}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.find_unused_parameters = true;
      options.bucket_cap_mb = 1e-6;
      options.skip_all_reduce_unused_params = skip;
      TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<HalfUsed>(world, options));
      std::set<std::string> reduced;
      TANDEM_RETURN_IF_ERROR(twins.ddp->register_comm_hook(
          [&](const GradBucket& bucket,
              Communicator& group) -> absl::StatusOr<FinishReduction> {
            reduced.insert(bucket.names.begin(), bucket.names.end());
            return FinishReduction([bucket, &group]() -> absl::Status {
              bucket.buffer.div_(group.size());
              return group.AllReduceSum(bucket.buffer);
            });
          }));
      for (int step = 0; step < 4; ++step) {
        if (step == 1) reduced.clear();
        TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
        TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
      }
      EXPECT_EQ(reduced.count("unused.weight"), skip ? 0u : 1u);
      EXPECT_EQ(reduced.count("used.weight"), 1u);
      return absl::OkStatus();
    });
  }
}

// 4 KiB each.
struct FourLayers : torch::nn::Module {
  FourLayers() {
    for (int i = 0; i < 4; ++i) {
      layers.push_back(register_module(
          absl::StrCat("fc", i),
          torch::nn::Linear(torch::nn::LinearOptions(32, 32).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = layer(x).tanh();
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

at::Tensor WideInput(int step, const Communicator& world) {
  at::Tensor input = at::empty({3, 32});
  FillByFormula(absl::StrCat("input.", step, ".", world.rank()), input);
  return input.to(TestDevice());
}

TEST_P(DdpOptions, BucketCapMbListSetsTheSizesOfBuckets) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.bucket_cap_mb_list = {4. / 1024, 8. / 1024};
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<FourLayers>(world, options));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, WideInput(step, world)));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    EXPECT_THAT(twins.ddp->logging_data().bucket_sizes,
                ElementsAre(4096, 8192, 4096));
    return absl::OkStatus();
  });
}

TEST_P(DdpOptions, BucketCapMbServesEveryBucketUnsetTheFirstIsSmall) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.bucket_cap_mb = 8. / 1024;
    TANDEM_ASSIGN_OR_RETURN(
        auto ddp,
        MakeDistributedDataParallel(NewModule<FourLayers>(), world, options));
    EXPECT_THAT(ddp->logging_data().bucket_sizes, ElementsAre(8192, 8192));
    TANDEM_ASSIGN_OR_RETURN(auto whole, MakeDistributedDataParallel(
                                            NewModule<FourLayers>(), world));
    EXPECT_THAT(whole->logging_data().bucket_sizes, ElementsAre(16384));
    return absl::OkStatus();
  });
}

// The same bits with and without.
TEST_P(DdpOptions, DelayedParametersAreAveragedToo) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.delay_all_reduce_named_params = {"fc3.weight", "fc2.weight"};
    options.param_to_hook_all_reduce = "fc1.weight";
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<FourLayers>(world, options));
    TANDEM_ASSIGN_OR_RETURN(
        auto optimizer, MakeOptimizer(SgdOptions{}, twins.ddp->flat_buffers()));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, WideInput(step, world)));
      TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
    }
    return absl::OkStatus();
  });
}

TEST_P(DdpOptions, LoggingDataDescribesTheJobAndItsTimes) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.bucket_cap_mb = 1e-6;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<FourLayers>(world, options));
    for (int step = 0; step < 5; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, WideInput(step, world)));
    }
    const DdpLoggingData data = twins.ddp->logging_data();
    EXPECT_EQ(data.rank, world.rank());
    EXPECT_EQ(data.world_size, 2);
    EXPECT_EQ(data.num_parameter_tensors, 4);
    EXPECT_EQ(data.total_parameter_size_bytes, 4 * 4096);
    EXPECT_EQ(data.num_buckets, 4);
    EXPECT_TRUE(data.has_rebuilt_buckets);
    EXPECT_EQ(data.iteration, 5);
    EXPECT_GT(data.avg_forward_compute_time, 0);
    EXPECT_GT(data.avg_backward_compute_time, 0);
    EXPECT_GT(data.avg_backward_comm_time, 0);
    EXPECT_LE(data.avg_backward_compute_comm_overlap_time,
              data.avg_backward_compute_time);
    EXPECT_LE(data.avg_backward_compute_comm_overlap_time,
              data.avg_backward_comm_time);
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpOptions);

}  // namespace
}  // namespace tandem::options_test
