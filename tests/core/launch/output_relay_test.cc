#include "core/launch/output_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::output_relay_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(fds, O_NONBLOCK), 0); }
  ~Pipe() {
    CloseWriter();
    close(fds[0]);
  }
  void CloseWriter() {
    if (fds[1] >= 0) close(fds[1]);
    fds[1] = -1;
  }
  void Write(absl::string_view text) {
    EXPECT_EQ(write(fds[1], text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  std::string Read() {
    char buffer[1 << 18];
    const ssize_t got = read(fds[0], buffer, sizeof(buffer));
    return got > 0 ? std::string(buffer, got) : "";
  }
  int fds[2];
};

class OutputRelayTest : public ::testing::Test {
 protected:
  Pipe from_;
  Pipe to_;
  OutputSink sink_{to_.fds[1]};
};

TEST_F(OutputRelayTest, PrefixesWholeLines) {
  OutputRelay relay(from_.fds[0], &sink_, "[rank 1] ", 5);
  from_.Write("one\ntw");
  relay.Pump();
  EXPECT_EQ(to_.Read(), "[rank 1] one\n");
  from_.Write("o\n\nthree");
  relay.Pump();
  EXPECT_EQ(to_.Read(), "[rank 1] two\n[rank 1] \n");
  relay.Finish();
  EXPECT_EQ(to_.Read(), "[rank 1] three\n");
  EXPECT_THAT(relay.LastLinesRead(), ElementsAre("one", "two", "three"));
}

TEST_F(OutputRelayTest, WhatIsNotReadYetComesLater) {
  const std::string line(1 << 10, 'x');
  for (int i = 0; i < 1000; ++i) sink_.WriteLine(line);
  size_t got = 0;
  while (got < 1000 * (line.size() + 1)) got += to_.Read().size();
  EXPECT_EQ(got, 1000 * (line.size() + 1));
}

TEST_F(OutputRelayTest, WhatIsNeverReadIsDroppedAndToldOf) {
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 12; ++i) sink_.WriteLine(megabyte);
  std::string text;
  while (text.find("nobody read them\n") == std::string::npos) {
    text += to_.Read();
  }
  const size_t at = text.find("\ntandem: ");
  ASSERT_NE(at, std::string::npos);
  const int64_t dropped = std::stoll(text.substr(at + 9));
  EXPECT_GE(dropped, 3 << 20);
  EXPECT_EQ(static_cast<int64_t>(at) + dropped, 12 * ((1 << 20) + 1));
}

TEST_F(OutputRelayTest, WithoutAPrefixBytesPassAsTheyCome) {
  OutputRelay relay(from_.fds[0], &sink_, "", 5);
  from_.Write("1%\r2%");
  relay.Pump();
  EXPECT_EQ(to_.Read(), "1%\r2%");
  relay.Finish();
  EXPECT_EQ(to_.Read(), "");
  EXPECT_THAT(relay.LastLinesRead(), ElementsAre("2%"));
}

TEST_F(OutputRelayTest, SeesTheEndOfTheStream) {
  OutputRelay relay(from_.fds[0], &sink_, "", 5);
  relay.Pump();
  EXPECT_EQ(relay.fd(), from_.fds[0]);
  from_.CloseWriter();
  relay.Pump();
  EXPECT_EQ(relay.fd(), -1);
}

TEST_F(OutputRelayTest, AnEndlessLineIsPassedOnInPieces) {
  ASSERT_GE(fcntl(to_.fds[1], F_SETPIPE_SZ, 1 << 18), 1 << 18);
  OutputRelay relay(from_.fds[0], &sink_, "> ", 5);
  for (int i = 0; i < 4; ++i) {
    from_.Write(std::string(16 << 10, 'x'));
    relay.Pump();
    EXPECT_EQ(to_.Read(), "");
  }
  from_.Write("y");
  relay.Pump();
  EXPECT_EQ(to_.Read(), "> " + std::string(64 << 10, 'x') + "\n");
  relay.Finish();
  EXPECT_EQ(to_.Read(), "> y\n");
}

TEST(LastLinesTest, KeepsTheLastOnes) {
  LastLines lines(2);
  lines.Add("a\nb\n\nc\n");
  EXPECT_THAT(lines.Get(), ElementsAre("b", "c"));
  lines.Add("d");
  EXPECT_THAT(lines.Get(), ElementsAre("c", "d"));
}

TEST(LastLinesTest, ACarriageReturnBeginsTheLineAnew) {
  LastLines lines(5);
  lines.Add("10%\r20%\r30%\nwindows\r\n");
  EXPECT_THAT(lines.Get(), ElementsAre("30%", "windows"));
  LastLines split(5);
  split.Add("windows\r");
  split.Add("\n");
  EXPECT_THAT(split.Get(), ElementsAre("windows"));
}

TEST(LastLinesTest, NothingWritten) {
  EXPECT_THAT(LastLines(3).Get(), IsEmpty());
}

}  // namespace
}  // namespace tandem::output_relay_test
