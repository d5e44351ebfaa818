#include "core/launch/restarts.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/launch/output_relay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::restarts_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RestartsTest, DelaysDoubleUpToAMinute) {
  const Restarts restarts(100, milliseconds(1500));
  EXPECT_EQ(restarts.DelayBefore(1), milliseconds(1500));
  EXPECT_EQ(restarts.DelayBefore(2), milliseconds(3000));
  EXPECT_EQ(restarts.DelayBefore(5), milliseconds(24000));
  EXPECT_EQ(restarts.DelayBefore(6), milliseconds(48000));
  EXPECT_EQ(restarts.DelayBefore(7), milliseconds(60000));
  EXPECT_EQ(restarts.DelayBefore(1000000), milliseconds(60000));
}

TEST(RestartsTest, NoDelayStaysNone) {
  const Restarts restarts(3, milliseconds(0));
  EXPECT_EQ(restarts.DelayBefore(1), milliseconds(0));
  EXPECT_EQ(restarts.DelayBefore(3), milliseconds(0));
}

TEST(RestartsTest, AllowsAsManyAsItWasTold) {
  const Restarts none(0, milliseconds(1));
  EXPECT_TRUE(none.Allows(0));
  EXPECT_FALSE(none.Allows(1));
  const Restarts three(3, milliseconds(1));
  EXPECT_TRUE(three.Allows(3));
  EXPECT_FALSE(three.Allows(4));
}

TEST(RestartsTest, RemembersWhatEndedEachAttempt) {
  Restarts restarts(2, milliseconds(1));
  restarts.NoteEnd(0, milliseconds(12340), "rank 1 died");
  restarts.NoteChange("goes on with 1 rank");
  restarts.NoteEnd(1, milliseconds(40), "rank 0 died");
  EXPECT_THAT(restarts.history(),
              ElementsAre("attempt 1 of 3, after 12.3 s: rank 1 died; goes "
                          "on with 1 rank",
                          "attempt 2 of 3, after 0.0 s: rank 0 died"));
}

const Replacements::Clock::time_point kStart{};

TEST(ReplacementsTest, NoneAreAllowedWithoutAny) {
  EXPECT_FALSE(Replacements(0, seconds(1)).Allows());
}

TEST(ReplacementsTest, AllRanksTogetherHaveSoMany) {
  Replacements replacements(2, seconds(1));
  EXPECT_EQ(replacements.NoteDeath(1, kStart, "first"), seconds(1));
  EXPECT_TRUE(replacements.Allows());
  EXPECT_EQ(replacements.NoteDeath(0, kStart, "second"), seconds(2));
  EXPECT_FALSE(replacements.Allows());
  replacements.NoteLast("third");
  EXPECT_EQ(replacements.done(), 2);
  EXPECT_THAT(replacements.history(), ElementsAre("first", "second", "third"));
}

TEST(ReplacementsTest, ARankIsDueOnceAfterItsDelay) {
  Replacements replacements(9, milliseconds(100));
  EXPECT_EQ(replacements.NextDue(), std::nullopt);
  replacements.NoteDeath(4, kStart, "");
  replacements.NoteDeath(2, kStart, "");
  EXPECT_EQ(replacements.NextDue(), kStart + milliseconds(100));
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(99)), std::nullopt);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), 4);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), 2);
  EXPECT_EQ(replacements.TakeDue(kStart + milliseconds(300)), std::nullopt);
}

TEST(ReplacementsTest, LivesAreCountedByRank) {
  Replacements replacements(9, seconds(1));
  replacements.NoteDeath(1, kStart, "");
  replacements.NoteDeath(1, kStart, "");
  replacements.NoteDeath(0, kStart, "");
  EXPECT_EQ(replacements.RankLife(0), 1);
  EXPECT_EQ(replacements.RankLife(1), 2);
  EXPECT_EQ(replacements.RankLife(7), 0);
}

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

// Somebody who writes into a pipe waits for its reader, and loses nothing: so
// does a rank that writes through the launcher.
TEST_F(OutputRelayTest, WhoReadsSlowlyGetsEverything) {
  constexpr size_t kAll = 24 << 20;
  constexpr int kSlower = 8;
  std::string all;
  for (int i = 0; all.size() < kAll; ++i) absl::StrAppend(&all, i, "\n");
  OutputRelay relay(from_.fds[0], &sink_, "", 5);
  std::string got;
  size_t written = 0;
  for (int turn = 0; got.size() < all.size(); ++turn) {
    const absl::string_view left = absl::string_view(all).substr(written);
    const ssize_t now = write(from_.fds[1], left.data(), left.size());
    if (now > 0) written += now;
    relay.Pump();
    const std::string some = turn % kSlower == 0 ? to_.Read() : "";
    ASSERT_EQ(some.find("nobody read them"), std::string::npos);
    got += some;
  }
  EXPECT_TRUE(got == all);
}

TEST_F(OutputRelayTest, OneThatReadsNothingHoldsNobodyUp) {
  OutputRelay relay(from_.fds[0], &sink_, "", 5);
  for (int i = 0; i < 6; ++i) sink_.WriteLine(std::string(1 << 20, 'x'));
  EXPECT_TRUE(relay.IsHeldUp());
  from_.Write("more");
  relay.Pump();
  EXPECT_THAT(relay.LastLinesRead(), IsEmpty());
  absl::SleepFor(absl::Seconds(3));
  EXPECT_FALSE(relay.IsHeldUp());
  relay.Pump();
  EXPECT_THAT(relay.LastLinesRead(), ElementsAre("more"));
  // The sink's thread is to write nothing into the next test's pipe.
  std::string all;
  while (!absl::EndsWith(all, "more")) all += to_.Read();
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

TEST_F(OutputRelayTest, TellsWhichLinesAreOutOfSight) {
  OutputRelay relay(from_.fds[0], &sink_, "[rank 1] ", 5);
  from_.Write("what led to it\nan error\nof two lines\n");
  relay.Pump();
  EXPECT_THAT(relay.LastLinesOutOfSight(), IsEmpty());
  for (int i = 0; i < 6; ++i) sink_.WriteLine("another rank's");
  EXPECT_THAT(relay.LastLinesOutOfSight(), ElementsAre("what led to it"));
  for (int i = 0; i < 2; ++i) sink_.WriteLine("another rank's");
  EXPECT_THAT(relay.LastLinesOutOfSight(),
              ElementsAre("what led to it", "an error", "of two lines"));
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

TEST(OutputSinkTest, StderrSaysOnceThatItsOutputGoesNowhere) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  testing::internal::CaptureStderr();
  {
    OutputSink sink(full);
    sink.WriteLine("one");
    sink.WriteLine("two");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tandem: what is printed goes nowhere (No space left on device); "
            "ranks go on\n");
  close(full);
}

TEST_F(OutputRelayTest, APipeHasAReaderAFileHasNone) {
  EXPECT_TRUE(sink_.has_reader());
  const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_FALSE(OutputSink(file).has_reader());
  close(file);
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
}  // namespace tandem::restarts_test
