#include "core/store/guard/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::frames_test {
namespace {

using ::testing::ElementsAre;

// What an opener of key "k" makes of these pieces; "DATA_LOSS" at the end where
// it ends with that.
std::vector<std::string> Open(const std::vector<std::string>& pieces) {
  FrameOpener opener("k");
  std::vector<std::string> messages;
  for (const std::string& piece : pieces) {
    opener.Append(piece);
    while (true) {
      const auto next = opener.Next();
      if (!next.ok()) {
        messages.push_back(absl::StatusCodeToString(next.status().code()));
        return messages;
      }
      if (!next->has_value()) break;
      messages.push_back(**next);
    }
  }
  return messages;
}

TEST(FramesTest, MessagesComeAsTheyWereSentHoweverCut) {
  FrameSealer sealer("k");
  std::string sent = sealer.Seal("");
  sent += sealer.Seal("one");
  sent += sealer.Seal(std::string(70000, 'x'));
  const auto whole = ElementsAre("", "one", std::string(70000, 'x'));
  EXPECT_THAT(Open({sent}), whole);
  std::vector<std::string> bytes;
  for (const char byte : sent) bytes.emplace_back(1, byte);
  EXPECT_THAT(Open(bytes), whole);
  EXPECT_THAT(Open({sent.substr(0, sent.size() - 1)}), ElementsAre("", "one"));
}

TEST(FramesTest, NoBitCanBeChanged) {
  const std::string sent = FrameSealer("k").Seal("message");
  for (size_t i = 4; i < sent.size(); ++i) {
    std::string other = sent;
    other[i] = static_cast<char>(other[i] ^ 0x40);
    EXPECT_THAT(Open({other}), ElementsAre("DATA_LOSS")) << i;
  }
}

TEST(FramesTest, NoMessageCanBeAddedRepeatedLeftOutOrExchanged) {
  FrameSealer sealer("k");
  const std::string a = sealer.Seal("a");
  const std::string b = sealer.Seal("b");
  EXPECT_THAT(Open({a, b}), ElementsAre("a", "b"));
  EXPECT_THAT(Open({a, a}), ElementsAre("a", "DATA_LOSS"));
  EXPECT_THAT(Open({b}), ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({b, a}), ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({FrameSealer("other").Seal("a")}), ElementsAre("DATA_LOSS"));
}

TEST(FramesTest, AGiganticLengthIsRefusedAtOnce) {
  EXPECT_THAT(Open({"\xff\xff\xff\xff"}), ElementsAre("DATA_LOSS"));
  // One more than 64 MiB; and 64 MiB, which may yet come.
  EXPECT_THAT(Open({std::string("\x01\x00\x00\x04", 4)}),
              ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({std::string("\x00\x00\x00\x04", 4)}), ElementsAre());
}

}  // namespace
}  // namespace tandem::frames_test
