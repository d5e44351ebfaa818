// With pickle_machine's: what opcodes do to the stack.

#include "core/pytorch_file/pickle_tree.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::pickle_tree_test {
namespace {

using Kind = PickleNode::Kind;
using testing::HasSubstr;

bool IsOrderedDict(absl::string_view global) {
  return global == "collections.OrderedDict" || global == "a.f";
}

absl::StatusOr<PickleTree> Parsed(const std::string& opcodes) {
  return ParsePickle(absl::StrCat("\x80\x02", opcodes), IsOrderedDict);
}

std::string ErrorOf(const std::string& opcodes) {
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
  EXPECT_THAT(ErrorOf("cos\nsystem\nX" + Word(2) + "ls\x85R."),
              HasSubstr("it asks for os.system,"));
  EXPECT_THAT(ErrorOf("cbuiltins\neval\n."), HasSubstr("builtins.eval"));
  // Within, unused, and behind the memo.
  EXPECT_THAT(ErrorOf("}(K\x01"
                      "cposix\nsystem\nu."),
              HasSubstr("posix.system"));
  EXPECT_THAT(ErrorOf("]q\x01"
                      "csubprocess\nPopen\nq\x01"
                      "h\x01R."),
              HasSubstr("subprocess.Popen"));
  // A known name that is not the whole name.
  EXPECT_THAT(ErrorOf("ca\nf.g\n)R."), HasSubstr("asks for a.f.g,"));
}

// Other opcodes call, too: INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT1.
TEST(ParsePickleTest, OpcodesThatNoStateDictNeedsAreRefused) {
  for (const std::string opcode : {"i", "o", "\x81", "\x93", "\x82"}) {
    EXPECT_THAT(ErrorOf("(" + opcode + "os\nsystem\n."),
                HasSubstr("which no state_dict needs"));
  }
  EXPECT_THAT(
      std::string(ParsePickle("\x80\x04N.", IsOrderedDict).status().message()),
      HasSubstr("protocol 4, expected 2"));
}

TEST(ParsePickleTest, WhatIsIncompleteIsRefused) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("N"), HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("J\1\1"), HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("X" + Word(0xffffffff) + "a."),
              HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("cno line"), HasSubstr("no end"));
  EXPECT_THAT(ErrorOf("\x8a\x09"
                      "123456789."),
              HasSubstr("too large"));
}

TEST(ParsePickleTest, AStackThatLacksAValueIsRefused) {
  for (const std::string opcodes :
       {".", "\x85.", "a.", "s.", "R.", "Q.", "b.", "q\1.", "(N)(."}) {
    EXPECT_THAT(ErrorOf(opcodes), HasSubstr("stack is too short")) << opcodes;
  }
  EXPECT_THAT(ErrorOf("t."), HasSubstr("no mark"));
  EXPECT_THAT(ErrorOf("h\1."), HasSubstr("has not put away"));
  // What stands before a mark is not taken by what comes behind it.
  EXPECT_THAT(ErrorOf("N(\x85."), HasSubstr("stack is too short"));
}

TEST(ParsePickleTest, ValuesOfAnotherKindAreRefused) {
  EXPECT_THAT(ErrorOf("NNa."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("]NNs."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("NQ."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("]}b."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("N)R."), HasSubstr("no function"));
  EXPECT_THAT(ErrorOf("}(Nu."), HasSubstr("no value"));
}

// Few bytes that ask for much: a long tuple, as the arguments of many calls.
TEST(ParsePickleTest, MemoryIsBounded) {
  std::string opcodes = "ca\nf\nq\1(";
  opcodes.append(100000, 'N');
  opcodes += "tq\2";
  for (int i = 0; i < 1000; ++i) opcodes += "h\1h\2R";
  EXPECT_THAT(ErrorOf(opcodes), HasSubstr("more than 8388608 items"));
  EXPECT_THAT(ErrorOf(std::string(kMaxPickleNodes + 1, 'N')),
              HasSubstr("more than 2097152 values"));
}

}  // namespace
}  // namespace tandem::pickle_tree_test
