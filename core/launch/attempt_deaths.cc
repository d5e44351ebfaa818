// What an attempt does when ranks end: goes on without one, replaces it, or
// stops the others.

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/launch/attempt.h"
#include "core/launch/launch.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"

namespace tandem {
namespace {

// The signal that asked a rank to stop, which it did, by its exit code, or
// which ended it at once, as it does while a job is set up; 0: it ended
// otherwise.
int SignalHeeded(int end) {
  const int signal = ShellExitCode(end) - 128;
  return StopsRanks(signal) ? signal : 0;
}

}  // namespace

// Where nodes are several, another one may have ranks of that kind.
bool Attempt::GoesOnWithout(const RankProcess& dead) const {
  const auto& can_be_lost = options_.can_be_lost;
  if (Stops() || agreed_ != 0 || can_be_lost == nullptr ||
      !can_be_lost(dead.rank)) {
    return false;
  }
  const auto is_left = [&](const RankProcess& each) {
    return can_be_lost(each.rank) && each.end.value_or(0) == 0;
  };
  return plan_.launch.nnodes > 1 ||
         std::any_of(ranks_.begin(), ranks_.end(), is_left);
}

// Unless the job is at its end, or the rank would refuse again what it was
// given.
bool Attempt::Replaces(RankProcess& dead) {
  if (Stops() || replacements_.most() == 0) return false;
  if (ShellExitCode(*dead.end) == options_.refusal_code) return false;
  const std::string cause = messages_->CauseOf(dead);
  const auto launch = LaunchOfRank(plan_, dead.local_rank, port_);
  if (!launch.ok()) return false;
  if (!replacements_.Allows()) {
    replacements_.NoteLast(cause);
    messages_->History(absl::StrCat("no further rank is replaced after ",
                                    replacements_.done(), "; what ended each:"),
                       replacements_.history());
    return false;
  }
  const int life = replacements_.LifeOf(dead.local_rank);
  if (!options_.lose(*launch, life, DescribeEnd(*dead.end))) return false;
  messages_->Lost(dead);
  const auto delay =
      replacements_.NoteDeath(dead.local_rank, Clock::now(), cause);
  messages_->Say(absl::StrCat("rank ", dead.rank, " is started again in ",
                              delay.count() / 1000.0, " s (replacement ",
                              replacements_.done(), " of ",
                              replacements_.most(), ")"));
  return true;
}

void Attempt::StartDue() {
  while (const std::optional<int> due = replacements_.TakeDue(Clock::now())) {
    const auto index = static_cast<size_t>(*due);
    const bool is_over = std::any_of(
        ranks_.begin(), ranks_.end(),
        [](const RankProcess& each) { return each.end.value_or(1) == 0; });
    if (Stops() || is_over) continue;
    auto started = StartRankProcess(plan_, *due, port_, argv_, *outputs_,
                                    replacements_.LifeOf(*due));
    if (started.ok()) {
      ranks_[index] = *std::move(started);
    } else {
      messages_->Say(absl::StrCat(
          "cannot start rank ", ranks_[index].rank,
          " again, the others go on without it: ", started.status().message()));
    }
  }
}

void Attempt::HandleEnds(const std::vector<RankProcess*>& ended) {
  for (RankProcess* rank : ended) {
    if (ShellExitCode(*rank->end) == 0) continue;
    if (const int signal = SignalHeeded(*rank->end);
        signal != 0 && !Stops() && agreed_ == 0) {
      FollowStop(*rank, signal);
    }
    if (GoesOnWithout(*rank)) {
      messages_->Lost(*rank);
      continue;
    }
    if (Replaces(*rank)) continue;
    const bool stopped = HasStopped(*rank);
    const bool died = !stopped && !stopping_;
    if (died || end_.exit_code == 0) NoteEnd(*rank, died);
    if (stopped) {
      messages_->Stopped(*rank,
                         end_.stop_signal != 0 ? end_.stop_signal : agreed_);
    } else if (died) {
      HandleFirstDeath(*rank);
    } else if (*rank->end != SIGTERM && *rank->end != SIGKILL) {
      messages_->EndedToo(*rank);
    }
  }
}

// Whether the rank has ended as it was asked to: where ranks stop together, by
// a signal, its own or the one that they have agreed on.
bool Attempt::HasStopped(const RankProcess& rank) const {
  if (end_.stop_signal != 0) return true;
  if (agreed_ == 0) return false;
  return WIFSIGNALED(*rank.end) ? WTERMSIG(*rank.end) == agreed_
                                : SignalHeeded(*rank.end) != 0;
}

// `died`: the attempt ends because of this, and not of what else was noted.
void Attempt::NoteEnd(RankProcess& rank, bool died) {
  end_.exit_code = ShellExitCode(*rank.end);
  end_.first_dead = rank.rank;
  if (died || end_.cause.empty()) end_.cause = messages_->CauseOf(rank);
  end_.error = WIFEXITED(*rank.end) ? messages_->LastLineOf(rank) : "";
}

// Others that were to stop after a step would wait for it.
void Attempt::HandleFirstDeath(RankProcess& dead) {
  agreed_ = 0;
  end_.makes_room = false;
  messages_->Died(dead, CountRunning(ranks_));
  StopAll();
  TellNodes(dead);
}

// While the others end. A rank that knew why has told the job itself, before.
void Attempt::TellNodes(const RankProcess& dead) {
  if (plan_.launch.nnodes == 1 || options_.tell_nodes == nullptr ||
      plan_.launch.rendezvous.kind != Rendezvous::Kind::kTcp) {
    return;
  }
  const auto launch = LaunchOfRank(plan_, dead.local_rank, port_);
  if (!launch.ok()) return;
  telling_ =
      std::thread([this, launch = *launch, how = DescribeEnd(*dead.end)] {
        options_.tell_nodes(launch, how);
      });
}

}  // namespace tandem
