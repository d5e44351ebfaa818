// Members of a job on a store that a launcher, here the test, serves: threads
// instead of processes, which die by what the launcher says of them.

#include "core/replace/job_member.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/replace/membership.h"
#include "core/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::job_member_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kTimeout = std::chrono::seconds(60);

class JobMemberTest : public testing::Test {
 protected:
  void SetUp() override {
    auto served = ServeTcpStore("127.0.0.1", 0, kTimeout);
    ASSERT_TRUE(served.ok()) << served.status();
    served_ = *served;
  }

  Launch LaunchOf(int rank) const {
    Launch launch;
    launch.rank = rank;
    launch.world_size = ranks_;
    launch.rendezvous.kind = Rendezvous::Kind::kTcp;
    launch.rendezvous.host = "127.0.0.1";
    launch.rendezvous.port = served_.port;
    launch.rendezvous.served_by_launcher = true;
    launch.rendezvous.key_prefix = "tandem/attempt_0/";
    return launch;
  }

  JobMember Make(int rank, int life = 0, milliseconds timeout = kTimeout) {
    auto member = JobMember::Create(LaunchOf(rank), life, timeout, of_replica_);
    EXPECT_TRUE(member.ok()) << member.status();
    return *std::move(member);
  }

  // All ranks, in the first generation, which has begun.
  std::vector<JobMember> Begun() {
    std::vector<JobMember> members;
    for (int rank = 0; rank < ranks_; ++rank) members.push_back(Make(rank));
    for (JobMember& each : members) {
      EXPECT_EQ(each.Enter(), absl::StatusOr<bool>(true));
      EXPECT_TRUE(each.NoteBegun().ok());
    }
    return members;
  }

  bool Lose(int rank, int life = 0) {
    return NoteLostRank(LaunchOf(rank), life, "killed").value();
  }

  int ranks_ = 3;
  int of_replica_ = 1;
  HostedStore served_;
};

using Calls = std::vector<std::function<absl::StatusOr<bool>()>>;

// At the same time; all are to go on.
void GoOn(const Calls& calls) {
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back(
        [&call] { EXPECT_EQ(call(), absl::StatusOr<bool>(true)); });
  }
  for (std::thread& each : threads) each.join();
}

TEST_F(JobMemberTest, GoesOnWithoutOneAndTakesItInAgain) {
  std::vector<JobMember> members = Begun();
  EXPECT_FALSE(members[0].HasEnded(milliseconds(0)).value());
  ASSERT_TRUE(Lose(1));
  EXPECT_TRUE(members[2].HasEnded(milliseconds(0)).value());
  GoOn(
      {[&] { return members[0].GoOn(4); }, [&] { return members[2].GoOn(5); }});
  for (const int rank : {0, 2}) {
    const JobMember& member = members[static_cast<size_t>(rank)];
    EXPECT_THAT(member.generation().Ranks(), ElementsAre(0, 2));
    EXPECT_THAT(member.lost(), ElementsAre("rank 1 (killed)"));
    EXPECT_EQ(member.generation().Source(0), 1);  // rank 2
    const Launch now = member.LaunchNow();
    EXPECT_EQ(now.rank, rank / 2);
    EXPECT_EQ(now.world_size, 2);
    EXPECT_EQ(now.rendezvous.key_prefix, "tandem/attempt_0/generation_1/");
  }

  EXPECT_FALSE(members[0].HasWaitingReplica().value());
  JobMember back = Make(1, /*life=*/1);
  GoOn({[&] { return back.Enter(); },
        [&] {
          while (!members[0].HasWaitingReplica().value()) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          return members[0].GoOn(9);
        },
        [&] { return members[2].GoOn(9); }});
  EXPECT_THAT(back.generation().Ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(back.generation().number, 2);
  EXPECT_EQ(back.generation().Source(0), 0);
  EXPECT_THAT(members[0].lost(), ElementsAre());
  EXPECT_FALSE(members[2].HasWaitingReplica().value());
}

// Ranks 0 and 1 have one replica, ranks 2 and 3 another.
TEST_F(JobMemberTest, AReplicaComesBackAsAWhole) {
  ranks_ = 4;
  of_replica_ = 2;
  std::vector<JobMember> members = Begun();
  ASSERT_TRUE(Lose(1));
  JobMember back = Make(1, /*life=*/1);
  absl::Notification is_decided;
  GoOn({[&] { return members[0].GoOn(5); },
        [&]() -> absl::StatusOr<bool> {
          TANDEM_ASSIGN_OR_RETURN(const bool is_in,
                                  members[2].GoOn(4, /*has_next=*/true));
          EXPECT_TRUE(is_in);
          EXPECT_THAT(members[2].generation().Ranks(), ElementsAre(2, 3));
          EXPECT_THAT(members[2].lost(), ElementsAre("rank 1 (killed)"));
          EXPECT_THAT(members[2].left_out(), ElementsAre(0));
          // Rank 3 is at step 5, which rank 2 can do, too.
          EXPECT_EQ(members[2].generation().Step(), 5);
          EXPECT_EQ(members[2].generation().Source(0), 0);
          EXPECT_EQ(members[2].generation().Source(1), 1);
          // Rank 0 alone is none.
          EXPECT_FALSE(members[2].HasWaitingReplica().value());
          is_decided.Notify();
          while (!members[2].HasWaitingReplica().value()) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          return members[2].GoOn(9);
        },
        [&]() -> absl::StatusOr<bool> {
          TANDEM_RETURN_IF_ERROR(members[3].GoOn(5).status());
          return members[3].GoOn(9);
        },
        [&]() -> absl::StatusOr<bool> {
          is_decided.WaitForNotification();
          return back.Enter();
        }});
  for (const JobMember* each : {&members[0], &back, &members[2], &members[3]}) {
    EXPECT_THAT(each->generation().Ranks(), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(each->generation().Step(), 9);
    EXPECT_EQ(each->generation().Source(0), 2);
    EXPECT_EQ(each->generation().Source(1), 3);
    EXPECT_THAT(each->lost(), IsEmpty());
    EXPECT_THAT(each->left_out(), IsEmpty());
  }
}

TEST_F(JobMemberTest, WhatIsLeftOfTwoReplicasMakesOne) {
  ranks_ = 4;
  of_replica_ = 2;
  std::vector<JobMember> members = Begun();
  EXPECT_TRUE(Lose(1));
  EXPECT_TRUE(Lose(2));
  GoOn(
      {[&] { return members[0].GoOn(4); }, [&] { return members[3].GoOn(4); }});
  EXPECT_THAT(members[3].generation().Ranks(), ElementsAre(0, 3));
  EXPECT_EQ(members[3].LaunchNow().rank, 1);
  EXPECT_THAT(members[3].left_out(), IsEmpty());
}

TEST_F(JobMemberTest, WithoutAWholeReplicaTheJobIsLost) {
  ranks_ = 4;
  of_replica_ = 2;
  std::vector<JobMember> members = Begun();
  EXPECT_TRUE(Lose(1));
  EXPECT_FALSE(Lose(3));
  absl::Status first;
  std::thread other([&] { first = members[0].GoOn(4).status(); });
  const absl::Status last = members[2].GoOn(4).status();
  other.join();
  for (const absl::Status& each : {first, last}) {
    EXPECT_TRUE(absl::IsUnavailable(each)) << each;
    EXPECT_THAT(std::string(each.message()), HasSubstr("left whole"));
  }
}

// It is written down as a member before its launcher says that it has died.
TEST_F(JobMemberTest, OneThatDiesAsItIsLetInIsLeftOutOfTheNext) {
  std::vector<JobMember> members = Begun();
  ASSERT_TRUE(Lose(0));
  GoOn(
      {[&] { return members[1].GoOn(1); }, [&] { return members[2].GoOn(1); }});
  MembershipStore board(c10::make_intrusive<c10d::PrefixStore>(
      "tandem/attempt_0/", served_.store));
  board.NoteWaiting({0, 1});
  ASSERT_TRUE(members[1].HasWaitingReplica().value());
  Generation with = NextGeneration(members[1].generation(),
                                   {{{1, 0, 2}, {2, 0, 2}}, {{0, 1}}, {}});
  const Generation now = members[1].generation();
  board.Follow(&now, with);
  ASSERT_TRUE(Lose(0, /*life=*/1));
  GoOn(
      {[&] { return members[1].GoOn(2); }, [&] { return members[2].GoOn(2); }});
  EXPECT_THAT(members[1].generation().Ranks(), ElementsAre(1, 2));
  EXPECT_EQ(members[1].generation().number, 3);
}

TEST_F(JobMemberTest, OneThatNeitherComesNorDiesIsNamed) {
  std::vector<JobMember> members = Begun();
  // It connects within the same time.
  JobMember hasty = Make(0, 0, std::chrono::seconds(2));
  ASSERT_TRUE(hasty.Enter().value());
  ASSERT_TRUE(Lose(1));
  const absl::Status status = hasty.GoOn(1).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("not heard of: rank 2, "));
}

TEST_F(JobMemberTest, NobodyGoesOnBeforeTheJobHasBegunOrAtItsEnd) {
  EXPECT_FALSE(Lose(2));
  std::vector<JobMember> members;
  for (int rank = 0; rank < 2; ++rank) {
    members.push_back(Make(rank));
    ASSERT_TRUE(members.back().Enter().value());
    ASSERT_TRUE(members.back().NoteBegun().ok());
  }
  ASSERT_TRUE(members[0].NoteFinished().ok());
  EXPECT_FALSE(Lose(1));
  EXPECT_FALSE(members[0].GoOn(3).value());
  EXPECT_FALSE(Make(1, /*life=*/1).Enter().value());
}

TEST_F(JobMemberTest, WithTheLastThatHasAStateTheJobIsLost) {
  std::vector<JobMember> members = Begun();
  ASSERT_TRUE(Lose(1));
  ASSERT_TRUE(Lose(2));
  EXPECT_FALSE(Lose(0));
  const absl::Status status = members[0].GoOn(kNoState).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(JobMemberTest, NeedsALauncherThatServesTheStore) {
  Launch launch = LaunchOf(0);
  launch.rendezvous.served_by_launcher = false;
  EXPECT_TRUE(
      absl::IsInvalidArgument(JobMember::Create(launch, 0, kTimeout).status()));
}

TEST(LifeOfTest, IsWhatTheLauncherSays) {
  Environment environment;
  EXPECT_EQ(RankLife(environment).value(), 0);
  environment.Set("TANDEM_RANK_LIFE", "3");
  EXPECT_EQ(RankLife(environment).value(), 3);
  for (const char* wrong : {"-1", "x"}) {
    environment.Set("TANDEM_RANK_LIFE", wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(RankLife(environment).status()));
  }
}

}  // namespace
}  // namespace tandem::job_member_test
