#include "tests/e2e/examples/example_runs.h"

#include <cstdlib>
#include <regex>

#include "gtest/gtest.h"

namespace tandem {
namespace {

const char kFingerprint[] = "[0-9a-f]{64}";
const char kNumber[] = "[0-9]+\\.[0-9]{6}";

// What the parentheses of `pattern` match in one of the text's lines; fails the
// test if no line fits.
std::smatch Match(const std::string& text, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex("\n" + pattern + "\n")))
      << pattern << " is not in:\n"
      << text;
  return match;
}

}  // namespace

std::string RestOfLine(const std::string& text, const std::string& start) {
  const std::string lines = "\n" + text;
  const size_t found = lines.find("\n" + start);
  EXPECT_NE(found, std::string::npos) << start << " is not in:\n" << text;
  if (found == std::string::npos) return "";
  const size_t begin = found + 1 + start.size();
  return lines.substr(begin, lines.find('\n', begin) - begin);
}

ExampleOutput RunExample(const std::string& program, int ranks,
                         const Flags& flags) {
  Flags all = {"--nproc_per_node=" + std::to_string(ranks)};
  all.insert(all.end(), flags.begin(), flags.end());
  Program running(program, all);
  const ProgramResult result = running.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(running.LivingProcesses().empty());
  ExampleOutput output;
  output.out = "\n" + result.out;
  const std::string weights = "(" + std::string(kFingerprint) + ")";
  const std::string number = "(" + std::string(kNumber) + ")";
  output.weights_before =
      Match(output.out, "weights before  " + weights).str(1);
  output.weights_after =
      Match(output.out, "weights after   " + weights + "  on all ranks").str(1);
  const std::smatch losses =
      Match(output.out,
            "all samples: loss " + number + " before, " + number + " after");
  output.loss_before = std::atof(losses.str(1).c_str());
  output.loss_after = std::atof(losses.str(2).c_str());
  EXPECT_NE(output.weights_after, output.weights_before);
  EXPECT_LT(output.loss_after, output.loss_before);
  return output;
}

}  // namespace tandem
