// What DistributedDataParallel checks when it is made, on models and options.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "parallel/ddp/logging.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/models/formula_values.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::construction_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DdpConstruction : public DdpTest {
 protected:
  // On three ranks: each is refused, in words that hold `words`.
  void ExpectRefused(
      const std::function<std::shared_ptr<TwoLinear>(int rank)>& make,
      const DistributedDataParallelOptions& options,
      const testing::Matcher<std::string>& words) {
    OnRanks(3, [&](Communicator& world) -> absl::Status {
      const absl::Status status =
          MakeDistributedDataParallel(make(world.rank()), world, options)
              .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), words);
      return absl::OkStatus();
    });
  }
  void ExpectOptionRefused(const DistributedDataParallelOptions& options,
                           const testing::Matcher<std::string>& words) {
    ExpectRefused([](int) { return NewModule<TwoLinear>(); }, options, words);
  }
};

TEST_P(DdpConstruction, WithoutATrainedParameterThereIsNothingToDo) {
  const auto frozen = [](int) {
    auto model = NewModule<TwoLinear>();
    for (at::Tensor& parameter : model->parameters()) {
      parameter.requires_grad_(false);
    }
    return model;
  };
  ExpectRefused(frozen, {}, HasSubstr("no parameter that requires a gradient"));
  DistributedDataParallelOptions options;
  options.parameters_to_ignore = {"a.weight", "b.weight"};
  ExpectOptionRefused(options,
                      HasSubstr("no parameter that requires a gradient"));
}

// Another shape, dtype or number of parameters.
TEST_P(DdpConstruction, WhatDiffersIsNamedWithItsRank) {
  struct Difference {
    int on_rank;
    std::function<void(TwoLinear& model)> change;
    const char* name;
  };
  const std::vector<Difference> differences = {
      {2,
       [](TwoLinear& model) {
         model.b->weight.set_data(at::full({4, 5}, 1., TestDevice()));
       },
       "b.weight"},
      {1, [](TwoLinear& model) { model.a->to(at::kDouble); }, "a.weight"},
      {1,
       [](TwoLinear& model) {
         model.register_parameter("more", at::full({2}, 1., TestDevice()));
       },
       "more"}};
  for (const Difference& each : differences) {
    const auto make = [&](int rank) {
      auto model = NewModule<TwoLinear>();
      if (rank == each.on_rank) each.change(*model);
      return model;
    };
    ExpectRefused(make, {},
                  AllOf(HasSubstr(absl::StrCat("rank ", each.on_rank)),
                        HasSubstr(each.name)));
  }
}

TEST_P(DdpConstruction, OptionsThatCannotBeAreNamed) {
  using Change = std::function<void(DistributedDataParallelOptions & options)>;
  std::vector<std::string> many;
  for (int i = 0; i < 23; ++i) many.push_back(absl::StrCat("c", i));
  const std::vector<std::pair<Change, testing::Matcher<std::string>>> refusals =
      {{[](auto& o) { o.gradient_as_bucket_view = false; },
        HasSubstr("gradient_as_bucket_view")},
       {[](auto& o) { o.parameters_to_ignore = {"c.weight"}; },
        AllOf(HasSubstr("parameters_to_ignore"), HasSubstr("c.weight"))},
       {[](auto& o) {
          o.parameters_to_ignore = {"c.weight", "a.weight", "d.weight"};
        },
        HasSubstr("names c.weight, d.weight, but")},
       {[&](auto& o) { o.parameters_to_ignore = many; },
        HasSubstr("c18, c19 and 3 more, but")},
       {[](auto& o) {
          o.parameters_to_ignore = {"b.weight", "a.weight"};
        },
        HasSubstr("nothing to train together; parameters_to_ignore names "
                  "a.weight, b.weight")},
       {[](auto& o) { o.delay_all_reduce_named_params = {"a.weight"}; },
        HasSubstr("param_to_hook_all_reduce")},
       {[](auto& o) {
          o.bucket_cap_mb_list = {1, 0};
        },
        HasSubstr("bucket_cap_mb_list")}};
  for (const auto& [change, words] : refusals) {
    DistributedDataParallelOptions options;
    change(options);
    ExpectOptionRefused(options, words);
  }
}

// What is ignored may have another shape on each rank, and DistributedData-
// Parallel leaves its gradients alone.
TEST_P(DdpConstruction, IgnoredParametersMayDiffer) {
  for (bool static_graph : {false, true}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      DistributedDataParallelOptions options;
      options.static_graph = static_graph;
      options.parameters_to_ignore = {"b.weight"};
      auto model = NewModule<TwoLinear>();
      TwoLinear alone;
      alone.to(TestDevice());
      for (TwoLinear* each : {model.get(), &alone}) {
        FillModule(*each);
        each->b->weight.set_data(
            at::full({4 + world.rank(), 4}, 0.5, TestDevice()));
      }
      TANDEM_ASSIGN_OR_RETURN(
          auto ddp, MakeDistributedDataParallel(model, world, options));
      for (int step = 0; step < 4; ++step) {
        const at::Tensor x = ExampleInput(step, world);
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                                ddp->Forward(x, true, true));
        TANDEM_RETURN_IF_ERROR(ddp->Backward(outputs.sum()));
        alone.forward(x, true, true).sum().backward();
        EXPECT_TRUE(model->b->weight.grad().equal(alone.b->weight.grad()));
        EXPECT_FALSE(model->a->weight.grad().equal(alone.a->weight.grad()));
        at::Tensor mean = alone.a->weight.grad().div(2);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(mean));
        EXPECT_TRUE(model->a->weight.grad().allclose(mean, 1e-5, 1e-6));
      }
      return absl::OkStatus();
    });
  }
}

TEST(DdpOptionsCheck, EveryParameterWithoutAValueIsNamed) {
  const NamedTensors parameters = {
      {"a", at::full({2}, 1.).requires_grad_(true)},
      {"late", {}},
      {"later", {}}};
  const absl::Status status = CheckDdpOptions({}, parameters, {});
  EXPECT_THAT(status,
              InvalidArgument("parameters late, later have no values yet"));
}

TEST(DdpOptionsCheck, AParameterThatIsComputedFromAnotherIsNamed) {
  const NamedTensors parameters = {
      {"a", at::full({2}, 1.).requires_grad_(true)},
      {"scaled", at::full({2}, 1.).requires_grad_(true).mul(0.1)}};
  const absl::Status status = CheckDdpOptions({}, parameters, {});
  EXPECT_THAT(status, InvalidArgument(
                          "parameter scaled is computed from other tensors"));
}

TEST(DdpOptionsCheck, ATiedWeightIsIgnoredByAnyOfItsNames) {
  const at::Tensor tied = at::full({2}, 1.).requires_grad_(true);
  DistributedDataParallelOptions options;
  options.parameters_to_ignore = {"second"};
  const absl::Status status =
      CheckDdpOptions(options, {{"first", tied}, {"second", tied}}, {});
  EXPECT_THAT(status, Says("nothing to train together"));
}

TEST(DdpOptionsCheck, ATiedWeightIsInTheGroupOfAnyOfItsNames) {
  const at::Tensor tied = at::full({2}, 1.).requires_grad_(true);
  const at::Tensor other = at::full({2}, 1.).requires_grad_(true);
  DistributedDataParallelOptions options;
  options.optimizer_group = [](const std::string& name) -> int64_t {
    return name == "second" ? 1 : 0;
  };
  const auto group =
      WithFirstNames(options,
                     {{"first", tied}, {"other", other}, {"second", tied}})
          .optimizer_group;
  EXPECT_EQ(group("first"), 1);
  EXPECT_EQ(group("other"), 0);
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpConstruction);

// Options of DistributedDataParallel that change how gradients travel, and what
// it tells of itself.

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
}  // namespace tandem::construction_test
