// Adapters from the command line: in layouts, resumed, exported, generated
// with, and refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::lora_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kExport[] = "tools/export";
constexpr char kGenerate[] = "tools/generate";

std::string Given(const std::string& name) {
  return fs::absolute("tests/models/hugging_face/testdata/" + name).string();
}

class LoraTableTest : public testing::TestWithParam<SameRow> {};

TEST_P(LoraTableTest, InLayouts) { ExpectSame(GetParam()); }

std::vector<SameRow> LoraRows() {
  const std::string gpt =
      "--lora_rank=3 --lora_alpha=6 --lora_on=attn --lora_dropout=0.2 "
      "--optimizer=adamw --clip_grad_norm=0.5 ";
  const std::string same_bits = "--reproducible --microbatch_size=2 ";
  std::vector<SameRow> rows = {
      {"HaveOneDevicesBitsInEveryLayout",
       Tiny("gpt_tiny_tied", gpt + same_bits + "--ema_decay=0.9"),
       {"--nproc_per_node=2 --check_replicas_every=1",
        "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
        "--nproc_per_node=4 --pipe=2 --shard=optimizer",
        "--devices_per_rank=2 --device=sim --checkpoint_every=2",
        "--nproc_per_node=2 --devices_per_rank=2 "
        "--checkpoint_activations=always"}},
      {"InBf16HaveOneDevicesBits",
       Tiny("gpt_tiny_tied", gpt + same_bits + "--dtype=bf16"),
       {"--nproc_per_node=2 --pipe=2", "--nproc_per_node=2"}},
      {"HaveOneDevicesLosses",
       Tiny("gpt_tiny_tied", "--lora_rank=3 --lora_on=attn --optimizer=adamw"),
       {"--nproc_per_node=2 --gradient_accumulation_steps=2",
        "--strategy=data_parallel --devices_per_rank=2",
        "--loss_chunk=5 --strategy=pipeline --devices_per_rank=2",
        "--vocab_parallel=2 --strategy=pipeline --devices_per_rank=2",
        "--nproc_per_node=2 --comm_hook=allreduce",
        "--nproc_per_node=2 --static_graph"},
       SameLosses(1e-4, "step")},
      {"AreTrainedOnAServer",
       Tiny("mlp_small", "--lora_rank=2 --lora_on=fc"),
       {"--max_staleness=0"},
       HasSteps(kTinySteps),
       {"--strategy=parameter_server --nproc_per_node=2"}},
      {"OfImages",
       Tiny("resnet18", "--lora_rank=2 --lora_on=^fc --max_steps=2"),
       {"--nproc_per_node=2 --sync_batch_norm --nobroadcast_buffers"},
       HasSteps(2)},
      {"AnotherScaleIsAnotherTraining",
       Tiny("mlp_small", "--lora_rank=2 --lora_on=fc --optimizer=adam"),
       {"--lora_alpha=16", "--lora_rank=4", "--lora_on=fc1",
        "--lora_dropout=0.5",
        "--lora_rank=0 --lora_alpha=8 "
        "--lora_on=c_attn|q_proj|v_proj"},
       OtherBits}};
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Lora, LoraTableTest, testing::ValuesIn(LoraRows()),
                         RowName<SameRow>);

TEST(LoraTableTest, NoCellIsMissing) { EXPECT_EQ(CellsIn(LoraRows()), 20); }

Flags FolderJob(const std::string& from, const Flags& more = {}) {
  return Joined(Words("--dataset=tokens --context=8 --vocabulary=32 "
                      "--batch_size=8 --save_dir= --log_every=1 "
                      "--max_steps=4 --optimizer=adamw --learning_rate=0.05 "
                      "--reproducible --microbatch_size=2 "
                      "--data_dir=" +
                      NewTokens("tokens")),
                {"--init_from=" + from}, more);
}

const Flags& Adapters() {
  static const auto* const flags = new Flags{"--lora_rank=2", "--lora_alpha=6"};
  return *flags;
}

double ScoreOf(const std::string& from) {
  const Events events = RunJobForEvents(FolderJob(from, {"--eval_only"}));
  return EventsOf(events, "eval")[0]["loss"].get<double>();
}

std::string Exported(const Flags& flags) {
  const ProgramResult result = RunProgram(kExport, flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// The header of a safetensors file.
Json Header(const std::string& path) {
  const std::string text = FileContents(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  return Json::parse(text.substr(sizeof(length), length));
}

std::string GeneratedFrom(const std::string& checkpoint) {
  const ProgramResult result =
      RunProgram(kGenerate, {"--checkpoint=" + checkpoint,
                             "--prompt=\x01\x02\x03", "--temperature=0",
                             "--max_new_tokens=5", "--tokenizer=bytes"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// What PEFT reads, key by key and tensor by tensor.
void ExpectPeftFiles(const std::string& folder, const std::string& base,
                     const std::string& name) {
  const bool is_gpt = name == "gpt2_tied";
  const Json config =
      Json::parse(FileContents(folder + "/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["base_model_name_or_path"], base);
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["fan_in_fan_out"], is_gpt);
  EXPECT_EQ(config["target_modules"],
            Json::parse(is_gpt ? R"(["c_attn"])" : R"(["q_proj", "v_proj"])"));
  const Json header = Header(folder + "/adapter_model.safetensors");
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  size_t tensors = 0;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") continue;
    ++tensors;
    EXPECT_EQ(key.rfind(is_gpt ? "base_model.model.transformer.h."
                               : "base_model.model.model.layers.",
                        0),
              0u)
        << key;
    const bool is_a = key.find(".lora_A.weight") != std::string::npos;
    EXPECT_EQ(value["shape"][is_a ? 0 : 1], 2) << key;
    EXPECT_EQ(value["dtype"], "F32") << key;
  }
  EXPECT_EQ(tensors, is_gpt ? 4u : 8u);
}

TEST(LoraTest, AFolderIsTrainedOnAndExportedMergedAndAsAnAdapter) {
  for (const std::string name : {"gpt2_tied", "llama_tied_grouped"}) {
    SCOPED_TRACE(name);
    const std::string from = Given(name), saved = NewFolder("saved_" + name);
    ProgramResult program;
    const Events events = RunJobForEvents(
        FolderJob(from, Joined(Adapters(), {"--save_dir=" + saved})), &program);
    EXPECT_THAT(program.out, HasSubstr("of adapters begin anew"));
    EXPECT_THAT(program.out, Not(HasSubstr("missing")));
    const double trained = EventsOf(events, "eval")[0]["loss"];
    const double before = ScoreOf(from);
    EXPECT_GT(std::abs(trained - before), 1e-3 * before);
    const std::string merged = NewFolder("merged_" + name) + "/model";
    Exported({"--checkpoint=" + saved, "--output=" + merged});
    EXPECT_NEAR(ScoreOf(merged), trained, 1e-5 * trained);
    EXPECT_EQ(Header(merged + "/model.safetensors").dump().find("lora"),
              std::string::npos);
    EXPECT_EQ(GeneratedFrom(saved), GeneratedFrom(merged));
    const std::string adapter = NewFolder("adapter_" + name) + "/adapter";
    EXPECT_THAT(Exported({"--checkpoint=" + saved, "--output=" + adapter,
                          "--lora=adapter"}),
                HasSubstr("an adapter of rank 2"));
    ExpectPeftFiles(adapter, from, name);
    Exported({"--checkpoint=" + saved, "--output=" + adapter, "--lora=adapter",
              "--base_model=org/name"});
    ExpectPeftFiles(adapter, "org/name", name);
  }
}

TEST(LoraTest, ACheckpointIsGoneOnFromWithTheSameAdaptersAlone) {
  const std::string saved = NewFolder("resumed");
  const Flags job = FolderJob(Given("gpt2_tied"), Adapters());
  const Events straight =
      RunJobForEvents(Joined(job, {"--save_dir=" + saved, "--save_every=2"}));
  const Flags resumed = Joined(job, {"--resume=" + saved + "/step-000000002"});
  // A tied embedding lies on two ranks, frozen on both.
  for (const std::string place : {"", "--nproc_per_node=2 --pipe=2"}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(resumed, Words(place)))),
              Fingerprint(straight));
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, Words(place)))),
              Fingerprint(straight));
  }
  for (const auto& [flags, says] :
       std::vector<std::pair<std::string, std::string>>{
           {"--lora_rank=3",
            "of a job with --lora_rank=2 --lora_alpha=6 "
            "--lora_on=c_attn|q_proj|v_proj, but this one has "
            "--lora_rank=3"},
           {"--lora_alpha=2", "--lora_alpha=2"},
           {"--lora_on=c_proj", "--lora_on=c_proj"},
           {"--lora_rank=0 --lora_alpha=8", "but this one has no --lora_rank"},
           {"--lora_rank=0 --lora_alpha=8 --eval_only",
            "but this one has no --lora_rank"}}) {
    ExpectRefused(resumed, {"Other", flags, says, kAnyFailure});
  }
}

TEST(LoraTest, ACheckpointsWeightsAreABeginningWithAndWithoutAdapters) {
  const std::string saved = NewFolder("beginning");
  const Flags job = Tiny("gpt_tiny_tied");
  const Flags adapted =
      Joined(job, {"--lora_rank=2", "--lora_on=c_fc", "--optimizer=adam"});
  const Events trained =
      RunJobForEvents(Joined(adapted, {"--save_dir=" + saved}));
  const double loss = EventsOf(trained, "eval").back()["loss"];
  const Flags begin = {"--eval_only", "--init_from=" + saved};
  const auto score = [&](const Flags& flags) {
    return EventsOf(RunJobForEvents(Joined(flags, begin)), "eval")
        .back()["loss"]
        .get<double>();
  };
  EXPECT_EQ(score(adapted), loss);
  EXPECT_NEAR(score(job), loss, 1e-5 * loss);
  ExpectRefused(Joined(adapted, begin),
                {"Rank", "--lora_rank=3",
                 "has adapters of --lora_rank=2 --lora_alpha=8, but this job "
                 "has --lora_rank=3",
                 kAnyFailure});
}

TEST(LoraTest, WhatCannotBeIsRefusedByName) {
  const Flags job = Tiny("gpt_tiny_tied", "--max_steps=1");
  const Flags untied =
      Joined(job, {"--model=gpt_tiny", "--dataset=synthetic_tokens",
                   "--synthetic_shape=8"});
  const auto refused = [](const Flags& flags, const std::string& more,
                          const std::string& says) {
    ExpectRefused(flags, {"Lora", more, says, 2});
  };
  refused(job, "--lora_rank=2 --lora_on=gamma",
          "--lora_on=gamma matches no linear weight of the model, which has "
          "transformer.h.0.attn.c_attn.weight|and 8 more");
  refused(job, "--lora_rank=2 --lora_on=.",
          "--lora_on=. matches lm_head.weight, which is tied to "
          "transformer.wte.weight");
  refused(untied, "--lora_rank=2 --lora_on=. --loss_chunk=4",
          "--lora_on=. matches lm_head.weight, which the loss takes");
  refused(untied,
          "--lora_rank=2 --lora_on=. --vocab_parallel=2 --strategy=pipeline "
          "--devices_per_rank=2",
          "--lora_on=. matches lm_head.weight, which --vocab_parallel=2");
}

TEST(LoraTest, AnAdapterThatThereIsNotIsNotExported) {
  const std::string saved = NewFolder("plain");
  RunJobForEvents(SmallJob({"--max_steps=1", "--save_dir=" + saved}));
  const Flags flags = {"--checkpoint=" + saved,
                       "--output=" + NewFolder("none") + "/adapter"};
  for (const auto& [more, says] :
       std::vector<std::pair<std::string, std::string>>{
           {"--lora=adapter", "of a job without --lora_rank"},
           {"--lora=both", "expected merged or adapter"},
           {"--base_model=a", "give --lora=adapter as well"},
           {"--lora=adapter --model=gpt2", "is no whole model"},
           {"--lora=adapter --output=a.safetensors", "is two files"}}) {
    const ProgramResult result =
        RunProgram(kExport, Joined(flags, Words(more)));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(says));
  }
}

}  // namespace
}  // namespace tandem::lora_test
