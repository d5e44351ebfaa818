// With pickle_machine's: what opcodes do to the stack.

#include "core/pytorch_file/pickle_tree.h"

#include <caffe2/serialize/inline_container.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/pytorch_file/zip_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::pickle_tree_test {
namespace {

using caffe2::serialize::PyTorchStreamWriter;
using ::testing::HasSubstr;
using Kind = PickleNode::Kind;

bool IsOrderedDict(absl::string_view global) {
  return global == "collections.OrderedDict" || global == "a.f";
}

absl::StatusOr<PickleTree> Parsed(const std::string& opcodes) {
  return ParsePickle(absl::StrCat("\x80\x02", opcodes), IsOrderedDict);
}

std::string PickleError(const std::string& opcodes) {
  return std::string(Parsed(opcodes).status().message());
}

// Four bytes, the lowest first.
std::string Word(uint32_t number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

TEST(ParsePickleTest, ConstantsAreWhatTheyAre) {
  const auto tree = Parsed(absl::StrCat(
      "(N\x88\x89K\x05M", "\x01\x02", "J", Word(0xfffffffe), "X", Word(2),
      "hiG12345678\x8a\x01\xff", "\x8a", std::string(1, '\0'), "t."));
  ASSERT_TRUE(tree.ok()) << tree.status();
  const PickleNode& tuple = tree->Root();
  ASSERT_EQ(tuple.kind, Kind::kTuple);
  const std::pair<Kind, int64_t> expected[] = {
      {Kind::kNone, 0},  {Kind::kBool, 1}, {Kind::kBool, 0}, {Kind::kInt, 5},
      {Kind::kInt, 513}, {Kind::kInt, -2}, {Kind::kText, 0}, {Kind::kFloat, 0},
      {Kind::kInt, -1},  {Kind::kInt, 0}};
  ASSERT_EQ(tuple.items.size(), std::size(expected));
  for (size_t i = 0; i < tuple.items.size(); ++i) {
    EXPECT_EQ(tree->Item(tuple, i).kind, expected[i].first) << i;
    EXPECT_EQ(tree->Item(tuple, i).number, expected[i].second) << i;
  }
  EXPECT_EQ(tree->Item(tuple, 6).text, "hi");
}

TEST(ParsePickleTest, ContainersHoldWhatWasPut) {
  const auto tree = Parsed(
      "}K\x01]K\x02"
      "a(K\x03K\x04"
      "es.");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_EQ(tree->Root().kind, Kind::kDict);
  EXPECT_EQ(tree->Item(tree->Root(), 0).number, 1);
  const PickleNode& list = tree->Item(tree->Root(), 1);
  ASSERT_EQ(list.items.size(), 3u);
  EXPECT_EQ(tree->Item(list, 2).number, 4);
}

TEST(ParsePickleTest, ACallIsANodeAndOrderedDictADict) {
  const auto call = Parsed("ca\nf\nK\x07\x85R.");
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->Root().kind, Kind::kCall);
  EXPECT_EQ(call->Root().text, "a.f");
  EXPECT_EQ(call->Item(call->Root(), 0).number, 7);
  // Its attributes (BUILD) are dropped.
  const auto dict = Parsed("ccollections\nOrderedDict\n)RK\x01K\x02s}b.");
  ASSERT_TRUE(dict.ok()) << dict.status();
  EXPECT_EQ(dict->Root().kind, Kind::kDict);
  EXPECT_EQ(dict->Root().items.size(), 2u);
}

TEST(ParsePickleTest, AListMayHoldItself) {
  const auto tree = Parsed(
      "]q\x05h\x05"
      "a.");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(&tree->Item(tree->Root(), 0), &tree->Root());
}

TEST(ParsePickleTest, FunctionsThatAreNotKnownAreNamed) {
  EXPECT_THAT(PickleError("cos\nsystem\nX" + Word(2) + "ls\x85R."),
              HasSubstr("it asks for os.system,"));
  EXPECT_THAT(PickleError("cbuiltins\neval\n."), HasSubstr("builtins.eval"));
  // Within, unused, and behind the memo.
  EXPECT_THAT(PickleError("}(K\x01"
                          "cposix\nsystem\nu."),
              HasSubstr("posix.system"));
  EXPECT_THAT(PickleError("]q\x01"
                          "csubprocess\nPopen\nq\x01"
                          "h\x01R."),
              HasSubstr("subprocess.Popen"));
  // A known name that is not the whole name.
  EXPECT_THAT(PickleError("ca\nf.g\n)R."), HasSubstr("asks for a.f.g,"));
}

// Other opcodes call, too: INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT1.
TEST(ParsePickleTest, OpcodesThatNoStateDictNeedsAreRefused) {
  for (const std::string opcode : {"i", "o", "\x81", "\x93", "\x82"}) {
    EXPECT_THAT(PickleError("(" + opcode + "os\nsystem\n."),
                HasSubstr("which no state_dict needs"));
  }
  EXPECT_THAT(
      std::string(ParsePickle("\x80\x04N.", IsOrderedDict).status().message()),
      HasSubstr("protocol 4, expected 2"));
}

TEST(ParsePickleTest, WhatIsIncompleteIsRefused) {
  EXPECT_THAT(PickleError(""), HasSubstr("ends too early"));
  EXPECT_THAT(PickleError("N"), HasSubstr("ends too early"));
  EXPECT_THAT(PickleError("J\1\1"), HasSubstr("ends too early"));
  EXPECT_THAT(PickleError("X" + Word(0xffffffff) + "a."),
              HasSubstr("ends too early"));
  EXPECT_THAT(PickleError("cno line"), HasSubstr("no end"));
  EXPECT_THAT(PickleError("\x8a\x09"
                          "123456789."),
              HasSubstr("too large"));
}

TEST(ParsePickleTest, AStackThatLacksAValueIsRefused) {
  for (const std::string opcodes :
       {".", "\x85.", "a.", "s.", "R.", "Q.", "b.", "q\1.", "(N)(."}) {
    EXPECT_THAT(PickleError(opcodes), HasSubstr("stack is too short"))
        << opcodes;
  }
  EXPECT_THAT(PickleError("t."), HasSubstr("no mark"));
  EXPECT_THAT(PickleError("h\1."), HasSubstr("has not put away"));
  // What stands before a mark is not taken by what comes behind it.
  EXPECT_THAT(PickleError("N(\x85."), HasSubstr("stack is too short"));
}

TEST(ParsePickleTest, ValuesOfAnotherKindAreRefused) {
  EXPECT_THAT(PickleError("NNa."), HasSubstr("another kind"));
  EXPECT_THAT(PickleError("]NNs."), HasSubstr("another kind"));
  EXPECT_THAT(PickleError("NQ."), HasSubstr("another kind"));
  EXPECT_THAT(PickleError("]}b."), HasSubstr("another kind"));
  EXPECT_THAT(PickleError("N)R."), HasSubstr("no function"));
  EXPECT_THAT(PickleError("}(Nu."), HasSubstr("no value"));
}

// Few bytes that ask for much: a long tuple, as the arguments of many calls.
TEST(ParsePickleTest, MemoryIsBounded) {
  std::string opcodes = "ca\nf\nq\1(";
  opcodes.append(100000, 'N');
  opcodes += "tq\2";
  for (int i = 0; i < 1000; ++i) opcodes += "h\1h\2R";
  EXPECT_THAT(PickleError(opcodes), HasSubstr("more than 8388608 items"));
  EXPECT_THAT(PickleError(std::string(kMaxPickleNodes + 1, 'N')),
              HasSubstr("more than 2097152 values"));
}

// By LibTorch's writer, which is torch.save's.
std::string Archive(bool compressed = false) {
  const std::string path = TestPath("archive.pt");
  PyTorchStreamWriter writer(path);
  const std::string values(1000, 'v');
  writer.writeRecord("data.pkl", "abc", 3);
  writer.writeRecord("data/0", values.data(), values.size(), compressed);
  writer.writeEndOfFile();
  return ReadBytes(path);
}

absl::StatusOr<ZipDirectory> Read(const std::string& bytes) {
  WriteBytes(TestPath("changed.pt"), bytes);
  return ReadZipDirectory(*RegularFile::Open(TestPath("changed.pt")));
}

std::string DirectoryError(const std::string& bytes) {
  return std::string(Read(bytes).status().message());
}

// With `number` in the place that is `at` bytes behind the last `sign`.
template <typename Number>
std::string With(std::string bytes, const std::string& sign, size_t at,
                 Number number) {
  const size_t place = bytes.rfind(sign);
  EXPECT_NE(place, std::string::npos);
  std::memcpy(&bytes[place + at], &number, sizeof(number));
  return bytes;
}

TEST(ZipDirectoryTest, RecordsAreWhereTheyLie) {
  const std::string bytes = Archive();
  const auto directory = Read(bytes);
  ASSERT_TRUE(directory.ok()) << directory.status();
  const ZipRecord text = directory->at("archive/data.pkl");
  EXPECT_EQ(bytes.substr(text.offset, text.size), "abc");
  const ZipRecord values = directory->at("archive/data/0");
  EXPECT_EQ(bytes.substr(values.offset, values.size), std::string(1000, 'v'));
  EXPECT_EQ(text.crc32, 0x352441c2u);  // of "abc"
}

// Without the zip64 end that LibTorch writes.
TEST(ZipDirectoryTest, Zip64IsNotNeeded) {
  std::string bytes = Archive();
  const size_t end64 = bytes.rfind("PK\6\6");
  bytes.erase(end64, bytes.rfind("PK\5\6") - end64);
  EXPECT_EQ(Read(bytes)->size(), Read(Archive())->size());
}

TEST(ZipDirectoryTest, EveryTruncationIsRefused) {
  const std::string bytes = Archive();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DirectoryError(bytes.substr(0, size)), HasSubstr("truncated"));
  }
}

TEST(ZipDirectoryTest, NothingIsDecompressed) {
  const auto directory = Read(Archive(/*compressed=*/true));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(directory->at("archive/data.pkl").is_stored);
  EXPECT_FALSE(directory->at("archive/data/0").is_stored);
  EXPECT_LT(directory->at("archive/data/0").size, 1000u);
  const auto encrypted = Read(With(Archive(), "PK\1\2", 8, uint16_t{1}));
  EXPECT_FALSE(encrypted->at("archive/.data/serialization_id").is_stored);
}

TEST(ZipDirectoryTest, WhatIsNotWithinTheFileIsRefused) {
  const std::string bytes = Archive();
  const std::string entry = "PK\1\2";
  // Sizes, then the place of the local header.
  EXPECT_THAT(DirectoryError(With(With(bytes, entry, 24, uint32_t{1} << 30),
                                  entry, 20, uint32_t{1} << 30)),
              HasSubstr("is not within it"));
  EXPECT_THAT(DirectoryError(With(bytes, entry, 24, uint32_t{1})),
              HasSubstr("is not within it"));
  EXPECT_THAT(DirectoryError(With(bytes, entry, 42, uint32_t{1} << 30)),
              HasSubstr("are asked for"));
  EXPECT_THAT(DirectoryError(With(bytes, entry, 42, uint32_t{1})),
              HasSubstr("is not within it"));
  // In a zip64 field that is not there.
  EXPECT_THAT(DirectoryError(With(bytes, entry, 42, ~uint32_t{0})),
              HasSubstr("zip64 is damaged"));
  EXPECT_THAT(DirectoryError(With(bytes, "PK\6\6", 48, ~uint64_t{0})),
              HasSubstr("are asked for"));
  EXPECT_THAT(DirectoryError(With(bytes, "PK\6\6", 40, ~uint64_t{0})),
              HasSubstr("at most"));
  EXPECT_THAT(DirectoryError(With(bytes, "PK\6\7", 8, ~uint64_t{0})),
              HasSubstr("are asked for"));
}

TEST(ZipDirectoryTest, ADamagedDirectoryIsRefused) {
  const std::string bytes = Archive();
  EXPECT_THAT(DirectoryError(With(bytes, "PK\1\2", 28, ~uint16_t{0})),
              HasSubstr("directory is damaged"));
  EXPECT_THAT(DirectoryError(With(bytes, "PK\1\2", 0, 'X')),
              HasSubstr("directory is damaged"));
}

}  // namespace
}  // namespace tandem::pickle_tree_test
