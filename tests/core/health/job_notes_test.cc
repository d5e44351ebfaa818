#include "core/health/job_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/text_fields.h"

namespace tandem::job_notes_test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

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

}  // namespace
}  // namespace tandem::job_notes_test
