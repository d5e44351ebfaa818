// The commands of docs/large_models.md as they stand there: from a Hugging Face
// folder to a hybrid job, and on with other ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/texts/documented_commands.h"
#include "tests/e2e/train/runs.h"

namespace tandem::large_models_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kText[] = "third_party/king_james_bible/king_james_bible.txt";
constexpr char kTokenizer[] = "tests/datasets/tokenizers/testdata/gpt2/";
constexpr size_t kTextBytes = 30000;

// A GPT-2 of 16 numbers a token, as a folder of its makers.
void MakeModel(const std::string& place) {
  RunIn(place, {"tools/tokenize",
                {"--tokenizer=" + Runfile(kTokenizer), "--input=book.txt",
                 "--output=first", "--validation_fraction=0.1"}});
  RunIn(place, {"tools/train",
                {"--model=gpt2", "--dataset=tokens", "--data_dir=first",
                 "--layers=2", "--width=16", "--heads=2", "--context=16",
                 "--max_steps=1", "--batch_size=4", "--save_dir=made"}});
  RunIn(place, {"tools/export", {"--checkpoint=made", "--output=MODEL"}});
}

std::string NewPlace() {
  const std::string place = NewFolder("large_models");
  std::ofstream(place + "/book.txt")
      << FileContents(Runfile(kText)).substr(0, kTextBytes);
  MakeModel(place);
  return place;
}

std::vector<DocumentedCommand> CommandsOf(const std::string& heading) {
  return CommandsBelow(heading, FileContents(Runfile("docs/large_models.md")));
}

// A step has 1e-3 instead of a thousandth of that, to be seen.
Flags Trains(const std::string& steps) {
  return {"--context=16", "--max_steps=" + steps, "--save_every=2",
          "--learning_rate=1e-3", "--log_every=1"};
}

TEST(LargeModels, AFolderIsTrainedInAHybridAndGoneOnWithInAPipeline) {
  const std::string place = NewPlace();
  const std::vector<DocumentedCommand> five =
      CommandsOf("Start from Hugging Face weights");
  ASSERT_EQ(five.size(), 5u);
  EXPECT_THAT(RunIn(place, five[0]).out, HasSubstr("transformer.wte.weight"));
  RunIn(place, five[1]);
  EXPECT_TRUE(fs::exists(place + "/book/val.bin"));
  const std::string before = RunIn(place, five[2], {"--context=16"}).out;
  EXPECT_THAT(before, HasSubstr("test: loss 10.8"));  // ln 50257
  const std::string hybrid = RunIn(place, five[3], Trains("4")).out;
  EXPECT_THAT(hybrid, HasSubstr("step 4/4"));
  EXPECT_THAT(hybrid, HasSubstr("hybrid"));
  RunIn(place, five[4]);
  EXPECT_TRUE(fs::exists(place + "/MODEL-TUNED/model.safetensors"));
  // The tokenizer has come along, by way of the tokens and the checkpoints.
  for (const std::string name : {"vocab.json", "merges.txt"}) {
    EXPECT_EQ(FileContents(place + "/MODEL-TUNED/" + name),
              FileContents(Runfile(kTokenizer + name)));
  }

  const std::vector<DocumentedCommand> on = CommandsOf("Resume and generate");
  ASSERT_EQ(on.size(), 2u);
  const std::string resumed = RunIn(place, on[0], Trains("6")).out;
  EXPECT_THAT(resumed, HasSubstr("tuned/step-000000004 at step 4"));
  EXPECT_THAT(resumed, HasSubstr("step 6/6"));
  EXPECT_THAT(RunIn(place, on[1], {"--max_new_tokens=4"}).out,
              StartsWith("Once upon a time"));

  const std::vector<DocumentedCommand> adapters = CommandsOf("LoRA");
  ASSERT_EQ(adapters.size(), 4u);
  const std::string adapted = RunIn(place, adapters[0], Trains("4")).out;
  EXPECT_THAT(adapted, HasSubstr("4 of adapters begin anew"));
  EXPECT_THAT(adapted, HasSubstr("step 4/4"));
  EXPECT_THAT(RunIn(place, adapters[1], {"--max_new_tokens=4"}).out,
              StartsWith("Once upon a time"));
  RunIn(place, adapters[2]);
  EXPECT_TRUE(fs::exists(place + "/MODEL-MERGED/model.safetensors"));
  EXPECT_EQ(FileContents(place + "/MODEL-MERGED/vocab.json"),
            FileContents(Runfile(kTokenizer) + "vocab.json"));
  RunIn(place, adapters[3]);
  EXPECT_TRUE(fs::exists(place + "/ADAPTER/adapter_model.safetensors"));
  EXPECT_THAT(FileContents(place + "/ADAPTER/adapter_config.json"),
              HasSubstr("\"r\": 8"));
}

}  // namespace
}  // namespace tandem::large_models_test
