#include "core/tensorboard/record.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "leveldb/util/crc32c.h"

namespace tandem::record_test {
namespace {

std::string RecordInHex(const std::string& data) {
  std::string record;
  AppendRecord(data, &record);
  return absl::BytesToHexString(record);
}

// RFC 3720, appendix B.4.
TEST(RecordTest, TheChecksumIsCrc32C) {
  using leveldb::crc32c::Value;
  EXPECT_EQ(Value("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Value(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Value(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
}

// Bytes are those of tensorboard.summary.writer.record_writer.
TEST(RecordTest, HasTensorFlowsBytes) {
  EXPECT_EQ(RecordInHex(""), "000000000000000029039807d8ea82a2");
  EXPECT_EQ(RecordInHex("123456789"),
            "090000000000000037f97139313233343536373839e5b08ac7");
  EXPECT_EQ(RecordInHex(std::string(32, '\0')),
            "200000000000000029eda950" + std::string(64, '0') + "faffd70f");
}

TEST(RecordTest, IsAppended) {
  std::string records;
  AppendRecord("123456789", &records);
  const std::string first = records;
  AppendRecord("", &records);
  EXPECT_EQ(records.substr(0, first.size()), first);
  EXPECT_EQ(records.size(), first.size() + 16);
}

}  // namespace
}  // namespace tandem::record_test
