#include "core/weights/weights_folder.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/safetensors.h"
#include "core/weights/load_plan.h"
#include "core/weights/stored_weights.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

NamedTensors ThreeTensors() {
  return {{"a", at::arange(6.f).view({2, 3})},
          {"b", at::arange(5, at::kLong)},
          {"c", at::full({4}, 1.0 / 3, at::kFloat)}};
}

std::map<std::string, at::Tensor> ReadAll(const StoredWeights& weights) {
  std::map<std::string, at::Tensor> all;
  for (const StoredTensor& each : weights.tensors) {
    all[each.info.name] = each.read().value();
  }
  return all;
}

// Three shards of one tensor each.
std::string ShardedFolder(const std::string& name) {
  const std::string folder = NewTestFolder(name);
  WeightsFolderOptions options;
  options.max_shard_bytes = 1;
  EXPECT_TRUE(WriteWeightsFolder(folder, ThreeTensors(), options).ok());
  return folder;
}

std::string Shard(const std::string& folder, int i) {
  return absl::StrCat(folder, "/model-0000", i, "-of-00003.safetensors");
}

std::string ErrorOf(const std::string& path) {
  return std::string(OpenWeights(path).status().message());
}

TEST(WeightsFolderTest, OneFileOrShardsHoldTheSame) {
  for (const uint64_t most : {uint64_t{1}, uint64_t{64}, uint64_t{1} << 30}) {
    const std::string folder = NewTestFolder(absl::StrCat("same", most));
    WeightsFolderOptions options;
    options.max_shard_bytes = most;
    ASSERT_TRUE(WriteWeightsFolder(folder, ThreeTensors(), options).ok());
    const auto weights = OpenWeights(folder);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->files.size(), most == 1 ? 3u : most == 64 ? 2u : 1u);
    auto all = ReadAll(*weights);
    ASSERT_EQ(all.size(), 3u);
    for (const auto& [name, tensor] : ThreeTensors()) {
      EXPECT_TRUE(at::equal(all[name], tensor)) << name;
    }
  }
}

TEST(WeightsFolderTest, FloatingPointValuesAreConverted) {
  const std::string folder = NewTestFolder("converted");
  WeightsFolderOptions options;
  options.dtype = at::kBFloat16;
  ASSERT_TRUE(WriteWeightsFolder(folder, ThreeTensors(), options).ok());
  auto all = ReadAll(*OpenWeights(folder));
  EXPECT_EQ(all["b"].scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(all["c"],
                        at::full({4}, 1.0 / 3, at::kFloat).to(at::kBFloat16)));
}

TEST(WeightsFolderTest, WhatADtypeCannotHoldIsRefused) {
  NamedTensors tensors = ThreeTensors();
  const at::Tensor large = at::full({3}, 65504., at::kFloat);
  tensors.emplace_back("large", large);
  const std::string path = NewTestFolder("large") + "/large.safetensors";
  EXPECT_TRUE(WriteWeightsFile(path, tensors, at::kHalf).ok());
  large[1] = -65536;
  const auto written = WriteWeightsFile(path, tensors, at::kHalf);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(written.status().message()),
              HasSubstr("large: 1 of 3 values are too large for F16, "
                        "such as -65536"));
  EXPECT_TRUE(WriteWeightsFile(path, tensors, at::kBFloat16).ok());
  // Rounded to even, it is 2^128.
  large[1] = std::numeric_limits<float>::max();
  EXPECT_FALSE(WriteWeightsFile(path, tensors, at::kBFloat16).ok());
  EXPECT_TRUE(WriteWeightsFile(path, tensors, std::nullopt).ok());
}

// So the command may be given again, with a dtype that holds them.
TEST(WeightsFolderTest, WhatIsRefusedLeavesNothing) {
  NamedTensors tensors = ThreeTensors();
  tensors.emplace_back("z", at::full({3}, 65536., at::kFloat));
  WeightsFolderOptions options;
  options.max_shard_bytes = 1;
  options.dtype = at::kHalf;
  const std::string folder = NewTestFolder("refused");
  EXPECT_FALSE(WriteWeightsFolder(folder, tensors, options).ok());
  EXPECT_FALSE(HasWeights(folder));
  options.dtype = at::kBFloat16;
  const auto written = WriteWeightsFolder(folder, tensors, options);
  EXPECT_TRUE(written.ok()) << written.status();
}

TEST(WeightsFolderTest, WhatIsStoredInfiniteIsSaidAndWritten) {
  NamedTensors tensors = ThreeTensors();
  EXPECT_THAT(*WriteWeightsFolder(NewTestFolder("finite"), tensors, {}),
              ElementsAre());
  const float infinity = std::numeric_limits<float>::infinity();
  tensors.emplace_back("mask", at::full({2}, -infinity, at::kFloat));
  tensors.emplace_back("w", at::full({1}, std::nan(""), at::kDouble));
  WeightsFolderOptions options;
  options.dtype = at::kHalf;
  const std::string folder = NewTestFolder("infinite");
  const auto written = WriteWeightsFolder(folder, tensors, options);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(*written,
              ElementsAre(HasSubstr("mask has 0 NaN and 2 infinite of 2"),
                          HasSubstr("w has 1 NaN and 0 infinite of 1")));
  const auto all = ReadAll(*OpenWeights(folder));
  EXPECT_EQ(all.at("mask")[1].item<float>(), -infinity);
}

TEST(WeightsFolderTest, WeightsThatAreThereAreNotMixedWithOthers) {
  const std::string folder = ShardedFolder("there");
  const absl::Status status =
      WriteWeightsFolder(folder, ThreeTensors(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has weights already"));
}

TEST(StoredWeightsTest, AFolderWithoutWeightsSaysWhatItLacks) {
  const std::string folder = NewTestFolder("empty");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("has neither model.safetensors"));
}

// transformers wrote such folders before it had safetensors.
TEST(StoredWeightsTest, AFolderMayHavePyTorchsFiles) {
  const std::string folder = NewTestFolder("pytorch");
  const std::string given = "tests/core/pytorch_file/data/module.pt";
  fs::copy_file(given, folder + "/pytorch_model-00001-of-00001.bin");
  std::string map;
  const auto weights = OpenWeights(given);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (const StoredTensor& each : weights->tensors) {
    absl::StrAppend(&map, map.empty() ? "" : ", ", "\"", each.info.name,
                    "\": \"pytorch_model-00001-of-00001.bin\"");
  }
  WriteBytes(folder + "/pytorch_model.bin.index.json",
             absl::StrCat("{\"weight_map\": {", map, "}}"));
  EXPECT_EQ(ReadAll(*OpenWeights(folder)).size(), 5u);
  fs::copy_file("tests/core/pytorch_file/data/command.pt",
                folder + "/pytorch_model.bin");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("posix.system"));
  // Safetensors are taken where both are there.
  ASSERT_TRUE(WriteWeightsFile(folder + "/model.safetensors", ThreeTensors(),
                               std::nullopt)
                  .ok());
  EXPECT_EQ(ReadAll(*OpenWeights(folder)).size(), 3u);
}

TEST(StoredWeightsTest, ShardsAreThereAndWhole) {
  const std::string folder = ShardedFolder("missing");
  fs::remove(Shard(folder, 2));
  EXPECT_THAT(ErrorOf(folder), HasSubstr(Shard(folder, 2)));
  fs::copy_file(Shard(folder, 1), Shard(folder, 2));
  EXPECT_THAT(ErrorOf(folder), HasSubstr("has a tensor a"));  // twice
}

TEST(StoredWeightsTest, AnIndexIsNotBelieved) {
  const std::string folder = ShardedFolder("index");
  const std::string index = folder + "/model.safetensors.index.json";
  const auto with = [&](const std::string& text) {
    WriteBytes(index, text);
    return ErrorOf(folder);
  };
  EXPECT_THAT(with("{"), HasSubstr("no JSON object"));
  EXPECT_THAT(with("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(with("{\"metadata\": {\"total_size\": NaN}}"),
              HasSubstr("no JSON object"));
  EXPECT_THAT(with("{\"weight_map\": []}"), HasSubstr("no object"));
  EXPECT_THAT(with("{\"weight_map\": {}}"), HasSubstr("is empty"));
  for (const std::string path :
       {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\u0000b"}) {
    EXPECT_THAT(with("{\"weight_map\": {\"a\": \"" + path + "\"}}"),
                HasSubstr("the name of a file in the folder"))
        << path;
  }
  EXPECT_THAT(with("{\"weight_map\": {\"a\": 3}}"), HasSubstr("tensor a"));
  EXPECT_THAT(with("{\"weight_map\": {\"a\": \"model-00001-of-00003"
                   ".safetensors\", \"d\": \"model-00001-of-00003"
                   ".safetensors\"}}"),
              HasSubstr("lacks tensor d"));
}

TEST(StoredWeightsTest, ATruncatedFolderIsRefusedOrTheSame) {
  const std::string folder = ShardedFolder("truncated");
  int refused = 0;
  for (const std::string& file : {Shard(folder, 1), Shard(folder, 3),
                                  folder + "/model.safetensors.index.json"}) {
    const std::string whole = ReadBytes(file);
    for (size_t n = 0; n < whole.size(); n += 7) {
      WriteBytes(file, whole.substr(0, n));
      const auto weights = OpenWeights(folder);
      refused += !weights.ok();
      if (!weights.ok()) continue;
      for (const auto& [name, tensor] : ThreeTensors()) {
        EXPECT_TRUE(at::equal(ReadAll(*weights)[name], tensor)) << n;
      }
    }
    WriteBytes(file, whole);
  }
  EXPECT_GT(refused, 20);
}

TensorInfo Info(const std::string& name, std::vector<int64_t> sizes) {
  return {name, at::kFloat, std::move(sizes)};
}

const std::vector<TensorInfo>& Model() {
  static const auto* model = new std::vector<TensorInfo>{
      Info("a", {2, 3}), Info("c", {4}), Info("head", {2, 3})};
  return *model;
}

TEST(LoadPlanTest, WhatIsMissingLeftOverOrOfAnotherShapeIsNamed) {
  const auto plan = PlanLoading(
      {{"a", at::zeros({3, 2})}, {"d", at::zeros({1})}, {"c", at::zeros({4})}},
      Model(), NameRules(), LoadAllowances());
  EXPECT_EQ(plan.status().message(),
            "the tensors are not the model's: missing: head; left over: d; of "
            "another shape: a is [3, 2], expected [2, 3] (transposed)");
  const auto other = PlanLoading({{"a", at::zeros({2, 2})},
                                  {"c", at::zeros({4})},
                                  {"head", at::zeros({2, 3})}},
                                 Model(), NameRules(), LoadAllowances());
  EXPECT_THAT(std::string(other.status().message()),
              EndsWith("a is [2, 2], expected [2, 3]"));
}

TEST(LoadPlanTest, APrefixThatAWrapperOfOnesOwnAddsIsNamed) {
  const std::string prefix = "net.";
  NamedTensors wrapped = {{prefix + "a", at::zeros({2, 3})},
                          {prefix + "c", at::zeros({4})},
                          {prefix + "head", at::zeros({2, 3})}};
  const auto message = [](const NamedTensors& stored) {
    return std::string(
        PlanLoading(stored, Model(), NameRules(), LoadAllowances())
            .status()
            .message());
  };
  EXPECT_THAT(message(wrapped),
              EndsWith("; they would be without the 'net.' in front of "
                       "their names: save them again without it"));
  wrapped.emplace_back("mask", at::zeros({1}));
  EXPECT_THAT(message(wrapped), Not(HasSubstr("without the")));
}

TEST(LoadPlanTest, AllowedByNameOrPattern) {
  const auto plan =
      PlanLoading({{"a", at::zeros({2, 3})}, {"x.bias", at::zeros({1})}},
                  Model(), NameRules(), {{"head", "c"}, {"*.bias"}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->missing, ElementsAre("c", "head"));
  EXPECT_THAT(plan->unexpected, ElementsAre("x.bias"));
  EXPECT_EQ(Describe(*plan),
            "1 tensors loaded; missing, as allowed: c, head; left over, as "
            "allowed: x.bias");
}

// A head for other classes begins anew.
TEST(LoadPlanTest, AnotherShapeIsAllowedByName) {
  const auto plan = PlanLoading({{"a", at::zeros({2, 3})},
                                 {"c", at::zeros({4})},
                                 {"head", at::zeros({5, 3})}},
                                Model(), NameRules(), {{"head"}, {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->tensors.size(), 2u);
  EXPECT_THAT(plan->missing, IsEmpty());
  EXPECT_THAT(plan->reshaped, ElementsAre("head"));
  EXPECT_EQ(Describe(*plan),
            "2 tensors loaded; of another shape, as allowed, and not loaded: "
            "head");
}

TEST(LoadPlanTest, ATiedWeightIsStoredUnderEitherName) {
  NameRules rules;
  rules.tied["head"] = "a";
  const at::Tensor a = at::ones({2, 3}), other = at::zeros({2, 3});
  const at::Tensor c = at::zeros({4});
  for (const NamedTensors& stored :
       std::vector<NamedTensors>{{{"a", a}, {"c", c}},
                                 {{"head", a}, {"c", c}},
                                 {{"head", other}, {"a", a}, {"c", c}}}) {
    const auto plan = PlanLoading(stored, Model(), rules, LoadAllowances());
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->tensors.size(), 3u);
    for (const StoredTensor& each : plan->tensors) {
      if (each.info.name == "c") continue;
      EXPECT_TRUE(at::equal(each.read().value(), a)) << each.info.name;
    }
  }
}

TEST(LoadPlanTest, ATiedWeightIsTheSameUnderBothNames) {
  NameRules rules;
  rules.tied["head"] = "a";
  const at::Tensor a = at::ones({2, 3}), c = at::zeros({4});
  const at::Tensor other = at::ones({2, 3});
  for (const at::Tensor& head : {a, a.clone(), a.to(at::kHalf)}) {
    const auto plan = PlanLoading({{"a", a}, {"c", c}, {"head", head}}, Model(),
                                  rules, LoadAllowances());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(CheckTied(*plan).ok());
  }
  other[1][2] = 2;
  const auto plan = PlanLoading({{"a", a}, {"c", c}, {"head", other}}, Model(),
                                rules, LoadAllowances());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(std::string(CheckTied(*plan).message()),
              HasSubstr("head is to be the same as a"));
}

TEST(LoadPlanTest, NamesOfWrappedModelsAreUnwrapped) {
  const at::Tensor a = at::ones({2, 3}), c = at::zeros({4});
  for (const auto& [before, said] : std::map<std::string, std::string>{
           {"_orig_mod.", "_orig_mod."},
           {"module.", "module."},
           {"module._orig_mod.", "_orig_mod. and module."},
           {"_orig_mod.module.", "_orig_mod. and module."}}) {
    const auto plan = PlanLoading(
        {{before + "a", a}, {before + "c", c}, {before + "head", a}}, Model(),
        NameRules(), LoadAllowances());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Describe(*plan), "3 tensors loaded; names without " + said);
  }
  // A layer that was compiled by itself.
  EXPECT_TRUE(PlanLoading({{"l._orig_mod.w", c}}, {Info("l.w", {4})},
                          NameRules(), LoadAllowances())
                  .ok());
  // Not of a wrapper: of some names, or of the model's own.
  const auto some = PlanLoading({{"module.a", a}, {"c", c}, {"head", a}},
                                Model(), NameRules(), LoadAllowances());
  EXPECT_EQ(some.status().message(),
            "the tensors are not the model's: missing: a; left over: module.a; "
            "they would be without the 'module.' in front of their names: save "
            "them again without it");
  for (const char* own : {"module.w", "l._orig_mod.w"}) {
    EXPECT_TRUE(
        PlanLoading({{own, c}}, {Info(own, {4})}, NameRules(), LoadAllowances())
            .ok())
        << own;
  }
}

TEST(LoadPlanTest, TwoTensorsThatAreTheSameAreRefused) {
  NameRules rules;
  rules.of = [](const std::string& name) {
    return name == "mask" ? StateName{"", "a mask"} : StateName{"a", ""};
  };
  const auto plan = PlanLoading({{"mask", at::zeros({1})},
                                 {"p", at::zeros({2, 3})},
                                 {"q", at::zeros({2, 3})}},
                                Model(), rules, LoadAllowances());
  EXPECT_EQ(plan.status().message(), "tensors p and q are both a of the model");
}

}  // namespace
}  // namespace tandem
