// And core/base/tensor_tree.h, by which they are found.

#include "core/model/batch_inputs.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/tensor_tree.h"
#include "core/context/compute_context.h"

namespace tandem::batch_inputs_test {
namespace {

using c10::IValue;
using Names = std::vector<std::string>;

at::Tensor Rows(int64_t rows, int64_t width) {
  return at::arange(rows * width).view({rows, width});
}

// {"mask": [5, 1], 7: ([5, 2], [5, 3])}
IValue Tree() {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert("mask", Rows(5, 1));
  dict.insert(7, c10::ivalue::Tuple::create({Rows(5, 2), Rows(5, 3)}));
  return dict;
}

TEST(TensorTreeTest, EveryTensorIsMappedWhereItStands) {
  const c10::List<at::Tensor> list({Rows(5, 4), at::Tensor()});
  const IValue tree = c10::ivalue::Tuple::create({Tree(), list});
  Names paths;
  const auto mapped =
      MapTensors(tree, "x",
                 [&](const at::Tensor& tensor,
                     const std::string& path) -> absl::StatusOr<at::Tensor> {
                   paths.push_back(path);
                   return tensor.defined() ? tensor.narrow(0, 1, 2) : tensor;
                 });
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(paths, Names({"x[0]['mask']", "x[0][7][0]", "x[0][7][1]", "x[1][0]",
                          "x[1][1]"}));
  const auto& elements = mapped->toTupleRef().elements();
  const auto dict = elements[0].toGenericDict();
  EXPECT_TRUE(dict.at("mask").toTensor().equal(Rows(5, 1).narrow(0, 1, 2)));
  EXPECT_TRUE(dict.at(7).toTupleRef().elements()[1].toTensor().equal(
      Rows(5, 3).narrow(0, 1, 2)));
  const std::vector<at::Tensor> its_list = elements[1].toTensorVector();
  EXPECT_TRUE(its_list[0].equal(Rows(5, 4).narrow(0, 1, 2)));
  EXPECT_FALSE(its_list[1].defined());
  // The tree that was given is as it was.
  EXPECT_EQ(Tree().toGenericDict().at("mask").toTensor().size(0), 5);
}

TEST(TensorTreeTest, TheFirstErrorEndsIt) {
  Names paths;
  const auto mapped =
      MapTensors(Tree(), "x",
                 [&](const at::Tensor& tensor,
                     const std::string& path) -> absl::StatusOr<at::Tensor> {
                   paths.push_back(path);
                   if (paths.size() == 2) return absl::AbortedError("enough");
                   return tensor;
                 });
  EXPECT_EQ(mapped.status(), absl::AbortedError("enough"));
  EXPECT_EQ(paths.size(), 2u);
}

TEST(TensorTreeTest, WhatIsNoTensorIsNamed) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("scale", 2.0);
  const auto mapped =
      MapTensors(dict, "x", [](const at::Tensor& tensor, const std::string&) {
        return absl::StatusOr<at::Tensor>(tensor);
      });
  EXPECT_EQ(mapped.status(),
            absl::InvalidArgumentError(
                "'x['scale']' is of type Double: expected a tensor, or a "
                "tuple, list or dict of tensors"));
}

Batch Example() {
  Batch batch;
  batch.size = 5;
  batch.further_inputs["views"] = Tree();
  batch.further_inputs["types"] = Rows(5, 2);
  return batch;
}

const Names& ExampleNames() {
  static const auto* names =
      new Names{"types", "views['mask']", "views[7][0]", "views[7][1]"};
  return *names;
}

std::string Error(const Batch& batch, const Names& names) {
  const absl::Status status = NamedInputs(batch, names).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(BatchInputsTest, TensorsAreCalledByTheirPaths) {
  const auto inputs = NamedInputs(Example(), ExampleNames());
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  Names names;
  for (const auto& each : *inputs) names.push_back(each.first);
  EXPECT_EQ(names, ExampleNames());
  EXPECT_TRUE(inputs->at("views[7][1]").equal(Rows(5, 3)));
  EXPECT_TRUE(NamedInputs(Batch{}, {})->empty());
}

TEST(BatchInputsTest, WhatIsMissingIsNamed) {
  EXPECT_EQ(Error(Batch{}, {"mask"}),
            "the model reads the further input 'mask', which the batch lacks; "
            "it has none");
  Batch batch = Example();
  batch.further_inputs["types"] = at::Tensor();
  EXPECT_EQ(Error(batch, ExampleNames()),
            "the model reads the further input 'types', which the batch lacks; "
            "it has 'views['mask']', 'views[7][0]', 'views[7][1]'");
}

TEST(BatchInputsTest, WhatNobodyReadsIsNamed) {
  EXPECT_EQ(Error(Example(), {"views['mask']", "views[7][0]", "views[7][1]"}),
            "the batch has the further input 'types', which no layer reads; "
            "they read 'views['mask']', 'views[7][0]', 'views[7][1]'");
  Batch batch;
  batch.size = 5;
  batch.further_inputs["mask"] = Rows(5, 1);
  EXPECT_EQ(Error(batch, {}),
            "the batch has the further input 'mask', which no layer reads; "
            "they read none");
}

TEST(BatchInputsTest, ATensorOfOtherSamplesIsNamed) {
  Batch batch = Example();
  batch.size = 6;
  EXPECT_EQ(Error(batch, ExampleNames()),
            "a batch of 6 samples has Long [5, 2] as 'types', whose dimension "
            "0 does not count them");
  batch = Example();
  batch.further_inputs["views"] =
      c10::ivalue::Tuple::create({Rows(5, 1), at::arange(5).sum()});
  EXPECT_EQ(Error(batch, ExampleNames()),
            "a batch of 5 samples has Long [] as 'views[1]', whose dimension "
            "0 does not count them");
}

TEST(BatchInputsTest, TheLossReadsFurtherTargets) {
  Batch batch;
  batch.size = 5;
  batch.further_targets["boxes"] = Tree();
  const auto targets =
      NamedTargets(batch, {"boxes['mask']", "boxes[7][0]", "boxes[7][1]"});
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_TRUE(targets->at("boxes[7][1]").equal(Rows(5, 3)));
  EXPECT_TRUE(NamedInputs(batch, {})->empty());
  EXPECT_EQ(NamedTargets(batch, {"kinds"}).status().message(),
            "the loss reads the further target 'kinds', which the batch lacks; "
            "it has 'boxes['mask']', 'boxes[7][0]', 'boxes[7][1]'");
  batch.further_targets = {{"kinds", Rows(5, 1)}};
  EXPECT_EQ(NamedTargets(batch, {}).status().message(),
            "the batch has the further target 'kinds', which the loss does not "
            "read; it reads none");
  batch.size = 4;
  EXPECT_EQ(NamedTargets(batch, {"kinds"}).status().message(),
            "a batch of 4 samples has Long [5, 1] as 'kinds', whose dimension "
            "0 does not count them");
}

TEST(MicrobatchScopeTest, ScopesNestAndAreOfOneThread) {
  EXPECT_FALSE(MicrobatchScope::Current().has_value());
  {
    const MicrobatchScope outer({1, 4, false, true});
    {
      const MicrobatchScope inner({1, 4, true, true});
      EXPECT_TRUE(MicrobatchScope::Current()->is_recomputed);
    }
    ASSERT_TRUE(MicrobatchScope::Current().has_value());
    EXPECT_FALSE(MicrobatchScope::Current()->is_recomputed);
    EXPECT_EQ(MicrobatchScope::Current()->count, 4);
    bool seen = true;
    std::thread([&] { seen = MicrobatchScope::Current().has_value(); }).join();
    EXPECT_FALSE(seen);
  }
  EXPECT_FALSE(MicrobatchScope::Current().has_value());
}

TEST(MicrobatchScopeTest, ScopesOfOtherPartsOfTheContextLeaveItAlone) {
  const MicrobatchScope microbatch({1, 4});
  {
    const ComputeContext::Scope scope([](ComputeContext& context) {
      EXPECT_EQ(context.microbatch->index, 1);
      context.microbatch->index = 2;
      context.samples = Samples{7, 3, 16};
    });
    const SampleScope samples({7, 3, 32});
    EXPECT_EQ(MicrobatchScope::Current()->index, 2);
    EXPECT_EQ(SampleScope::Current()->first, 32);
  }
  EXPECT_EQ(MicrobatchScope::Current()->index, 1);
  EXPECT_EQ(MicrobatchScope::Current()->count, 4);
  EXPECT_FALSE(SampleScope::Current().has_value());
}

}  // namespace
}  // namespace tandem::batch_inputs_test
