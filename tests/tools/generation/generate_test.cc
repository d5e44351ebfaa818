// The program as a user runs it, on what train has saved.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem::generate_test {
namespace {

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

}  // namespace
}  // namespace tandem::generate_test
