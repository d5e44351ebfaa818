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
using ::testing::SizeIs;

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

TEST_F(JobMemberTest, WithoutAWholeReplicaTheJobIsLost) {
  ranks_ = 4;
  of_replica_ = 2;
  std::vector<JobMember> members = Begun();
  EXPECT_TRUE(Lose(1));
  EXPECT_FALSE(Lose(2));
  absl::Status first;
  std::thread other([&] { first = members[0].GoOn(4).status(); });
  const absl::Status last = members[3].GoOn(4).status();
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

TEST(GenerationTest, TheFirstHasAllRanks) {
  const Generation first = FirstGeneration(3);
  EXPECT_EQ(first.number, 0);
  EXPECT_THAT(first.Ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(first.PlaceOf({2, 0}), 2);
  EXPECT_EQ(first.PlaceOf({2, 1}), std::nullopt);
  EXPECT_EQ(first.Source(0), std::nullopt);
}

TEST(GenerationTest, WhoIsNeitherReadyNorDeadIsMissing) {
  Notices notices;
  notices.ready = {{0, 0, 7}};
  notices.dead = {{{2, 0}, "killed"}};
  const std::vector<Member> missing = Missing(FirstGeneration(4), notices);
  ASSERT_THAT(missing, SizeIs(2));
  EXPECT_EQ(missing[0].rank, 1);
  EXPECT_EQ(missing[1].rank, 3);
}

TEST(GenerationTest, TheReadyGoOnAndNewcomersComeIn) {
  Notices notices;
  notices.ready = {{2, 0, 5}, {0, 0, 4}};
  // Life 1 of rank 1 died before it was let in.
  notices.waiting = {{1, 1}, {1, 2}};
  notices.dead = {{{1, 0}, "killed"}, {{1, 1}, "killed"}};
  const Generation now = FirstGeneration(3);
  EXPECT_THAT(Missing(now, notices), IsEmpty());
  EXPECT_THAT(Newcomers(now, notices), SizeIs(1));

  const Generation next = NextGeneration(now, notices);
  EXPECT_EQ(next.number, 1);
  EXPECT_THAT(next.Ranks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(next.members[1].life, 2);
  EXPECT_EQ(next.members[1].step, kNoState);
  // Rank 2 has done a step that rank 0 has not.
  EXPECT_EQ(next.Source(0), 2);
  EXPECT_THAT(Newcomers(next, notices), IsEmpty());
}

TEST(GenerationTest, WhoWasReadyAndDiedDoesNotGoOn) {
  Notices notices;
  notices.ready = {{0, 0, 4}, {1, 0, 4}};
  notices.dead = {{{1, 0}, "killed"}};
  EXPECT_THAT(NextGeneration(FirstGeneration(2), notices).Ranks(),
              ElementsAre(0));
}

TEST(GenerationTest, OfEquallyManyStepsTheFirstIsTheSource) {
  Generation generation;
  generation.members = {{0, 1}, {3, 0, 6}, {4, 0, 6}};
  EXPECT_EQ(generation.Source(0), 1);
}

TEST(GenerationTest, AReplicaIsThereAsAWholeOrNotAtAll) {
  const Generation now = FirstGeneration(6, 2);
  Notices notices;
  notices.dead = {{{1, 0}, "killed"}};
  EXPECT_TRUE(HasLivingReplica(now, notices));
  notices.dead.push_back({{2, 0}, "killed"});
  EXPECT_TRUE(HasLivingReplica(now, notices));
  notices.ready = {{0, 0, 3}, {3, 0, 3}, {4, 0, 3}, {5, 0, 3}};
  notices.waiting = {{1, 1}};
  // Rank 0 is a member still.
  EXPECT_FALSE(HasNewReplica(now, notices));
  Generation next = NextGeneration(now, notices);
  EXPECT_THAT(next.Ranks(), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(next.ranks_of_replica, 2);
  EXPECT_EQ(next.Source(1), 3);

  // Rank 3 waits, and has said so twice.
  notices.waiting = {{1, 1}, {3, 0}, {3, 0}};
  EXPECT_FALSE(HasNewReplica(next, notices));
  notices.waiting.push_back({2, 1});
  EXPECT_TRUE(HasNewReplica(next, notices));

  notices.dead.push_back({{5, 0}, "killed"});
  EXPECT_FALSE(HasLivingReplica(now, notices));
}

TEST(GenerationTest, EachPartOfTheModelHasItsSource) {
  Generation generation = FirstGeneration(6, 3);
  EXPECT_FALSE(generation.HasState());
  generation.members = {{0, 0, 4, /*has_next=*/true},
                        {1, 0, 5},
                        {2, 1},
                        {3, 0, 4},
                        {4, 1},
                        {5, 0, 4}};
  EXPECT_EQ(generation.Step(), 5);
  EXPECT_EQ(generation.Source(0), 0);
  EXPECT_EQ(generation.Source(3), 0);
  EXPECT_EQ(generation.Source(4), 1);
  // Rank 5 is at step 4.
  EXPECT_EQ(generation.Source(2), std::nullopt);
  EXPECT_FALSE(generation.HasState());
  generation.members[5].has_next = true;
  EXPECT_EQ(generation.Source(2), 5);
  EXPECT_TRUE(generation.HasState());
}

TEST(GenerationTest, TextsAreReadBack) {
  const Generation generation = {
      12, 2, {{0, 0, 4000000000, /*has_next=*/true}, {6, 3, kNoState}}};
  const auto read = DecodeGeneration(Encode(generation));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->number, 12);
  EXPECT_THAT(read->Ranks(), ElementsAre(0, 6));
  EXPECT_EQ(read->ranks_of_replica, 2);
  EXPECT_EQ(read->members[0].step, 4000000000);
  EXPECT_TRUE(read->members[0].has_next);
  EXPECT_FALSE(read->members[1].has_next);
  EXPECT_EQ(read->members[1].life, 3);
  EXPECT_EQ(read->members[1].step, kNoState);
  EXPECT_EQ(DecodeGeneration(""), std::nullopt);
  EXPECT_EQ(DecodeGeneration("x"), std::nullopt);

  const std::vector<Death> deaths =
      DecodeDeaths(Encode(Death{{1, 0}, "exit code 3"}) +
                   Encode(Death{{1, 1}, ""}) + "rubbish");
  ASSERT_THAT(deaths, SizeIs(2));
  EXPECT_EQ(deaths[0].how, "exit code 3");
  EXPECT_EQ(deaths[1].process.life, 1);
  EXPECT_THAT(DecodeMembers(Encode(Member{5, 1, 2}) + "3:abc"), SizeIs(1));
}

}  // namespace
}  // namespace tandem::job_member_test
