// What DistributedDataParallel checks when it is made, on models and options.

#include <ATen/ops/full.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/ddp/option_checks.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::construction_test {
namespace {

using testing::AllOf;
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

TEST_P(DdpConstruction, AnotherShapeIsNamedWithItsRank) {
  ExpectRefused(
      [](int rank) {
        auto model = NewModule<TwoLinear>();
        if (rank == 2)
          model->b->weight.set_data(at::full({4, 5}, 1., TestDevice()));
        return model;
      },
      {}, AllOf(HasSubstr("rank 2"), HasSubstr("b.weight")));
}

TEST_P(DdpConstruction, AnotherDtypeIsNamedWithItsRank) {
  ExpectRefused(
      [](int rank) {
        auto model = NewModule<TwoLinear>();
        if (rank == 1) model->a->to(at::kDouble);
        return model;
      },
      {}, AllOf(HasSubstr("rank 1"), HasSubstr("a.weight")));
}

TEST_P(DdpConstruction, AnotherNumberOfParametersIsNamedWithItsRank) {
  ExpectRefused(
      [](int rank) {
        auto model = NewModule<TwoLinear>();
        if (rank == 1)
          model->register_parameter("more", at::full({2}, 1., TestDevice()));
        return model;
      },
      {}, AllOf(HasSubstr("rank 1"), HasSubstr("more")));
}

TEST_P(DdpConstruction, OptionsThatCannotBeAreNamed) {
  DistributedDataParallelOptions options;
  options.gradient_as_bucket_view = false;
  ExpectOptionRefused(options, HasSubstr("gradient_as_bucket_view"));

  options = {};
  options.parameters_to_ignore = {"c.weight"};
  ExpectOptionRefused(
      options, AllOf(HasSubstr("parameters_to_ignore"), HasSubstr("c.weight")));

  options.parameters_to_ignore = {"c.weight", "a.weight", "d.weight"};
  ExpectOptionRefused(options, HasSubstr("names c.weight, d.weight, but"));

  options.parameters_to_ignore.clear();
  for (int i = 0; i < 23; ++i) {
    options.parameters_to_ignore.push_back(absl::StrCat("c", i));
  }
  ExpectOptionRefused(options, HasSubstr("c18, c19 and 3 more, but"));

  options.parameters_to_ignore = {"b.weight", "a.weight"};
  ExpectOptionRefused(options, HasSubstr("nothing to train together; "
                                         "parameters_to_ignore names a.weight, "
                                         "b.weight"));

  options = {};
  options.delay_all_reduce_named_params = {"a.weight"};
  ExpectOptionRefused(options, HasSubstr("param_to_hook_all_reduce"));

  options = {};
  options.bucket_cap_mb_list = {1, 0};
  ExpectOptionRefused(options, HasSubstr("bucket_cap_mb_list"));
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

}  // namespace
}  // namespace tandem::construction_test
