// Runs a target on each file of the folders that are given, as libFuzzer does
// with -runs=0: the regression test of its corpus, with any compiler.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

namespace {

std::vector<std::string> FilesIn(const char* folder) {
  std::vector<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    files.push_back(each.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void RunOn(const std::string& path) {
  // Before it runs: a crash is then the last one's.
  std::cout << path << std::endl;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                         bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::string& path : FilesIn(argv[i])) {
      RunOn(path);
      ++inputs;
    }
  }
  std::cout << inputs << " passed, 0 failed\n";
  return inputs > 0 ? 0 : 1;
}
