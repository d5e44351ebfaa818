#include "tests/e2e/train/token_text.h"

#include <fstream>
#include <vector>

#include "tests/e2e/program.h"

namespace tandem {

void WriteText(const std::string& path, int words, uint32_t seed) {
  const char* const known[] = {"in ", "the ", "beginning ", "was ", "word "};
  std::string text;
  for (int i = 0; i < words; ++i) {
    seed = seed * 1664525 + 1013904223;
    text += known[(seed >> 16) % 5];
  }
  std::vector<uint16_t> tokens(text.begin(), text.end());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(2 * tokens.size()));
}

std::string NewText(const std::string& name) {
  const std::string folder = NewFolder(name);
  WriteText(folder + "/train.bin", 2000, 1);
  WriteText(folder + "/val.bin", 200, 2);
  return folder;
}

}  // namespace tandem
