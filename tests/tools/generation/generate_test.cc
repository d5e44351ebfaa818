// The program as a user runs it, on what train has saved.

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome RunShell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    output.append(buffer, n);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
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
    const Outcome trained = RunShell(absl::StrCat(
        "tools/train ", flags, " --save_dir=", Folder(model), " 2>&1"));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }

  static std::string Text(const std::string& model, const std::string& flags) {
    const Outcome outcome =
        RunShell(absl::StrCat("tools/generate --checkpoint=", Folder(model),
                              " --prompt=Hello ", flags));
    EXPECT_EQ(outcome.exit_code, 0);
    return outcome.output;
  }

  // What it says when it cannot.
  static std::string Error(const std::string& flags, int exit_code = 2) {
    const Outcome outcome =
        RunShell(absl::StrCat("tools/generate ", flags, " 2>&1 >/dev/null"));
    EXPECT_EQ(outcome.exit_code, exit_code) << flags;
    EXPECT_THAT(outcome.output, StartsWith("generate: "));
    return outcome.output;
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
  const std::string checkpoint =
      absl::StrCat("tools/generate --checkpoint=", Folder("gpt_tiny"));
  EXPECT_EQ(RunShell(checkpoint + " --seed=7 --prompt_file=" + file).output,
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
  ASSERT_EQ(
      RunShell(absl::StrCat("cp -r ", Folder("gpt_tiny"), "/step-* ", folder))
          .exit_code,
      0);
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
