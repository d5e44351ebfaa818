// Adapters in checkpoints: merged, and as PEFT's files.

#include "models/lora/merged_weights.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/lora/lora.h"
#include "models/lora/peft_adapter.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"

namespace tandem::merged_weights_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

at::Tensor Drawn(const std::string& name, at::IntArrayRef sizes) {
  return at::randn(sizes, GeneratorFor(1, name));
}

std::map<std::string, at::Tensor> Read(const StoredTensors& tensors) {
  std::map<std::string, at::Tensor> values;
  for (const StoredTensor& each : tensors) {
    ExpectOk(Verify(each));
    values[each.info.name] = *each.read();
    EXPECT_EQ(values[each.info.name].sizes(), each.info.sizes);
    EXPECT_EQ(values[each.info.name].scalar_type(), each.info.dtype);
  }
  return values;
}

// A square weight says nothing of how it is stored.
TEST(MergedWeightsTest, AreTheSumInTheOrderOfTheWeight) {
  const at::Tensor w = Drawn("w", {4, 4}), v = Drawn("v", {5, 4});
  const at::Tensor a = Drawn("a", {2, 4}), b = Drawn("b", {4, 2});
  const at::Tensor c = Drawn("c", {2, 4}), d = Drawn("d", {5, 2});
  LoraRecord record;
  record.rank = 2;
  record.alpha = 3;
  record.fan_in_fan_out = {"c_attn"};
  const auto merged = MergedWeights({{"h.c_attn.weight", w},
                                     {"h.c_attn.bias", at::ones({4})},
                                     {"h.c_attn.lora_A.weight", a},
                                     {"h.c_attn.lora_B.weight", b},
                                     {"head.weight", v},
                                     {"head.lora_A.weight", c},
                                     {"head.lora_B.weight", d}},
                                    record);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const auto values = Read(*merged);
  EXPECT_EQ(values.size(), 3u);
  EXPECT_TRUE(
      values.at("h.c_attn.weight").allclose(w + at::matmul(b, a).t() * 1.5));
  EXPECT_TRUE(values.at("head.weight").allclose(v + at::matmul(d, c) * 1.5));
  EXPECT_TRUE(values.at("h.c_attn.bias").equal(at::ones({4})));
}

TEST(MergedWeightsTest, DoublesAreAddedAsSuch) {
  const at::Tensor w = Drawn("w", {3, 4}).to(at::kDouble);
  const at::Tensor a = Drawn("a", {1, 4}), b = Drawn("b", {3, 1});
  LoraRecord record;
  record.rank = 1;
  record.alpha = 1;
  const auto values = Read(*MergedWeights(
      {{"weight", w}, {"lora_A.weight", a}, {"lora_B.weight", b}}, record));
  EXPECT_TRUE(values.at("weight").equal(
      w + at::matmul(b.to(at::kDouble), a.to(at::kDouble))));
}

TEST(MergedWeightsTest, WhatIsNoAdapterIsRefusedByName) {
  const at::Tensor w = at::ones({3, 4});
  const at::Tensor a = at::ones({2, 4}), b = at::ones({3, 2});
  LoraRecord record;
  record.rank = 2;
  const auto error = [&](const StoredTensors& tensors) {
    return MergedWeights(tensors, record).status();
  };
  EXPECT_THAT(error({{"fc.weight", w}, {"fc.lora_A.weight", a}}),
              InvalidArgument("the adapter of fc has no lora_B.weight"));
  EXPECT_THAT(error({{"fc.weight", w}, {"fc.lora_B.weight", b}}),
              InvalidArgument("the adapter of fc has no lora_A.weight"));
  EXPECT_THAT(
      error({{"fc.weight", w.t()},
             {"fc.lora_A.weight", a},
             {"fc.lora_B.weight", b}}),
      InvalidArgument("fits no weight of that module: expected [3, 4]"));
  EXPECT_THAT(error({{"fc.weight", w},
                     {"fc.other_weight", w},
                     {"fc.lora_A.weight", a},
                     {"fc.lora_B.weight", b}}),
              InvalidArgument("fits fc.weight and fc.other_weight"));
  record.rank = 1;
  EXPECT_THAT(
      error(
          {{"fc.weight", w}, {"fc.lora_A.weight", a}, {"fc.lora_B.weight", b}}),
      InvalidArgument("Float [2, 4] and Float [3, 2], not of rank 1"));
}

// What a pattern chose comes back from the ends of names.
TEST(NameEndsTest, AreTheShortestThatSayNoOthers) {
  const std::vector<std::string> all = {"h.0.attn.c_attn",
                                        "h.0.attn.c_proj",
                                        "h.0.mlp.c_proj",
                                        "h.1.attn.c_attn",
                                        "h.1.attn.c_proj",
                                        "h.1.mlp.c_proj",
                                        "head"};
  EXPECT_THAT(NameEnds({"h.0.attn.c_attn", "h.1.attn.c_attn", "head"}, all),
              ElementsAre("c_attn", "head"));
  EXPECT_THAT(NameEnds({"h.0.attn.c_proj", "h.1.attn.c_proj"}, all),
              ElementsAre("attn.c_proj"));
  EXPECT_THAT(NameEnds({"h.1.attn.c_proj"}, all), ElementsAre("1.attn.c_proj"));
  EXPECT_THAT(NameEnds({"head"}, {"head", "a.head"}), ElementsAre("head"));
  EXPECT_THAT(NameEnds({}, all), IsEmpty());
  EXPECT_TRUE(HasEnd("h.0.attn.c_proj", {"attn.c_proj"}));
  EXPECT_FALSE(HasEnd("h.0.cross_attn.c_proj", {"attn.c_proj"}));
}

TEST(LoraRecordTest, ComesBackFromACheckpointsOptions) {
  LoraOptions options;
  options.rank = 5;
  options.alpha = 0.1;
  options.on = "a|b";
  options.dropout = 0.3;
  const LoraRecord record =
      MakeLoraRecord(options,
                     {{"h.c.weight", "h.c", WeightLayout::kInOut, 2, 3},
                      {"h.d.weight", "h.d", WeightLayout::kOutIn, 2, 3}},
                     "base/folder");
  const auto back = ReadLoraRecord(LoraRecordOptions(record));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_TRUE(back->has_value());
  EXPECT_EQ((*back)->rank, 5);
  EXPECT_EQ((*back)->alpha, 0.1);
  EXPECT_EQ((*back)->dropout, 0.3);
  EXPECT_EQ((*back)->on, "a|b");
  EXPECT_EQ((*back)->base, "base/folder");
  EXPECT_THAT((*back)->fan_in_fan_out, ElementsAre("c"));
  EXPECT_FALSE(ReadLoraRecord({{"lora_dropout", "0"}})->has_value());
  EXPECT_THAT(ReadLoraRecord({{"lora_rank", "many"}}).status(),
              InvalidArgument("lora_rank=many"));
  EXPECT_THAT(ReadLoraRecord({{"lora_rank", "0"}}).status(),
              InvalidArgument("lora_rank=0"));
  EXPECT_THAT(
      ReadLoraRecord({{"lora_rank", "1"}, {"lora_alpha", "nan"}}).status(),
      InvalidArgument("lora_alpha=nan"));
}

StoredTensors Trained(const LayerSpecs& specs, const std::string& on,
                      LoraRecord* record) {
  LoraOptions options;
  options.rank = 2;
  options.alpha = 4;
  options.dropout = 0.1;
  options.on = on;
  *record = MakeLoraRecord(options, *LoraTargets(specs, options), "gpt2");
  return NamedParameters(MakeLayers(*WithLora(specs, options), 1));
}

LayerSpecs SmallGpt() {
  return *Gpt({/*layers=*/2, /*width=*/12, /*heads=*/3, /*context=*/7,
               /*vocabulary=*/11});
}

// Everything that PEFT's LoraConfig is to know, and nothing that it does not.
TEST(PeftAdapterTest, SaysOfAGptWhatPeftReads) {
  LoraRecord record;
  const StoredTensors weights = Trained(SmallGpt(), "c_attn", &record);
  const auto adapter = MakePeftAdapter(weights, record, "openai/gpt2", true);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ(nlohmann::json::parse(adapter->config), nlohmann::json::parse(R"({
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "openai/gpt2",
    "r": 2,
    "lora_alpha": 4,
    "lora_dropout": 0.1,
    "target_modules": ["c_attn"],
    "fan_in_fan_out": true,
    "bias": "none",
    "inference_mode": true
  })"));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, values] : Read(adapter->tensors)) {
    shapes[name] = values.sizes().vec();
  }
  const std::string block = "base_model.model.transformer.h.";
  EXPECT_EQ(shapes, (std::map<std::string, std::vector<int64_t>>{
                        {block + "0.attn.c_attn.lora_A.weight", {2, 12}},
                        {block + "0.attn.c_attn.lora_B.weight", {36, 2}},
                        {block + "1.attn.c_attn.lora_A.weight", {2, 12}},
                        {block + "1.attn.c_attn.lora_B.weight", {36, 2}}}));
}

TEST(PeftAdapterTest, NamesTheModulesThatThePatternHasChosen) {
  LoraRecord record;
  const auto config = [&](const LayerSpecs& specs, const std::string& on) {
    const StoredTensors weights = Trained(specs, on, &record);
    return nlohmann::json::parse(
        MakePeftAdapter(weights, record, "", false)->config);
  };
  const auto gpt = config(SmallGpt(), "h.1.attn.c_proj|lm_head");
  EXPECT_EQ(gpt["target_modules"],
            nlohmann::json::parse(R"(["1.attn.c_proj", "lm_head"])"));
  EXPECT_EQ(gpt["fan_in_fan_out"], true);
  EXPECT_TRUE(gpt["task_type"].is_null());
  EXPECT_TRUE(gpt["base_model_name_or_path"].is_null());
  const auto llama = config(*Llama(LlamaOptions()), LoraOptions().on);
  EXPECT_EQ(llama["target_modules"],
            nlohmann::json::parse(R"(["q_proj", "v_proj"])"));
  EXPECT_EQ(llama["fan_in_fan_out"], false);
}

TEST(PeftAdapterTest, ProjectionsThatPeftKeepsTogetherAreRefused) {
  VitOptions options;
  options.image_size = 8;
  options.patch_size = 4;
  options.layers = 1;
  options.heads = 2;
  options.width = 6;
  options.ffn_width = 10;
  options.classes = 5;
  LoraRecord record;
  const StoredTensors weights = Trained(*Vit(options), "in_proj", &record);
  const absl::Status status =
      MakePeftAdapter(weights, record, "", false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status, Says("encoder_layer_0.self_attention"));
  EXPECT_TRUE(MergedWeights(weights, record).ok());
}

}  // namespace
}  // namespace tandem::merged_weights_test
