// Files that tests of data sets read.

#ifndef TANDEM_TESTS_DATASETS_FILES_H_
#define TANDEM_TESTS_DATASETS_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Writes (over) a file in the test's folder; its path.
std::string WriteTestFile(const std::string& name, const std::string& bytes);

// An IDX file of unsigned bytes.
std::string IdxBytes(const std::vector<uint32_t>& sizes,
                     const std::string& array);

// `bytes` as gzip packs them.
std::string Gzip(const std::string& bytes);

}  // namespace tandem

#endif  // TANDEM_TESTS_DATASETS_FILES_H_
