// The program on folders that transformers wrote: it goes on as transformers'
// logits say, on each device and in each precision.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/program.h"

namespace tandem::model_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kGenerate[] = "tools/generate";
constexpr int kVocabulary = 32;

std::string Given(const std::string& name) {
  return fs::absolute("tests/models/hugging_face/testdata/" + name).string();
}

struct Expected {
  std::string prompt;  // token numbers as bytes
  char next;           // of the greatest logit behind it
};

Expected ExpectedOf(const std::string& name) {
  std::ifstream file(Given(name) + "/expected.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  Expected expected;
  for (const int token : json["tokens"][0]) {
    expected.prompt += static_cast<char>(token);
  }
  const auto logits = json["logits"].get<std::vector<double>>();
  const auto last =
      logits.begin() +
      kVocabulary * static_cast<ptrdiff_t>(expected.prompt.size() - 1);
  expected.next =
      static_cast<char>(std::max_element(last, last + kVocabulary) - last);
  return expected;
}

std::string WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

// The flags of a text that goes on from the prompt by the likeliest token.
std::vector<std::string> Likeliest(const std::string& folder,
                                   const std::string& prompt) {
  const std::string file = WriteFile(testing::TempDir() + "/prompt", prompt);
  return {"--checkpoint=" + folder, "--prompt_file=" + file, "--temperature=0",
          "--max_new_tokens=1"};
}

TEST(ModelFolderTest, GoesOnAsTransformersLogitsSay) {
  for (const char* const name :
       {"gpt2_tied", "gpt2_untied_sharded", "llama_tied_grouped",
        "llama_untied_sharded", "llama_bf16"}) {
    const Expected expected = ExpectedOf(name);
    for (const char* const more :
         {"--dtype=fp32", "--dtype=fp64", "--dtype=bf16", "--dtype=bfloat16",
          "--device=sim"}) {
      std::vector<std::string> flags = Likeliest(Given(name), expected.prompt);
      flags.push_back(more);
      const ProgramResult result = RunProgram(kGenerate, flags);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(result.out, absl::StrCat(expected.prompt,
                                         std::string(1, expected.next), "\n"))
          << name << " " << more;
    }
  }
}

// The characters of byte-level BPE, by byte: visible ones are their own.
std::string CharacterOf(int byte, int& others) {
  const bool visible =
      (byte >= 33 && byte < 127) || (byte >= 161 && byte < 256 && byte != 173);
  const int character = visible ? byte : 256 + others++;
  if (character < 128) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xc0 | character >> 6),
          static_cast<char>(0x80 | (character & 0x3f))};
}

// A folder with a tokenizer of its own: letters from 'A' on, and then all else.
std::string WithTokenizer(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / "with_tokenizer";
  fs::remove_all(folder);
  fs::copy(Given(name), folder);
  nlohmann::json tokenizer;
  tokenizer["model"] = {{"type", "BPE"}, {"merges", nlohmann::json::array()}};
  int others = 0;
  int next = kVocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const int letter = byte - 'A';
    const bool known = letter >= 0 && letter < kVocabulary;
    tokenizer["model"]["vocab"][CharacterOf(byte, others)] =
        known ? letter : next++;
  }
  tokenizer["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  tokenizer["decoder"] = {{"type", "ByteLevel"}};
  WriteFile(folder / "tokenizer.json", tokenizer.dump());
  return folder;
}

TEST(ModelFolderTest, TheFoldersTokenizerIsTaken) {
  const std::string folder = WithTokenizer("llama_untied_sharded");
  const Expected bytes = ExpectedOf("llama_untied_sharded");
  std::string letters;
  for (const char token : bytes.prompt) {
    letters += static_cast<char>('A' + token);
  }
  const ProgramResult result =
      RunProgram(kGenerate, Likeliest(folder, letters));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.out,
      absl::StrCat(letters, std::string(1, static_cast<char>('A' + bytes.next)),
                   "\n"));
  // Another one that is given counts.
  std::vector<std::string> flags = Likeliest(folder, bytes.prompt);
  flags.emplace_back("--tokenizer=bytes");
  EXPECT_EQ(RunProgram(kGenerate, flags).out,
            absl::StrCat(bytes.prompt, std::string(1, bytes.next), "\n"));
}

std::string CopyOf(const std::string& name, const std::string& as) {
  const fs::path folder = fs::path(testing::TempDir()) / as;
  fs::remove_all(folder);
  fs::copy(Given(name), folder);
  return folder;
}

// Any of a list, wherever it stands: Llama 3's has three.
TEST(ModelFolderTest, EveryTokenThatEndsATextDoes) {
  const std::string name = "llama_untied_sharded";
  const Expected expected = ExpectedOf(name);
  const std::string ends =
      absl::StrCat("[31, ", static_cast<int>(expected.next), "]");
  const std::string folder = CopyOf(name, "ends");
  std::vector<std::string> flags = Likeliest(folder, expected.prompt);
  const std::string goes_on =
      absl::StrCat(expected.prompt, std::string(1, expected.next), "\n");
  EXPECT_EQ(RunProgram(kGenerate, flags).out, goes_on);
  WriteFile(folder + "/generation_config.json",
            absl::StrCat("{\"eos_token_id\": ", ends, "}"));
  EXPECT_EQ(RunProgram(kGenerate, flags).out, expected.prompt + "\n");
  fs::remove(folder + "/generation_config.json");
  std::ifstream file(folder + "/config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  config["eos_token_id"] = nlohmann::json::parse(ends);
  WriteFile(folder + "/config.json", config.dump());
  EXPECT_EQ(RunProgram(kGenerate, flags).out, expected.prompt + "\n");
  flags.emplace_back("--nostop_at_end");
  EXPECT_EQ(RunProgram(kGenerate, flags).out, goes_on);
}

TEST(ModelFolderTest, ATokenizerThatIsNotTheModelsIsRefused) {
  const std::string folder = CopyOf("gpt2_tied", "another");
  nlohmann::json tokenizer;
  tokenizer["model"] = {{"type", "BPE"}, {"merges", nlohmann::json::array()}};
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    tokenizer["model"]["vocab"][CharacterOf(byte, others)] = 100 + byte;
  }
  tokenizer["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  WriteFile(folder + "/tokenizer.json", tokenizer.dump());
  const ProgramResult result = RunProgram(kGenerate, Likeliest(folder, "a"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              HasSubstr("is not its own: it has 356 tokens, but the model "
                        "knows 32"));
}

TEST(ModelFolderTest, WhatIsWrongIsSaid) {
  const auto error = [](const std::string& folder, const std::string& more) {
    std::vector<std::string> flags = Likeliest(folder, "\x01\x02");
    flags.push_back(more);
    const ProgramResult result = RunProgram(kGenerate, flags);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  const std::string gpt = Given("gpt2_tied");
  EXPECT_THAT(error(gpt, "--model=gpt2"), HasSubstr("leave --model, --layers"));
  EXPECT_THAT(error(gpt, "--layers=3"), HasSubstr("config.json says"));
  EXPECT_THAT(error(gpt, "--dtype=int8"), HasSubstr("--dtype=int8: expected"));
  EXPECT_THAT(error(gpt, "--device=tpu"),
              HasSubstr("the device tpu is not known"));
  const fs::path empty = fs::path(testing::TempDir()) / "empty";
  fs::create_directories(empty);
  fs::copy_file(fs::path(gpt) / "config.json", empty / "config.json",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(empty, "--device=cpu"), HasSubstr("model.safetensors"));
  WriteFile(empty / "config.json", "{}");
  EXPECT_THAT(error(empty, "--device=cpu"), HasSubstr("model_type"));
}

}  // namespace
}  // namespace tandem::model_folder_test
