#include "core/launch/attempt.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"

namespace tandem {

Attempt::Attempt(const LaunchPlan& plan, int port,
                 const LauncherOptions& options, SignalPipe* signals,
                 LauncherMessages* messages, const ElasticNode* node)
    : plan_(plan),
      port_(port),
      options_(options),
      signals_(signals),
      messages_(messages),
      node_(node),
      replacements_(options.max_replacements, options.restart_delay) {}

Attempt::~Attempt() {
  if (telling_.joinable()) telling_.join();
}

absl::Status Attempt::Start(const std::vector<std::string>& argv,
                            const RankOutputs& outputs) {
  argv_ = argv;
  outputs_ = outputs;
  for (int i = 0; i < plan_.launch.local_world_size; ++i) {
    TANDEM_ASSIGN_OR_RETURN(RankProcess rank,
                            StartRankProcess(plan_, i, port_, argv, outputs));
    ranks_.push_back(std::move(rank));
    ++end_.started;
  }
  return absl::OkStatus();
}

AttemptEnd Attempt::Run() {
  while (CountRunning(ranks_) > 0) {
    AwaitEvents();
    HandleSignals();
    FollowOrder();
    for (RankProcess& rank : ranks_) {
      rank.out.Pump();
      rank.err.Pump();
    }
    HandleEnds(TakeEnded(ranks_));
    StartDue();
    KillWhenOverdue();
  }
  for (RankProcess& rank : ranks_) {
    rank.out.Finish();
    rank.err.Finish();
  }
  return end_;
}

// Milliseconds until something is due; -1: until something happens.
int Attempt::PollTimeout() const {
  if (node_ != nullptr) return 100;  // for its orders
  std::optional<Clock::time_point> next = replacements_.NextDue();
  if (kill_at_) next = std::min(next.value_or(*kill_at_), *kill_at_);
  if (!next.has_value()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      *next - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count() + 1));
}

void Attempt::AwaitEvents() {
  std::vector<pollfd> fds = {{signals_->fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const int fd : {rank.out.fd(), rank.err.fd()}) {
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(), PollTimeout());
}

void Attempt::HandleSignals() {
  while (const std::optional<int> signal = signals_->Next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal == SIGTSTP) {
      Suspend();
    } else if (!StopsRanks(*signal)) {
      SignalRunning(ranks_, *signal);
    } else if (end_.stop_signal == 0) {
      Stop(*signal);
    } else if (KillsRanks(*signal)) {
      kill_at_ = Clock::now();
    }
  }
}

void Attempt::Stop(int signal) {
  end_.stop_signal = signal;
  messages_->Say(
      absl::StrCat(SignalName(signal), " passed on to the ranks",
                   KillsRanks(signal) ? "; a second one kills them" : ""));
  SignalRunning(ranks_, signal);
  if (!KillsRanks(signal)) return;
  // Ranks that are being stopped because one died get no more time.
  const Clock::time_point at = Clock::now() + options_.stop_grace;
  kill_at_ = std::min(kill_at_.value_or(at), at);
}

// Ctrl-Z: the ranks, in groups of their own, do not get it from the terminal.
void Attempt::Suspend() {
  SignalRunning(ranks_, SIGTSTP);
  raise(SIGSTOP);  // until the shell's fg or bg
  SignalRunning(ranks_, SIGCONT);
}

// Where nodes are several, another one may have ranks of that kind.
bool Attempt::GoesOnWithout(const RankProcess& dead) const {
  const auto& can_be_lost = options_.can_be_lost;
  const bool stops = stopping_ || end_.stop_signal != 0;
  if (stops || can_be_lost == nullptr || !can_be_lost(dead.rank)) return false;
  const auto is_left = [&](const RankProcess& each) {
    return can_be_lost(each.rank) && each.end.value_or(0) == 0;
  };
  return plan_.launch.nnodes > 1 ||
         std::any_of(ranks_.begin(), ranks_.end(), is_left);
}

// Unless the job is at its end, or the rank would refuse again what it was
// given.
bool Attempt::Replaces(RankProcess& dead) {
  const bool stops = stopping_ || end_.stop_signal != 0;
  if (stops || replacements_.most() == 0) return false;
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
    const bool stops = stopping_ || end_.stop_signal != 0;
    const bool is_over = std::any_of(
        ranks_.begin(), ranks_.end(),
        [](const RankProcess& each) { return each.end.value_or(1) == 0; });
    if (stops || is_over) continue;
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
    const int code = ShellExitCode(*rank->end);
    if (code == 0) continue;
    if (GoesOnWithout(*rank)) {
      messages_->Lost(*rank);
      continue;
    }
    if (Replaces(*rank)) continue;
    if (end_.exit_code == 0) {
      end_.exit_code = code;
      end_.first_dead = rank->rank;
      if (end_.cause.empty()) end_.cause = messages_->CauseOf(*rank);
    }
    if (end_.stop_signal != 0) {
      messages_->Stopped(*rank, end_.stop_signal);
    } else if (end_.makes_room) {
      messages_->Stopped(*rank, SIGUSR1);
    } else if (!stopping_) {
      HandleFirstDeath(*rank);
    } else if (*rank->end != SIGTERM && *rank->end != SIGKILL) {
      messages_->EndedToo(*rank);
    }
  }
}

void Attempt::HandleFirstDeath(RankProcess& dead) {
  messages_->Died(dead, CountRunning(ranks_));
  StopAll();
  TellNodes(dead);
}

void Attempt::StopAll() {
  stopping_ = true;
  kill_at_ = Clock::now() + options_.death_grace;
  StopRunning(ranks_);
}

// What the job's nodes want of this one's ranks.
void Attempt::FollowOrder() {
  if (node_ == nullptr || stopping_ || end_.stop_signal != 0) return;
  const NodeGroup group = node_->Group();
  if (group.order == NodeGroup::Order::kStopAtStep && !end_.makes_room) {
    MakeRoom(group.why);
  } else if (group.order == NodeGroup::Order::kStop) {
    end_.cause = group.why;
    messages_->Say(absl::StrCat(group.why, ": stopping this node's ranks"));
    StopAll();
  }
}

void Attempt::MakeRoom(const std::string& why) {
  end_.makes_room = true;
  end_.cause = why;
  messages_->Say(absl::StrCat(why, ": this node's ranks stop after a step"));
  SignalRunning(ranks_, SIGUSR1);
  kill_at_ = Clock::now() + options_.stop_grace;
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

void Attempt::KillWhenOverdue() {
  if (!kill_at_.has_value() || Clock::now() < *kill_at_) return;
  for (RankProcess& rank : ranks_) {
    if (rank.end.has_value()) continue;
    messages_->IsKilled(rank);
    rank.process.Signal(SIGKILL);
  }
  kill_at_.reset();
}

}  // namespace tandem
