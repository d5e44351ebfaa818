// Files of tests: under the test's temporary folder, and their bytes.

#ifndef TANDEM_TESTS_CORE_TESTING_TEST_FILES_H_
#define TANDEM_TESTS_CORE_TESTING_TEST_FILES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tandem {

inline std::string TestPath(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

// An empty folder, whatever was there.
inline std::string NewTestFolder(const std::string& name) {
  std::filesystem::remove_all(TestPath(name));
  std::filesystem::create_directories(TestPath(name));
  return TestPath(name);
}

inline std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::filesystem::path& path,
                       const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_TEST_FILES_H_
