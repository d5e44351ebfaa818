// From a text to a model's own, and to a folder for Hugging Face's libraries,
// without a word about the tokenizer but the first.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem::kept_tokenizer_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGpt2[] = "tests/datasets/tokenizers/testdata/gpt2";

std::string Place() {
  static const std::string place = testing::TempDir() + "/kept";
  return place;
}

ProgramResult RunTool(const std::string& program,
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
    RunTool("tokenize", {"--tokenizer=" + fs::absolute(kGpt2).string(),
                         "--input=" + Place() + "/text.txt",
                         "--output=" + Place() + "/data"});
    RunTool("train", Training(Place() + "/data", Place() + "/saved"));
  }
};

TEST_F(KeptTokenizerTest, GenerateFindsItBesideTheCheckpoints) {
  for (const std::string checkpoint : {"/saved", "/saved/step-000000001"}) {
    const ProgramResult result =
        RunTool("generate", {"--checkpoint=" + Place() + checkpoint,
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
  RunTool("generate",
          {"--checkpoint=" + alone, "--prompt=Once", "--max_new_tokens=2",
           "--tokenizer=" + fs::absolute(kGpt2).string()});
}

TEST_F(KeptTokenizerTest, AnExportHasItAndWhatEndsAText) {
  const std::string exported = Place() + "/exported";
  const ProgramResult result = RunTool(
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
  EXPECT_THAT(RunTool("generate", {"--checkpoint=" + exported, "--prompt=Once",
                                   "--max_new_tokens=4"})
                  .out,
              StartsWith("Once"));
}

TEST_F(KeptTokenizerTest, CheckpointsOfOtherTokensAreNotMixed) {
  RunTool("tokenize", {"--tokenizer=bytes", "--input=" + Place() + "/text.txt",
                       "--output=" + Place() + "/bytes"});
  std::vector<std::string> flags =
      Training(Place() + "/bytes", Place() + "/saved");
  flags.emplace_back("--resume=auto");
  const ProgramResult result = RunProgram("tools/train", flags);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has another tokenizer"));
}

}  // namespace
}  // namespace tandem::kept_tokenizer_test
