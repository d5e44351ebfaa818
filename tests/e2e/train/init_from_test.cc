// Weights of Hugging Face's folders: trained on in every layout, scored, gone
// on with, and written back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::init_from_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kExport[] = "tools/export";

std::string Given(const std::string& name) {
  return fs::absolute("tests/models/hugging_face/testdata/" + name).string();
}

Flags Job(const std::string& from, const Flags& more = {}) {
  return Joined(Words("--dataset=tokens --context=8 --vocabulary=32 "
                      "--batch_size=8 --save_dir= --log_every=1 "
                      "--max_steps=2 --reproducible --microbatch_size=2 "
                      "--init_from=" +
                      from),
                more);
}

// Every job's text.
Flags WithText(Flags job) {
  job.push_back("--data_dir=" + NewTokens("text"));
  return job;
}

double ScoreOf(const std::string& from, const Flags& more = {}) {
  const Events events =
      RunJobForEvents(WithText(Job(from, Joined({"--eval_only"}, more))));
  const Events scores = EventsOf(events, "eval");
  EXPECT_EQ(scores.size(), 1u);
  return scores.empty() ? 0 : scores[0]["loss"].get<double>();
}

TEST(InitFromTest, TheSameWeightsInEveryLayout) {
  for (const std::string name : {"gpt2_tied", "llama_untied_sharded"}) {
    const Flags job = WithText(Job(Given(name)));
    const std::string& said = RunOnce(job).program.out;
    EXPECT_THAT(said, HasSubstr("initial weights from"));
    EXPECT_THAT(said, HasSubstr("tensors loaded"));
    ExpectSame({name,
                job,
                {"--nproc_per_node=2", "--nproc_per_node=2 --pipe=2",
                 "--nproc_per_node=4 --pipe=2"}});
  }
}

// A folder of before transformers had safetensors.
TEST(InitFromTest, AFolderMayHaveAFileOfTorchSave) {
  const std::string files = "tests/core/pytorch_file/data/";
  const std::string folder = NewFolder("pytorch");
  const std::string weights = folder + "/pytorch_model.bin";
  fs::copy_file(Given("gpt2_tied") + "/config.json", folder + "/config.json");
  fs::copy_file(files + "gpt2_tied.bin", weights);
  const double expected = ScoreOf(Given("gpt2_tied"));
  EXPECT_EQ(ScoreOf(folder), expected);
  EXPECT_EQ(ScoreOf(folder, {"--nproc_per_node=2", "--pipe=2"}), expected);
  fs::copy_file(files + "command.pt", weights,
                fs::copy_options::overwrite_existing);
  ExpectRefused(WithText(Job(folder)),
                {"Command", "", "asks for posix.system", kAnyFailure});
  EXPECT_FALSE(fs::exists("was_executed"));
}

void Export(const Flags& flags) {
  const ProgramResult result = RunProgram(kExport, flags);
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

TEST(InitFromTest, WhatWasTrainedIsExportedAndScoresTheSame) {
  for (const std::string name : {"gpt2_tied", "gpt2_untied_sharded",
                                 "llama_tied_grouped", "llama_bf16"}) {
    const std::string saved = NewFolder("saved");
    const Events trained =
        RunJobForEvents(WithText(Job(Given(name), {"--save_dir=" + saved})));
    const std::string out = NewFolder("exported") + "/" + name;
    Export({"--checkpoint=" + saved, "--output=" + out,
            "--max_shard_size=" +
                std::string(name == "gpt2_tied" ? "5GB" : "9KB")});
    EXPECT_EQ(fs::exists(out + "/model.safetensors"), name == "gpt2_tied");
    EXPECT_EQ(ScoreOf(out), EventsOf(trained, "eval")[0]["loss"]) << name;
    EXPECT_NE(ScoreOf(out), ScoreOf(Given(name))) << name;
  }
}

// Token files that say nothing have the model's vocabulary, which is looked at
// token by token.
TEST(InitFromTest, TheModelsVocabularyIsThatOfFilesThatSayNone) {
  const Flags job = WithText(Job(Given("gpt2_tied"), {"--vocabulary=0"}));
  EXPECT_EQ(Fingerprint(RunJobForEvents(job)),
            Fingerprint(RunJobForEvents(WithText(Job(Given("gpt2_tied"))))));
  const std::string folder = NewFolder("beyond");
  for (const char* name : {"/train.bin", "/val.bin"}) {
    const std::vector<uint16_t> tokens(400, 32);
    std::ofstream(folder + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), 800);
  }
  ExpectRefused(job, {"Beyond", "--data_dir=" + folder,
                      "is 32, but the vocabulary has 32", kAnyFailure});
}

// What a folder says of generation comes through a training.
TEST(InitFromTest, WhatEndsATextIsExported) {
  const std::string from = NewFolder("ends") + "/llama";
  fs::copy(Given("llama_tied_grouped"), from, fs::copy_options::recursive);
  nlohmann::json config =
      nlohmann::json::parse(FileContents(from + "/config.json"));
  config["bos_token_id"] = 1;
  config["eos_token_id"] = {3, 4, 5};
  std::ofstream(from + "/config.json") << config.dump();
  std::ofstream(from + "/generation_config.json")
      << R"({"eos_token_id": [3, 9], "temperature": 0.6})";
  std::ofstream(from + "/tokenizer.txt") << "bytes\n";
  std::ofstream(from + "/tokenizer_config.json") << "{}";
  const std::string saved = NewFolder("ends_saved");
  RunJobForEvents(WithText(Job(from, {"--save_dir=" + saved})));
  const std::string out = NewFolder("ends_exported") + "/llama";
  Export({"--checkpoint=" + saved, "--output=" + out});
  const auto read = [&](const char* name) {
    return nlohmann::json::parse(FileContents(out + "/" + name));
  };
  EXPECT_EQ(read("config.json")["bos_token_id"], 1);
  EXPECT_EQ(read("config.json")["eos_token_id"],
            nlohmann::json::parse("[3, 4, 5, 9]"));
  EXPECT_EQ(read("generation_config.json")["eos_token_id"],
            nlohmann::json::parse("[3, 9, 4, 5]"));
  EXPECT_EQ(read("generation_config.json")["temperature"], 0.6);
  EXPECT_EQ(FileContents(out + "/tokenizer.txt"), "bytes\n");
  EXPECT_EQ(FileContents(out + "/tokenizer_config.json"), "{}");
}

TEST(InitFromTest, TheDropoutOfATrainingIsExported) {
  const std::string saved = NewFolder("dropout");
  RunJobForEvents(WithText(
      Job(Given("gpt2_tied"), {"--dropout=0.3", "--save_dir=" + saved})));
  const std::string out = NewFolder("dropout_exported") + "/gpt2";
  Export({"--checkpoint=" + saved, "--output=" + out});
  EXPECT_EQ(
      nlohmann::json::parse(FileContents(out + "/config.json"))["attn_pdrop"],
      0.3);
}

TEST(InitFromTest, AJobThatBeganSoIsResumedWithTheSameModel) {
  const std::string saved = NewFolder("resumed");
  const Flags job = WithText(Job(Given("gpt2_tied"), {"--max_steps=4"}));
  const Events straight =
      RunJobForEvents(Joined(job, {"--save_dir=" + saved, "--save_every=2"}));
  const Flags resumed = {"--resume=" + saved + "/step-000000002"};
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, resumed))),
            Fingerprint(straight));
  ExpectRefused(Joined(job, resumed),
                {"Other", "--init_from=" + Given("gpt2_untied_sharded"),
                 "with another configuration"});
}

// Two ranks wrote a part of it each.
TEST(InitFromTest, ACheckpointBecomesOneFileOfAnyModel) {
  const std::string saved = NewFolder("parts");
  const Flags job = SmallJob(
      {"--max_steps=2", "--nproc_per_node=2", "--pipe=2", "--microbatches=2"});
  const Events events = RunJobForEvents(Joined(job, {"--save_dir=" + saved}));
  const std::string file = NewFolder("one") + "/model.safetensors";
  const ProgramResult exported =
      RunProgram(kExport, {"--checkpoint=" + saved, "--output=" + file});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(RunProgram(kInspect, {file}).out, HasSubstr(Fingerprint(events)));
  for (const std::string& from : {file, saved}) {
    const Events scored =
        RunJobForEvents(SmallJob({"--eval_only", "--init_from=" + from}));
    EXPECT_EQ(Fingerprint(scored), Fingerprint(events)) << from;
  }
}

// Whereas training begins with the trained weights of a checkpoint itself.
TEST(InitFromTest, AnExportHasTheAverages) {
  const std::string saved = NewFolder("averages");
  const Flags job = SmallJob({"--max_steps=4", "--ema_decay=0.75"});
  const Events events = RunJobForEvents(Joined(job, {"--save_dir=" + saved}));
  const std::string file = NewFolder("averaged") + "/model.safetensors";
  const ProgramResult exported =
      RunProgram(kExport, {"--checkpoint=" + saved, "--output=" + file});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const Events scored =
      RunJobForEvents(SmallJob({"--eval_only", "--init_from=" + file}));
  EXPECT_EQ(EventsOf(scored, "eval").back()["loss"],
            EventsOf(events, "eval").back()["loss"]);
  EXPECT_NE(Fingerprint(scored), Fingerprint(events));
  const Events begun =
      RunJobForEvents(SmallJob({"--eval_only", "--init_from=" + saved}));
  EXPECT_EQ(Fingerprint(begun), Fingerprint(events));
}

TEST(InitFromTest, AFileIsOfTheModelThatIsNamed) {
  const std::string saved = NewFolder("file");
  const Flags small = SmallJob({"--max_steps=2", "--save_dir=" + saved});
  RunJobForEvents(small);
  RunJobForEvents(SmallJob({"--init_from=" + saved, "--max_steps=1"}));
  const std::string refused = NewFolder("refused_job") + "/saved";
  ExpectRefused(SmallJob(), {"OtherModel",
                             "--model=mlp_deep --init_from=" + saved +
                                 " --save_dir=" + refused,
                             "the tensors are not the model's", kAnyFailure});
  EXPECT_FALSE(fs::exists(refused));  // nothing was saved
  for (const char* flag : {"--init_from=", "--resume="}) {
    ExpectRefused({"--eval_only", "--dataset=synthetic"},
                  {"NoModel", flag + saved, "give --model=mlp_small"});
  }
}

// A classifier of more classes: its last layer begins anew.
TEST(InitFromTest, ATensorOfAnotherShapeIsLeftOutByName) {
  const std::string saved = NewFolder("classes");
  RunJobForEvents(SmallJob({"--max_steps=2", "--save_dir=" + saved,
                            "--model=cnn", "--synthetic_shape=1,28,28"}));
  const Flags other =
      SmallJob({"--max_steps=1", "--init_from=" + saved, "--model=cnn",
                "--synthetic_shape=1,28,28", "--synthetic_classes=7"});
  ExpectRefused(other,
                {"Classes", "", "of another shape: fc2.bias is ", kAnyFailure});
  ProgramResult said;
  RunJobForEvents(Joined(other, {"--allow_missing=fc2.*"}), &said);
  EXPECT_THAT(said.out, HasSubstr("of another shape, as allowed, and not "
                                  "loaded: fc2.bias, fc2.weight"));
}

TEST(InitFromTest, WhatIsMissingOrLeftOverPassesByName) {
  const std::string folder = NewFolder("allowed") + "/gpt2";
  fs::copy(Given("gpt2_tied"), folder, fs::copy_options::recursive);
  std::string config = FileContents(folder + "/config.json");
  config.replace(config.find("\"n_layer\": 2"), 12, "\"n_layer\": 1");
  const std::string tied = "\"tie_word_embeddings\": true";
  config.replace(config.find(tied), tied.size(),
                 "\"tie_word_embeddings\": false");
  std::ofstream(folder + "/config.json") << config;
  const Flags job = WithText(Job(folder));
  ExpectRefused(job, {"Missing", "",
                      "missing: lm_head.weight; left over: "
                      "transformer.h.1.attn.c_attn.bias, ",
                      kAnyFailure});
  ProgramResult said;
  RunJobForEvents(Joined(job, {"--allow_missing=lm_head.weight",
                               "--allow_unexpected=transformer.h.1.*"}),
                  &said);
  EXPECT_THAT(said.out, HasSubstr("16 tensors loaded; missing, as allowed: "
                                  "lm_head.weight; left over, as allowed: "));
}

TEST(InitFromTest, WhatCannotBeExportedIsRefused) {
  const std::string saved = NewFolder("unknown");
  RunJobForEvents(SmallJob({"--max_steps=1", "--save_dir=" + saved}));
  const Flags flags = {"--checkpoint=" + saved,
                       "--output=" + NewFolder("refused")};
  const std::string inside = saved + "/step-000000001/";
  for (const auto& [flag, says] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "GPT-2s and Llamas can be exported"},
           {"--model=gpt_tiny", "the tensors are not the model's"},
           {"--dtype=int8", "expected float32, bfloat16 or float16"},
           {"--max_shard_size=5TB", "a size such as 5GB"},
           {"--output=" + inside + "rank-00000.safetensors",
            "is a checkpoint, or lies in one"},
           {"--output=" + inside + "exported",
            "is a checkpoint, or lies in one"},
           {"--output=", "are both needed"}}) {
    const ProgramResult result =
        RunProgram(kExport, Joined(flags, Words(flag)));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(says));
  }
}

TEST(InitFromTest, WhatDoesNotFitIsRefused) {
  const std::string folder = NewFolder("cut") + "/gpt2";
  fs::copy(Given("gpt2_untied_sharded"), folder, fs::copy_options::recursive);
  const std::string config = FileContents(folder + "/config.json");
  const std::string wide = NewFolder("wide") + "/gpt2";
  fs::copy(folder, wide, fs::copy_options::recursive);
  std::string wider = config;
  wider.replace(wider.find("\"n_positions\": 16"), 17, "\"n_positions\": 17");
  std::ofstream(wide + "/config.json") << wider;
  fs::remove(folder + "/model-00002-of-00003.safetensors");
  for (const auto& [from, flag, says] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {folder, "", "model-00002-of-00003.safetensors"},
           {wide, "", "transformer.wpe.weight is [16, 16], expected [17, 16]"},
           {Given("gpt2_tied"), "--model=gpt2", "leave --model out"},
           {Given("gpt2_tied"), "--layers=3", "leave --layers"},
           {Given("llama_bf16"), "--dropout=0.1", "a Llama, which has no"},
           {Given("gpt2_tied"), "--context=17", "up to 16 of them"},
           {NewFolder("none"), "", "config.json"},
           {"/no/such/file", "", "/no/such/file"}}) {
    ExpectRefused(WithText(Job(from)), {"Folder", flag, says, kAnyFailure});
  }
}

}  // namespace
}  // namespace tandem::init_from_test
