// A FILE* that writes into memory.

#ifndef TANDEM_TESTS_CORE_PROGRAM_MEMORY_FILE_H_
#define TANDEM_TESTS_CORE_PROGRAM_MEMORY_FILE_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tandem {

class MemoryFile {
 public:
  MemoryFile() : file_(open_memstream(&data_, &size_)) {}
  ~MemoryFile() {
    std::fclose(file_);
    std::free(data_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::FILE* get() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(data_, size_);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_PROGRAM_MEMORY_FILE_H_
