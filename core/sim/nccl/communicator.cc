#include "core/sim/nccl/communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/torch_status.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// How soon a wait notices that it was left.
constexpr std::chrono::milliseconds kSlice(100);

}  // namespace

NcclWire::NcclWire(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)) {
  // Time is the business of who polls the works.
  backend_->setTimeout(std::chrono::hours(24 * 365));
}

NcclWire::~NcclWire() {
  if (is_left_) CatchTorch([&] { backend_->abort(); }).IgnoreError();
}

NcclWire::WorkPtr NcclWire::Send(at::Tensor bytes, int to, Kind kind) {
  std::vector<at::Tensor> tensors = {std::move(bytes)};
  return backend_->send(tensors, to, static_cast<int>(kind));
}

NcclWire::WorkPtr NcclWire::Receive(at::Tensor bytes, int from, Kind kind) {
  std::vector<at::Tensor> tensors = {std::move(bytes)};
  return backend_->recv(tensors, from, static_cast<int>(kind));
}

bool NcclWire::is_left() const { return is_left_ || ProcessEnds(); }

bool NcclWire::Await(c10d::Work& work) {
  while (!is_left()) {
    const absl::Status status = CatchTorch([&] { work.wait(kSlice); });
    if (status.ok()) return true;
    if (absl::IsDeadlineExceeded(status)) continue;
    AwaitLeaving();
  }
  return false;
}

void NcclWire::AwaitLeaving() {
  while (!is_left()) std::this_thread::sleep_for(kSlice / 10);
}

NcclWork::NcclWork(c10d::OpType type, c10::Device device,
                   std::vector<at::Tensor> outputs)
    : Work(/*rank=*/-1, type), device_(device), outputs_(std::move(outputs)) {}

bool NcclWork::isCompleted() {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return has_ended_;
}

bool NcclWork::isSuccess() const {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return has_ended_ && error_ == nullptr;
}

std::exception_ptr NcclWork::exception() const {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return error_;
}

bool NcclWork::wait(std::chrono::milliseconds /*timeout*/) {
  synchronize();
  return true;
}

void NcclWork::synchronize() {
  HoldStream(end_, CurrentStream(device_.index()));
}

void NcclWork::OnCompletion(std::function<void()> callback) {
  {
    std::lock_guard<std::mutex> lock(state_mutex_);
    if (!has_ended_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void NcclWork::End(std::exception_ptr error) {
  std::function<void()> callback;
  {
    std::lock_guard<std::mutex> lock(state_mutex_);
    has_ended_ = true;
    error_ = std::move(error);
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) callback();
}

namespace {

using Clock = std::chrono::steady_clock;

// What ranks tell each other before they move data: a text.
constexpr int64_t kAnnouncement = 192;

at::Tensor NewAnnouncement(const std::string& text) {
  CHECK_LT(static_cast<int64_t>(text.size()), kAnnouncement) << text;
  at::Tensor bytes = at::zeros({kAnnouncement}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

// It ends with a zero.
std::string ReadAnnouncement(const at::Tensor& bytes) {
  return static_cast<const char*>(bytes.const_data_ptr());
}

}  // namespace

// What was launched at once.
struct NcclCommunicator::Unit {
  // A rank's word that it has come.
  struct Announcement {
    const NcclPart* part;
    int peer;
    at::Tensor theirs;
    c10::intrusive_ptr<c10d::Work> coming;
  };
  // What the wire was given: it lives as long as the wire uses it.
  struct Given {
    at::Tensor bytes;
    c10::intrusive_ptr<c10d::Work> going;
  };

  std::vector<NcclPart> parts;
  std::vector<at::Tensor> tensors;
  c10::intrusive_ptr<NcclWork> work;
  std::vector<Announcement> announcements;
  std::vector<Given> given;
};

NcclCommunicator::NcclCommunicator(Options options,
                                   c10::intrusive_ptr<c10d::Backend> backend)
    : options_(std::move(options)),
      wire_(std::move(backend)),
      stream_(NewStream(options_.device.index())),
      since_(Clock::now()) {
  wait_.communicator = options_.name;
}

NcclCommunicator::~NcclCommunicator() { ReleaseStream(stream_); }

int NcclCommunicator::NameOf(int rank) const {
  const auto& names = options_.rank_names;
  return names.empty() ? rank : names[static_cast<size_t>(rank)];
}

c10::intrusive_ptr<NcclWork> NcclCommunicator::Launch(
    c10d::OpType type, std::vector<NcclPart> parts,
    std::vector<at::Tensor> tensors) {
  if (const std::exception_ptr gone = error()) std::rethrow_exception(gone);
  auto unit = std::make_shared<Unit>();
  unit->parts = std::move(parts);
  unit->work = c10::make_intrusive<NcclWork>(type, options_.device, tensors);
  unit->tensors = std::move(tensors);
  Event inputs;
  RecordEvent(inputs, CurrentStream(options_.device.index()));
  const std::string text = PartText(unit->parts);
  Push(stream_, [this, text] { Enter(State::kInputs, text); });
  HoldStream(inputs, stream_);
  Push(stream_, [this, unit] { Run(unit); });
  RecordEvent(unit->work->end(), stream_);
  return unit->work;
}

void NcclCommunicator::Abort(const std::string& reason) {
  bool moves = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted_.empty()) return;
    aborted_ = reason;
    wire_.Leave();
    moves = wait_.state == State::kMoves;
  }
  if (!moves) return;
  // All have come, and a collective may wait without end for one that has
  // stopped since. It is over for the others, too, who wait on until they leave
  // themselves, as for any rank that is gone.
  CatchTorch([&] { wire_.backend().abort(); }).IgnoreError();
}

CommunicatorWait NcclCommunicator::Wait() const {
  std::lock_guard<std::mutex> lock(mutex_);
  CommunicatorWait wait = wait_;
  wait.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  return wait;
}

std::exception_ptr NcclCommunicator::error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_.empty() && !wire_.is_left()) return nullptr;
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, __LINE__},
      absl::StrCat("the communicator was aborted: ", aborted_)));
}

void NcclCommunicator::Enter(State state, const std::string& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  wait_.state = state;
  wait_.operation = operation;
  wait_.peers.clear();
  wait_.differs.clear();
  since_ = Clock::now();
}

void NcclCommunicator::Run(const std::shared_ptr<Unit>& unit) {
  const std::string text = PartText(unit->parts);
  Enter(State::kPeers, text);
  bool has_run = false;
  std::exception_ptr failure;
  try {
    // Others must not take it for somebody who has come.
    has_run = !wire_.is_left() && Meet(unit.get()) && Move(unit.get());
  } catch (...) {
    failure = std::current_exception();
  }
  Enter(State::kIdle, "");
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++wait_.number;
  }
  // The wire may still read and write what it was given.
  if (!has_run) left_.push_back(unit);
  unit->work->End(has_run || failure ? failure : error());
}

bool NcclCommunicator::Meet(Unit* unit) {
  for (const NcclPart& part : unit->parts) {
    const bool is_message = part.collective.empty();
    const at::Tensor mine = NewAnnouncement(
        is_message ? absl::StrCat(part.bytes.numel()) : part.collective);
    using Kind = NcclWire::Kind;
    const Kind says = !is_message  ? Kind::kCollective
                      : part.sends ? Kind::kSends
                                   : Kind::kReceives;
    const Kind hears = !is_message  ? Kind::kCollective
                       : part.sends ? Kind::kReceives
                                    : Kind::kSends;
    for (const int peer : PartPeers(part)) {
      unit->given.push_back({mine, wire_.Send(mine, peer, says)});
      const at::Tensor theirs = NewAnnouncement("");
      unit->announcements.push_back(
          {&part, peer, theirs, wire_.Receive(theirs, peer, hears)});
      std::lock_guard<std::mutex> lock(mutex_);
      wait_.peers.push_back(NameOf(peer));
    }
  }
  for (const Unit::Announcement& each : unit->announcements) {
    if (!wire_.Await(*each.coming)) return false;
    CheckAnnouncement(*each.part, each.peer, ReadAnnouncement(each.theirs));
  }
  if (!Wait().differs.empty()) {
    wire_.AwaitLeaving();
    return false;
  }
  Enter(State::kMoves, PartText(unit->parts));
  return true;
}

void NcclCommunicator::CheckAnnouncement(const NcclPart& part, int peer,
                                         const std::string& theirs) {
  const bool is_message = part.collective.empty();
  const std::string mine =
      is_message ? absl::StrCat(part.bytes.numel()) : part.collective;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto came =
      std::find(wait_.peers.begin(), wait_.peers.end(), NameOf(peer));
  if (came != wait_.peers.end()) wait_.peers.erase(came);
  if (mine == theirs) return;
  wait_.differs = absl::StrCat(
      "rank ", NameOf(peer), " is at ",
      !is_message  ? theirs
      : part.sends ? absl::StrCat("a receive of ", theirs, " bytes")
                   : absl::StrCat("a send of ", theirs, " bytes"));
}

bool NcclCommunicator::Move(Unit* unit) {
  std::vector<c10::intrusive_ptr<c10d::Work>> moving;
  for (const NcclPart& part : unit->parts) {
    if (!part.collective.empty()) continue;
    moving.push_back(
        part.sends
            ? wire_.Send(part.bytes, part.peer, NcclWire::Kind::kData)
            : wire_.Receive(part.bytes, part.peer, NcclWire::Kind::kData));
  }
  for (const Unit::Given& each : unit->given) moving.push_back(each.going);
  for (const NcclPart& part : unit->parts) {
    if (part.collective.empty()) continue;
    const auto work = part.start(wire_.backend());
    if (!wire_.Await(*work)) return false;
  }
  return std::all_of(moving.begin(), moving.end(),
                     [this](const auto& each) { return wire_.Await(*each); });
}

std::vector<int> NcclCommunicator::PartPeers(const NcclPart& part) const {
  if (part.collective.empty()) return {part.peer};
  std::vector<int> peers;
  for (int rank = 0; rank < wire_.backend().getSize(); ++rank) {
    if (rank != options_.rank) peers.push_back(rank);
  }
  return peers;
}

std::string NcclCommunicator::PartText(const NcclPart& part) const {
  if (!part.collective.empty()) return part.collective;
  return absl::StrCat(
      part.sends ? "send of " : "receive of ", part.bytes.numel(), " bytes ",
      part.sends ? "to rank " : "from rank ", NameOf(part.peer));
}

std::string NcclCommunicator::PartText(
    const std::vector<NcclPart>& parts) const {
  return absl::StrJoin(parts, " and ", [this](auto* out, const auto& part) {
    absl::StrAppend(out, PartText(part));
  });
}

}  // namespace sim
}  // namespace tandem
