// The program as a user runs it, on what train has saved.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/program.h"

namespace tandem::generate_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A program with flags as one types them.
ProgramResult RunTool(const std::string& program, const std::string& flags) {
  return RunProgram("tools/" + program,
                    absl::StrSplit(flags, ' ', absl::SkipEmpty()));
}

std::string Folder(const std::string& model) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", model);
}

class GenerateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* model : {"gpt_tiny", "gpt_tiny_tied", "llama_tiny"}) {
      Train(absl::StrCat("--model=", model, " --dataset=synthetic_tokens",
                         " --max_steps=2 --batch_size=4"),
            model);
    }
    Train(
        "--model=gpt_tiny --layers=1 --dataset=synthetic_tokens --max_steps=1",
        "resized");
    Train("--model=mlp_small --dataset=synthetic --max_steps=1", "mlp");
  }

  static void Train(const std::string& flags, const std::string& model) {
    const ProgramResult trained =
        RunTool("train", absl::StrCat(flags, " --save_dir=", Folder(model)));
    ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  }

  static std::string Text(const std::string& model, const std::string& flags) {
    const ProgramResult result =
        RunTool("generate", absl::StrCat("--checkpoint=", Folder(model),
                                         " --prompt=Hello ", flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  // What it says when it cannot.
  static std::string Error(const std::string& flags, int exit_code = 2) {
    const ProgramResult result = RunTool("generate", flags);
    EXPECT_EQ(result.exit_code, exit_code) << flags;
    EXPECT_THAT(result.err, StartsWith("generate: "));
    return result.err;
  }
};

TEST_F(GenerateTest, ContinuesThePromptByWhatTrainHasSaved) {
  for (const char* model : {"gpt_tiny", "gpt_tiny_tied", "llama_tiny"}) {
    const std::string text = Text(model, "--max_new_tokens=20 --temperature=0");
    EXPECT_THAT(text, StartsWith("Hello"));
    EXPECT_EQ(text.size(), 5u + 20 + 1) << model;
    EXPECT_EQ(Text(model, "--max_new_tokens=20 --temperature=0"), text);
  }
}

TEST_F(GenerateTest, ASeedGivesTheSameTexts) {
  const std::string flags =
      "--max_new_tokens=30 --top_k=200 --top_p=0.99 --num_samples=2 --seed=";
  const std::string text = Text("gpt_tiny", flags + "3");
  EXPECT_THAT(text, StartsWith("--- 1\nHello"));
  EXPECT_THAT(text, HasSubstr("\n--- 2\nHello"));
  EXPECT_EQ(Text("gpt_tiny", flags + "3"), text);
  EXPECT_NE(Text("gpt_tiny", flags + "4"), text);
}

TEST_F(GenerateTest, EndsWhereTheContextDoes) {
  EXPECT_EQ(Text("gpt_tiny", "--max_new_tokens=500").size(), 128u + 1);
}

TEST_F(GenerateTest, ThePromptMayStandInAFile) {
  const std::string file = absl::StrCat(std::getenv("TEST_TMPDIR"), "/prompt");
  std::ofstream(file) << "Hello";
  EXPECT_EQ(
      RunTool("generate", absl::StrCat("--checkpoint=", Folder("gpt_tiny"),
                                       " --seed=7 --prompt_file=", file))
          .out,
      Text("gpt_tiny", "--seed=7"));
}

TEST_F(GenerateTest, WhatIsWrongIsSaid) {
  const std::string gpt = "--checkpoint=" + Folder("gpt_tiny") + " ";
  EXPECT_THAT(Error("--prompt=A"), HasSubstr("--checkpoint=FILE"));
  EXPECT_THAT(Error(gpt), HasSubstr("--prompt=TEXT or --prompt_file=FILE"));
  EXPECT_THAT(Error(gpt + "--prompt_file=/nowhere"),
              HasSubstr("--prompt_file=/nowhere: it cannot be read"));
  EXPECT_THAT(Error(gpt + "--prompt=" + std::string(129, 'A')),
              HasSubstr("the prompt has 129 tokens, and the model takes 128"));
  EXPECT_THAT(Error(gpt + "--prompt=A --top_p=0"), HasSubstr("top_p 0: "));
  for (const char* useless : {"--top_k=40", "--top_p=0.9", "--seed=7"}) {
    EXPECT_THAT(
        Error(absl::StrCat(gpt, "--prompt=A --temperature=0 ", useless)),
        HasSubstr(absl::StrCat(useless, " was given, but --temperature=0 ")));
  }
  EXPECT_THAT(Error(gpt + "--prompt=A --num_samples=0"),
              HasSubstr("--num_samples=0"));
  EXPECT_THAT(Error(gpt + "--prompt=A --tokenizer=none"), HasSubstr("none"));
  EXPECT_THAT(Error(gpt + "--prompt=A B"), HasSubstr("'B' is no flag"));
  for (const char* threads : {"-3", "100000", "4294967297"}) {
    const std::string flag = absl::StrCat("--intra_op_threads=", threads);
    EXPECT_THAT(Error(gpt + "--prompt=A " + flag),
                HasSubstr(flag + ": must be from 0 to 1024"));
  }
}

TEST_F(GenerateTest, ACheckpointSaysOfWhatSizesItsModelIs) {
  const std::string flags = "--max_new_tokens=20 --temperature=0";
  const std::string text = Text("resized", flags);
  EXPECT_EQ(text.size(), 5u + 20 + 1);
  EXPECT_EQ(Text("resized", flags + " --layers=1"), text);
}

TEST_F(GenerateTest, CheckpointsThatDoNotFitAreRefused) {
  EXPECT_THAT(Error("--prompt=A --checkpoint=/nowhere"), HasSubstr("/nowhere"));
  EXPECT_THAT(Error("--prompt=A --checkpoint=tests/tools/generation/BUILD"),
              HasSubstr("tests/tools/generation/BUILD"));
  EXPECT_THAT(Error("--prompt=A --checkpoint=" + Folder("mlp")),
              HasSubstr("model 'mlp_small' is none that generates text"));
  const std::string gpt = "--prompt=A --checkpoint=" + Folder("gpt_tiny") + " ";
  EXPECT_THAT(Error(gpt + "--model=llama_tiny"), HasSubstr("model"));
  EXPECT_THAT(Error(gpt + "--layers=3"), HasSubstr("transformer.h.3"));
}

TEST_F(GenerateTest, ADamagedCheckpointIsRefused) {
  const std::string folder = Folder("damaged");
  std::filesystem::copy(
      std::filesystem::directory_iterator(Folder("gpt_tiny"))->path(), folder,
      std::filesystem::copy_options::recursive);
  const std::string file = folder + "/rank-00000.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-1000, std::ios::end);
  bytes.put('\x55');
  bytes.seekp(100000);
  bytes.put('\x55');
  bytes.close();
  EXPECT_THAT(Error("--prompt=A --checkpoint=" + folder, /*exit_code=*/1),
              HasSubstr("checksum"));
}

// From a text to a model's own, and to a folder for Hugging Face's libraries,
// without a word about the tokenizer but the first.
constexpr char kGpt2[] = "tests/datasets/tokenizers/testdata/gpt2";

std::string Place() {
  static const std::string place = testing::TempDir() + "/kept";
  return place;
}

ProgramResult RunSuccessfully(const std::string& program,
                              const std::vector<std::string>& flags) {
  ProgramResult result = RunProgram("tools/" + program, flags);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  return result;
}

std::vector<std::string> Training(const std::string& data,
                                  const std::string& saved) {
  return {"--model=gpt2",       "--layers=1",         "--width=16",
          "--heads=2",          "--dropout=0.1",      "--dataset=tokens",
          "--data_dir=" + data, "--context=16",       "--batch_size=4",
          "--max_steps=1",      "--save_dir=" + saved};
}

// GPT-2's model has 50257 tokens, and this tokenizer 901 of them.
class KeptTokenizerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::create_directories(Place());
    std::ofstream text(Place() + "/text.txt");
    for (int i = 0; i < 300; ++i) text << "Once upon a time, " << i << ".\n";
    text.close();
    RunSuccessfully("tokenize", {"--tokenizer=" + fs::absolute(kGpt2).string(),
                                 "--input=" + Place() + "/text.txt",
                                 "--output=" + Place() + "/data"});
    RunSuccessfully("train", Training(Place() + "/data", Place() + "/saved"));
  }
};

TEST_F(KeptTokenizerTest, GenerateFindsItBesideTheCheckpoints) {
  for (const std::string checkpoint : {"/saved", "/saved/step-000000001"}) {
    const ProgramResult result =
        RunSuccessfully("generate", {"--checkpoint=" + Place() + checkpoint,
                                     "--prompt=Once", "--max_new_tokens=8"});
    EXPECT_THAT(result.out, StartsWith("Once"));
  }
}

TEST_F(KeptTokenizerTest, AnotherOneOrNoneIsRefused) {
  const std::string alone = Place() + "/alone";
  fs::create_directories(alone);
  fs::copy(Place() + "/saved/step-000000001", alone + "/step-000000001",
           fs::copy_options::recursive);
  const auto error = [](const std::vector<std::string>& flags) {
    const ProgramResult result = RunProgram("tools/generate", flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error({"--checkpoint=" + alone, "--prompt=Once"}),
              AllOf(HasSubstr("no tokenizer lies beside it"),
                    HasSubstr("it has 257 tokens, but the texts that the "
                              "model has learnt from had 901")));
  EXPECT_THAT(error({"--checkpoint=" + Place() + "/saved", "--prompt=Once",
                     "--tokenizer=bytes"}),
              HasSubstr("the tokenizer bytes is not its own"));
  RunSuccessfully("generate", {"--checkpoint=" + alone, "--prompt=Once",
                               "--max_new_tokens=2",
                               "--tokenizer=" + fs::absolute(kGpt2).string()});
}

TEST_F(KeptTokenizerTest, AnExportHasItAndWhatEndsAText) {
  const std::string exported = Place() + "/exported";
  const ProgramResult result = RunSuccessfully(
      "export", {"--checkpoint=" + Place() + "/saved", "--output=" + exported});
  EXPECT_THAT(result.out, HasSubstr("with its tokenizer"));
  for (const char* const name : {"vocab.json", "merges.txt"}) {
    EXPECT_TRUE(fs::exists(absl::StrCat(exported, "/", name))) << name;
  }
  std::ifstream file(exported + "/config.json");
  const nlohmann::json config = nlohmann::json::parse(file);
  EXPECT_EQ(config["eos_token_id"], 900);
  EXPECT_EQ(config["bos_token_id"], 900);
  EXPECT_EQ(config["attn_pdrop"], 0.1);
  EXPECT_EQ(config["vocab_size"], 50257);
  EXPECT_THAT(
      RunSuccessfully("generate", {"--checkpoint=" + exported, "--prompt=Once",
                                   "--max_new_tokens=4"})
          .out,
      StartsWith("Once"));
}

TEST_F(KeptTokenizerTest, CheckpointsOfOtherTokensAreNotMixed) {
  RunSuccessfully("tokenize",
                  {"--tokenizer=bytes", "--input=" + Place() + "/text.txt",
                   "--output=" + Place() + "/bytes"});
  std::vector<std::string> flags =
      Training(Place() + "/bytes", Place() + "/saved");
  flags.emplace_back("--resume=auto");
  const ProgramResult result = RunProgram("tools/train", flags);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has another tokenizer"));
}

}  // namespace
}  // namespace tandem::generate_test
