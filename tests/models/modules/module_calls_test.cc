#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "models/modules/module_call.h"

namespace tandem::module_calls_test {
namespace {

using at::Tensor;
using testing::HasSubstr;

using TensorMapping = std::map<std::string, Tensor>;

struct Adds : torch::nn::Module {
  Tensor forward(const Tensor& a, Tensor b, const Tensor& c) {
    return c.defined() ? a + b + c : a + b;
  }
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(Tensor())})
};

struct Derived : Adds {};

struct Divides : torch::nn::Module {
  TensorMapping forward(const std::tuple<Tensor, Tensor>& both) const {
    return {{"ratio", std::get<0>(both) / std::get<1>(both)}};
  }
};

struct Subtracts : torch::nn::Module {
  Tensor forward(const Tensor& a, const Tensor& b) const { return a - b; }
};

Tensor Number(double value) { return at::full({1}, value); }

c10::IValue Call(const ModuleCalls& calls,
                 std::shared_ptr<torch::nn::Module> module,
                 const c10::IValue& input) {
  const ModuleCall call = calls.Find(module);
  TORCH_CHECK(call != nullptr, "not found");
  return call(input);
}

TEST(ModuleCallsTest, ATupleIsOneArgumentOrSeveral) {
  ModuleCalls calls;
  calls.Add<Adds>().Add<Divides>().Add<Subtracts>();
  const c10::IValue two = ToTree(std::make_tuple(Number(6), Number(2)));
  EXPECT_EQ(
      Call(calls, std::make_shared<Subtracts>(), two).toTensor().item<double>(),
      4);
  const auto ratio = FromTree<TensorMapping>(
      Call(calls, std::make_shared<Divides>(), two), "it");
  EXPECT_EQ(ratio.at("ratio").item<double>(), 3);
}

TEST(ModuleCallsTest, ArgumentsMayBeLeftOut) {
  ModuleCalls calls;
  calls.Add<Adds>();
  const auto derived = std::make_shared<Derived>();
  const c10::IValue two = ToTree(std::make_tuple(Number(6), Number(2)));
  EXPECT_EQ(Call(calls, derived, two).toTensor().item<double>(), 8);
  const c10::IValue three =
      ToTree(std::make_tuple(Number(6), Number(2), Number(1)));
  EXPECT_EQ(Call(calls, derived, three).toTensor().item<double>(), 9);
}

TEST(ModuleCallsTest, TheFirstClassThatFitsCalls) {
  ModuleCalls calls;
  calls.Add([](Derived&, const Tensor& x) { return x * 10; });
  calls.Add<Adds>();
  EXPECT_EQ(Call(calls, std::make_shared<Derived>(), Number(2))
                .toTensor()
                .item<double>(),
            20);
  EXPECT_EQ(calls.Find(std::make_shared<Divides>()), nullptr);
}

std::string ErrorText(const ModuleCall& call, const c10::IValue& input) {
  try {
    call(input);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(ModuleCallsTest, ArgumentsThatDoNotFitAreNamed) {
  ModuleCalls calls;
  calls.Add<Adds>().Add<Subtracts>();
  const Tensor x = Number(1);
  const auto subtracts = calls.Find(std::make_shared<Subtracts>());
  EXPECT_THAT(ErrorText(subtracts, x),
              HasSubstr("it takes 2 arguments, but is given 1"));
  EXPECT_THAT(
      ErrorText(subtracts, ToTree(std::make_tuple(x, TensorMapping{{"x", x}}))),
      HasSubstr("argument 1 is of type GenericDict"));
  const auto adds = calls.Find(std::make_shared<Adds>());
  EXPECT_THAT(ErrorText(adds, ToTree(std::make_tuple(x, x, x, x))),
              HasSubstr("it takes 3 arguments, but is given 4"));
  // One that has no default value.
  EXPECT_THAT(ErrorText(adds, x), HasSubstr("at least 2 argument(s)"));
}

struct GivesMap : torch::nn::Module {
  TensorMapping forward(const Tensor& x) { return {{"x", x}}; }
};
struct TakesMap : torch::nn::Module {
  std::tuple<Tensor, Tensor> forward(TensorMapping map) {
    return {map.at("x"), map.at("x") * 2};
  }
};
struct GivesNumber : torch::nn::Module {
  int forward(const Tensor& x) { return x.item<int>(); }
};

TEST(AnyModuleCallTest, ClassesNeedNotBeNamed) {
  const ModuleCall gives = AnyModuleCall(torch::nn::AnyModule(GivesMap()));
  const ModuleCall takes = AnyModuleCall(torch::nn::AnyModule(TakesMap()));
  const c10::IValue both = takes(gives(Number(2)));
  EXPECT_EQ(both.toTupleRef().elements()[1].toTensor().item<double>(), 4);

  const torch::nn::Sequential all{GivesMap(), TakesMap()};
  const c10::IValue same = SequentialCall(all.ptr())(Number(2));
  EXPECT_EQ(same.toTupleRef().elements()[1].toTensor().item<double>(), 4);
}

TEST(AnyModuleCallTest, WhatIsNoTreeIsRefused) {
  EXPECT_THAT(
      ErrorText(AnyModuleCall(torch::nn::AnyModule(GivesNumber())), Number(2)),
      HasSubstr("it gives int, which is no known tuple"));
}

}  // namespace
}  // namespace tandem::module_calls_test
