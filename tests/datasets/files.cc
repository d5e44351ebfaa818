#include "tests/datasets/files.h"

#include <glog/logging.h>
#include <zlib.h>

#include <fstream>

#include "gtest/gtest.h"

namespace tandem {

std::string WriteTestFile(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  CHECK(file.good()) << path;
  return path;
}

std::string IdxBytes(const std::vector<uint32_t>& sizes,
                     const std::string& array) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (uint32_t size : sizes) {
    for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift);
  }
  return bytes + array;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  CHECK_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                        16 + MAX_WBITS, /*memLevel=*/8, Z_DEFAULT_STRATEGY),
           Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(&packed[0]);
  stream.avail_out = packed.size();
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  CHECK_EQ(deflateEnd(&stream), Z_OK);
  return packed;
}

}  // namespace tandem
