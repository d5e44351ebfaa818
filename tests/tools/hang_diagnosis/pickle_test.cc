#include <string>

#include "gtest/gtest.h"
#include "tools/hang_diagnosis/pytorch_form.h"

namespace tandem::pickle_test {
namespace {

using Json = nlohmann::ordered_json;

std::string Bytes(const char* text, size_t size) { return {text, size}; }

// As pickletools.dis has Python's own protocol 2, but for the memo.
TEST(PickledTest, HasPythonsOpcodes) {
  EXPECT_EQ(Pickled(nullptr), "\x80\x02N.");
  EXPECT_EQ(Pickled(true), "\x80\x02\x88.");
  EXPECT_EQ(Pickled(false), "\x80\x02\x89.");
  EXPECT_EQ(Pickled(7), Bytes("\x80\x02J\x07\0\0\0.", 8));
  EXPECT_EQ(Pickled(-2), Bytes("\x80\x02J\xfe\xff\xff\xff.", 8));
  EXPECT_EQ(Pickled(int64_t{1} << 31),
            Bytes("\x80\x02\x8a\x08\0\0\0\x80\0\0\0\0.", 13));
  EXPECT_EQ(Pickled(-(int64_t{1} << 40)),
            Bytes("\x80\x02\x8a\x08\0\0\0\0\0\xff\xff\xff.", 13));
  EXPECT_EQ(Pickled(1.5), Bytes("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", 12));
  EXPECT_EQ(Pickled("h\xc3\xa9"), Bytes("\x80\x02X\x03\0\0\0h\xc3\xa9.", 11));
}

TEST(PickledTest, NestsListsAndDicts) {
  EXPECT_EQ(Pickled(Json::array()), "\x80\x02](e.");
  EXPECT_EQ(Pickled(Json::object()), "\x80\x02}(u.");
  EXPECT_EQ(Pickled({{"a", Json::array({1, nullptr})}}),
            Bytes("\x80\x02}(X\x01\0\0\0a](J\x01\0\0\0Neu.", 21));
}

}  // namespace
}  // namespace tandem::pickle_test
