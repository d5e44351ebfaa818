#include "tests/e2e/texts/documented_commands.h"

#include <glog/logging.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

constexpr char kFence[] = "\n```";

std::string BlockBelow(const std::string& heading, const std::string& page) {
  const size_t section = page.find("\n## " + heading + "\n");
  CHECK(section != std::string::npos) << "no heading " << heading;
  const size_t fence = page.find(kFence, section);
  CHECK(fence != std::string::npos) << "no code below " << heading;
  const size_t begin = page.find('\n', fence + 1) + 1;
  const size_t end = page.find(kFence, begin);
  CHECK(end != std::string::npos) << "code without an end below " << heading;
  return page.substr(begin, end - begin);
}

std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c != ' ' || quoted) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, ""));
    }
  }
  CHECK(!quoted) << line;
  if (!word.empty()) words.push_back(word);
  return words;
}

DocumentedCommand Parsed(const std::string& line) {
  std::vector<std::string> words = Words(line);
  CHECK(words.size() >= 4 && words[0] == "bazel" && words[1] == "run" &&
        absl::StartsWith(words[2], "//") && words[3] == "--")
      << line;
  DocumentedCommand command;
  command.program =
      absl::StrReplaceAll(absl::StripPrefix(words[2], "//"), {{":", "/"}});
  command.arguments.assign(words.begin() + 4, words.end());
  return command;
}

}  // namespace

std::vector<DocumentedCommand> CommandsBelow(const std::string& heading,
                                             const std::string& page) {
  const std::string block =
      absl::StrReplaceAll(BlockBelow(heading, page), {{"\\\n", " "}});
  std::vector<DocumentedCommand> commands;
  for (const absl::string_view line :
       absl::StrSplit(block, '\n', absl::SkipWhitespace())) {
    commands.push_back(Parsed(std::string(line)));
  }
  return commands;
}

std::string Runfile(const std::string& path) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/",
                      path);
}

ProgramResult RunIn(const std::string& place, DocumentedCommand command,
                    const std::vector<std::string>& more) {
  ProgramOptions options;
  options.environment["BUILD_WORKING_DIRECTORY"] = place;  // as Bazel says it
  options.timeout = std::chrono::seconds(600);
  command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  ProgramResult result =
      RunProgram(command.program, command.arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  return result;
}

}  // namespace tandem
