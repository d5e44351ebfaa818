#include "core/health/job_notes.h"

#include <c10/util/intrusive_ptr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "absl/strings/str_cat.h"
#include "core/base/text_fields.h"
#include "core/health/group_failures.h"
#include "core/health/group_member.h"
#include "core/store/store.h"

namespace tandem::job_notes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(GroupMemberTest, TheJobsRanksAreCalledByTheirNumbers) {
  GroupMember member;
  member.rank = 1;
  member.size = 4;
  EXPECT_EQ(member.NameOf(3), 3);
  EXPECT_THAT(member.NamesOf({0, 2}), ElementsAre(0, 2));
  EXPECT_EQ(member.ToString(), "rank 1 of 4");
}

TEST(GroupMemberTest, ASubgroupsRanksAreCalledByTheJobsNumbers) {
  GroupMember member;
  member.rank = 1;
  member.size = 2;
  member.rank_names = {1, 3};
  EXPECT_EQ(member.NameOf(0), 1);
  EXPECT_THAT(member.NamesOf({1, 0}), ElementsAre(3, 1));
  EXPECT_EQ(member.ToString(), "rank 3 of {1, 3}");
  member.rank_names = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27};
  EXPECT_EQ(member.ToString(),
            "rank 3 of {0, 3, 6, 9, 12, 15, 18, 21 and 2 more}");
}

TEST(GroupMemberTest, GroupsOfOneNameAreToldApart) {
  GroupMember member, other;
  member.name = other.name = "pair";
  member.rank_names = {1, 3};
  other.rank_names = {0, 2};
  EXPECT_NE(member.Id(), other.Id());
  other.rank_names = {1, 3};
  EXPECT_EQ(member.Id(), other.Id());
}

// Nothing that a note holds is taken for a part of its form.
constexpr char kAwkward[] = "3:abc\" of group \"x\n12:";

FailureNote Failed() {
  FailureNote note;
  note.kind = FailureNote::Kind::kFailed;
  note.rank = 3;
  note.group = "pair";
  note.group_id = "pair/1,3";
  note.operation = "barrier #7";
  return note;
}

TEST(FailureNoteTest, SaysWhatHappened) {
  FailureNote note = Failed();
  EXPECT_EQ(note.ToString(), "rank 3 failed in barrier #7 of group \"pair\"");
  note.kind = FailureNote::Kind::kGaveUp;
  note.text = "disk full";
  EXPECT_EQ(note.ToString(), "rank 3 gave up: disk full");
  note.kind = FailureNote::Kind::kDied;
  note.text = "exit code 2";
  EXPECT_EQ(note.ToString(), "rank 3 died: exit code 2");
}

TEST(FailureNoteTest, AListGivesEachBackAsItWas) {
  FailureNote second = Failed();
  second.kind = FailureNote::Kind::kGaveUp;
  second.rank = 0;
  second.group = second.operation = second.text = kAwkward;
  const auto notes =
      DecodeFailureNotes(absl::StrCat(Failed().Encode(), second.Encode()));
  ASSERT_THAT(notes, SizeIs(2));
  EXPECT_EQ(notes[0].kind, FailureNote::Kind::kFailed);
  EXPECT_EQ(notes[0].rank, 3);
  EXPECT_EQ(notes[0].group_id, "pair/1,3");
  EXPECT_EQ(notes[1].kind, FailureNote::Kind::kGaveUp);
  EXPECT_EQ(notes[1].group, kAwkward);
  EXPECT_EQ(notes[1].operation, kAwkward);
  EXPECT_EQ(notes[1].text, kAwkward);
}

TEST(FailureNoteTest, WhatIsNoNoteIsLeftOut) {
  EXPECT_THAT(DecodeFailureNotes(""), IsEmpty());
  EXPECT_THAT(DecodeFailureNotes("rank 3 gave up"), IsEmpty());
  EXPECT_THAT(DecodeFailureNotes("99999999999:x"), IsEmpty());
  const std::string whole = Failed().Encode();
  EXPECT_THAT(DecodeFailureNotes(whole + "5:trash"), SizeIs(1));
  EXPECT_THAT(DecodeFailureNotes(whole.substr(0, whole.size() - 1)), IsEmpty());
  std::string of_another_kind;
  AppendField("1:71:3", &of_another_kind);
  EXPECT_THAT(DecodeFailureNotes(of_another_kind), IsEmpty());
}

// Each has a reason of its own, and reads no other's: rank 0, which stays for
// those that do, stays for nobody. (It would stay for an hour.)
TEST(RollCallTest, NobodyIsAwaitedWhenAllHaveGivenUp) {
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  const GroupMember zero = MemberOfWhole(store, 0, 2);
  ReportGivingUp(MemberOfWhole(store, 1, 2), "disk full");
  ReportGivingUp(zero, "no such file");
  AwaitListeners(zero, std::chrono::hours(1));
  EXPECT_EQ(FailureInJob(zero), "rank 1 gave up: disk full");
}

// Eight of ten that failed in one operation are described.
TEST(RollCallTest, OfManyFailuresSomeAreDescribed) {
  constexpr int kRanks = 11;
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  constexpr std::chrono::milliseconds kPatience(1);
  Failures told;
  for (int rank = 1; rank <= kRanks; ++rank) {
    told =
        ReportFailure(MemberOfWhole(store, rank % kRanks, kRanks), "bucket 1",
                      /*asks_job=*/false, kPatience, [] {});
  }
  EXPECT_EQ(told.others.find("rank 9 failed"), std::string::npos);
  EXPECT_NE(told.others.find("rank 8 failed in bucket 1; and 2 more"),
            std::string::npos)
      << told.others;
}

// Rank 1 looks into failures of two groups at once. It may still read the notes
// of the first when it has done with the second: rank 0 must not go.
TEST(RollCallTest, ARankHasHeardAllWithItsLastFailure) {
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  const GroupMember world = MemberOfWhole(store, 1, 2);
  GroupMember part = world;
  part.store = c10::make_intrusive<c10d::PrefixStore>("part", store);
  part.name = "part";
  const auto has_heard = [&] { return store->check({JobNoteKey("heard", 1)}); };
  constexpr std::chrono::milliseconds kPatience(100);
  ReportFailure(world, "the loss", /*asks_job=*/false, kPatience, [&] {
    ReportFailure(part, "bucket 1", /*asks_job=*/false, kPatience, [] {});
    EXPECT_FALSE(has_heard());
  });
  EXPECT_TRUE(has_heard());
}

}  // namespace
}  // namespace tandem::job_notes_test
