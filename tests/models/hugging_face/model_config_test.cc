#include "models/hugging_face/model_config.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/weights/load_plan.h"
#include "core/weights/stored_weights.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Folder(const std::string& name) {
  return absl::StrCat("tests/models/hugging_face/testdata/", name);
}

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ConfigText(const std::string& name) {
  return Read(Folder(name) + "/config.json");
}

const std::vector<std::string>& Folders() {
  static const auto* folders = new std::vector<std::string>{
      "gpt2_tied", "gpt2_untied_sharded", "llama_tied_grouped",
      "llama_untied_sharded", "llama_bf16"};
  return *folders;
}

// The model of a folder, with its weights.
LayerList Loaded(const std::string& name) {
  const auto config = ReadModelConfig(ConfigText(name));
  EXPECT_TRUE(config.ok()) << config.status();
  LayerList layers = MakeLayers(*LayersOf(config->model), /*seed=*/1);
  const NamedTensors parameters = NamedParameters(layers);
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : parameters) {
    infos.push_back(MakeTensorInfo(name, tensor));
  }
  const auto weights = OpenWeights(Folder(name));
  EXPECT_TRUE(weights.ok()) << weights.status();
  const auto plan = PlanLoading(
      weights->tensors, infos, StateNameRules(config->model), LoadAllowances());
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, at::Tensor> by_name(parameters.begin(),
                                            parameters.end());
  at::NoGradGuard no_grad;
  for (const StoredTensor& each : plan->tensors) {
    by_name.at(each.info.name).copy_(each.read().value());
  }
  return layers;
}

TEST(ModelConfigTest, FoldersComputeWhatTransformersDo) {
  at::NoGradGuard no_grad;
  for (const std::string& name : Folders()) {
    const Json expected = Json::parse(Read(Folder(name) + "/expected.json"));
    std::vector<int64_t> tokens;
    for (const auto& row : expected["tokens"]) {
      for (const auto& token : row) tokens.push_back(token);
    }
    const std::vector<float> logits = expected["logits"];
    const at::Tensor outputs =
        Forward(Loaded(name), at::tensor(tokens).view({2, 8}));
    const at::Tensor wanted = at::tensor(logits).view_as(outputs);
    const at::Tensor off = outputs.sub(wanted);
    EXPECT_LT(off.abs().max().item().toFloat(), 1e-4) << name;
    EXPECT_GT(wanted.abs().max().item().toFloat(), 0.01) << name;
  }
}

TEST(ModelConfigTest, WhatIsWrittenIsReadAsTheSame) {
  for (const std::string& name : Folders()) {
    const auto config = ReadModelConfig(ConfigText(name));
    ASSERT_TRUE(config.ok()) << config.status();
    const std::string text = WriteModelConfig(config->model);
    const auto again = ReadModelConfig(text);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(WriteModelConfig(again->model), text);
    EXPECT_EQ(ContextLength(again->model), 16);
    EXPECT_EQ(VocabularySize(again->model), 32);
  }
}

TEST(ModelConfigTest, FieldsAreTheModels) {
  const auto llama = ReadModelConfig(ConfigText("llama_tied_grouped"));
  const auto& options = std::get<LlamaOptions>(llama->model);
  EXPECT_EQ(options.kv_heads, 2);
  EXPECT_TRUE(options.ties_lm_head);
  EXPECT_EQ(options.rope_theta, 5000);
  ASSERT_TRUE(options.rope_scaling.has_value());
  EXPECT_EQ(options.rope_scaling->factor, 4);
  EXPECT_EQ(options.rope_scaling->original_max_position_embeddings, 8);
  const auto gpt = ReadModelConfig(ConfigText("gpt2_tied"));
  EXPECT_TRUE(std::get<GptOptions>(gpt->model).ties_lm_head);
  EXPECT_THAT(gpt->note, HasSubstr("attn_pdrop 0.1"));
}

// Positions under their names of before version 5.
TEST(ModelConfigTest, OlderRotaryFieldsAreRead) {
  Json config = Json::parse(ConfigText("llama_tied_grouped"));
  Json rope = config["rope_parameters"];
  config.erase("rope_parameters");
  config["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  config["rope_scaling"] = rope;
  const auto old = ReadModelConfig(config.dump());
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(WriteModelConfig(old->model),
            WriteModelConfig(
                ReadModelConfig(ConfigText("llama_tied_grouped"))->model));
}

// The text is what Python's json.dump writes.
TEST(ModelConfigTest, WhatIsNoJsonIsSaidWithItsLine) {
  const auto read = ReadModelConfig(
      "{\"model_type\": \"llama\",\n \"some_limit\": [0.0, Infinity]}");
  EXPECT_EQ(read.status().message(),
            "it is no JSON object: line 2 has 'Infinity'");
}

struct Refusal {
  std::string folder, key, value, message;
};

TEST(ModelConfigTest, WhatTheModelCannotDoIsRefusedByName) {
  const std::string gpt = "gpt2_tied", llama = "llama_tied_grouped";
  for (const Refusal& refusal : std::vector<Refusal>{
           {gpt, "vocab_size", "null", "no vocab_size, expected a whole"},
           {gpt, "vocab_size", "1e30", "vocab_size 1e+30, expected a whole"},
           {gpt, "n_layer", "1000000000", "n_layer 1000000000, expected"},
           {gpt, "n_layer", "-1", "n_layer -1, expected"},
           {gpt, "n_embd", "\"16\"", "n_embd \"16\", expected"},
           {gpt, "n_head", "3", "n_head 3, but heads must divide"},
           {gpt, "activation_function", "\"relu\"", "activation_function"},
           {gpt, "n_inner", "100", "n_inner 100"},
           {gpt, "layer_norm_epsilon", "1e-6", "layer_norm_epsilon"},
           {gpt, "scale_attn_weights", "false", "scale_attn_weights"},
           {gpt, "scale_attn_by_inverse_layer_idx", "true", "inverse_layer"},
           {gpt, "add_cross_attention", "true", "add_cross_attention"},
           {gpt, "tie_word_embeddings", "1", "tie_word_embeddings 1"},
           {gpt, "quantization_config", "{}", "quantization_config"},
           {gpt, "model_type", "\"bert\"", "known here are gpt2 and llama"},
           {llama, "hidden_act", "\"gelu\"", "hidden_act"},
           {llama, "sliding_window", "128", "sliding_window 128"},
           {llama, "rope_parameters", "{\"rope_type\": \"yarn\"}", "yarn"},
           {llama, "rope_parameters", "{\"rope_type\": \"llama3\"}",
            "no factor"},
           {llama, "rope_parameters", "3", "rope_parameters 3"},
           {llama, "rms_norm_eps", "0", "rms_norm_eps"},
           {llama, "num_key_value_heads", "3", "3"}}) {
    Json config = Json::parse(ConfigText(refusal.folder));
    config[refusal.key] = Json::parse(refusal.value);
    const auto read = ReadModelConfig(config.dump());
    EXPECT_THAT(read.status(), InvalidArgument(refusal.message)) << refusal.key;
  }
  EXPECT_FALSE(
      ReadModelConfig("{\"model_type\": \"gpt2\", \"n_embd\": NaN}").ok());
  EXPECT_FALSE(ReadModelConfig("[]").ok());
}

// Else transformers would take the defaults of its classes.
TEST(ModelConfigTest, WhatEndsATextIsWritten) {
  using Ends = std::vector<int64_t>;
  const auto field = [](const TransformerOptions& model,
                        const std::optional<Ends>& ends, const char* name) {
    const Json config = Json::parse(WriteModelConfig(model, ends));
    EXPECT_TRUE(config.contains(name)) << name;
    return config[name].dump();
  };
  GptOptions gpt2;
  gpt2.vocabulary = 50257;
  for (const char* const name : {"bos_token_id", "eos_token_id"}) {
    EXPECT_EQ(field(GptOptions(), std::nullopt, name), "null");
    EXPECT_EQ(field(gpt2, std::nullopt, name), "50256");
    EXPECT_EQ(field(gpt2, Ends(), name), "null");
    EXPECT_EQ(field(gpt2, Ends{256}, name), "256");
    EXPECT_EQ(field(LlamaOptions(), std::nullopt, name), "null");
  }
  EXPECT_EQ(field(gpt2, Ends{7, 9}, "bos_token_id"), "7");
  EXPECT_EQ(field(gpt2, Ends{7, 9}, "eos_token_id"), "[7,9]");
  EXPECT_EQ(field(LlamaOptions(), Ends{256}, "bos_token_id"), "null");
  EXPECT_EQ(field(LlamaOptions(), Ends{256}, "eos_token_id"), "256");
}

TEST(ModelConfigTest, EndsAreReadAndAddedToThoseThatAreThere) {
  EXPECT_THAT(*ReadEndTokens("{}"), ElementsAre());
  EXPECT_THAT(*ReadEndTokens(R"({"eos_token_id": 3})"), ElementsAre(3));
  const std::string several = R"({"eos_token_id": [3, 4],  "top_p": 0.9})";
  EXPECT_THAT(*ReadEndTokens(several), ElementsAre(3, 4));
  EXPECT_EQ(WithEndTokens(several, {4, 3}), several);  // as it was written
  const std::string more = WithEndTokens(several, {4, 5});
  EXPECT_EQ(Json::parse(more),
            Json::parse(R"({"eos_token_id": [3, 4, 5], "top_p": 0.9})"));
  EXPECT_EQ(Json::parse(WithEndTokens("{}", {8})),
            Json::parse(R"({"eos_token_id": 8})"));
  EXPECT_FALSE(ReadEndTokens(R"({"eos_token_id": "</s>"})").ok());
}

// A training with dropout may go on elsewhere.
TEST(ModelConfigTest, DropoutIsWritten) {
  GptOptions gpt;
  gpt.dropout = 0.2;
  const std::string given = WithDropout(ConfigText("gpt2_tied"), 0.3);
  for (const char* const name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    EXPECT_EQ(Json::parse(WriteModelConfig(gpt))[name], 0.2);
    EXPECT_EQ(Json::parse(given)[name], 0.3);
  }
  // It is the job's, and no part of what a config asks for.
  const auto read = ReadModelConfig(given);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<GptOptions>(read->model).dropout, 0);
  EXPECT_THAT(read->note, HasSubstr("attn_pdrop 0.3"));
}

TEST(ModelConfigTest, TheTextsVocabularyIsAFieldOfItsOwn) {
  const std::string config = ConfigText("gpt2_tied");
  EXPECT_EQ(ReadTextsVocabulary(config), 0);
  EXPECT_EQ(WithTextsVocabulary(config, 0), config);
  const std::string said = WithTextsVocabulary(config, 20);
  EXPECT_EQ(ReadTextsVocabulary(said), 20);
  EXPECT_EQ(VocabularySize(ReadModelConfig(said)->model), 32);
  EXPECT_EQ(Json::parse(WithTextsVocabulary(said, 0)), Json::parse(config));
}

TEST(ModelConfigTest, TruncatedConfigsAreRefused) {
  const std::string whole = ConfigText("gpt2_tied");
  for (size_t n = 0; n + 2 < whole.size(); n += 7) {
    EXPECT_FALSE(ReadModelConfig(whole.substr(0, n)).ok()) << n;
  }
}

TEST(StateNamesTest, FilesOfTheModelWithoutItsHeadAndOldBuffers) {
  const NameRules gpt = StateNameRules(GptOptions());
  EXPECT_EQ(gpt.of("wte.weight").name, "transformer.wte.weight");
  EXPECT_EQ(gpt.of("h.0.attn.c_attn.bias").name,
            "transformer.h.0.attn.c_attn.bias");
  EXPECT_EQ(gpt.of("transformer.ln_f.bias").name, "transformer.ln_f.bias");
  EXPECT_EQ(gpt.of("lm_head.weight").name, "lm_head.weight");
  EXPECT_NE(gpt.of("h.0.attn.bias").left_out, "");
  EXPECT_NE(gpt.of("transformer.h.1.attn.masked_bias").left_out, "");
  EXPECT_TRUE(gpt.tied.empty());
  LlamaOptions tied;
  tied.ties_lm_head = true;
  const NameRules llama = StateNameRules(tied);
  EXPECT_EQ(llama.of("norm.weight").name, "model.norm.weight");
  EXPECT_NE(llama.of("model.layers.0.self_attn.rotary_emb.inv_freq").left_out,
            "");
  EXPECT_EQ(llama.tied.at("lm_head.weight"), "model.embed_tokens.weight");
  EXPECT_FALSE(IsWritten(tied, "lm_head.weight"));
  EXPECT_TRUE(IsWritten(LlamaOptions(), "lm_head.weight"));
}

// The folder is laid out as huggingface_hub does, with links into blobs.
TEST(HubCacheTest, TheFolderThatIsMeantIsNamed) {
  namespace fs = std::filesystem;
  const fs::path model = fs::path(testing::TempDir()) / "models--a--b";
  fs::remove_all(model);
  fs::create_directories(model / "snapshots" / "0123abc");
  EXPECT_EQ(HubCacheHint(model), "");
  std::ofstream(model / "snapshots" / "0123abc" / "config.json") << "{}";
  EXPECT_EQ(HubCacheHint(model), absl::StrCat(" (did you mean ", model.string(),
                                              "/snapshots/0123abc?)"));
  EXPECT_EQ(HubCacheHint(Folder("gpt2_tied")), "");
  EXPECT_EQ(HubCacheHint("/no/such/folder"), "");
}

}  // namespace
}  // namespace tandem
