#include "parallel/parameter_server/worker_client.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

constexpr int kServersRank = 0;  // in the group of the two

using Kind = ServerRequest::Kind;

}  // namespace

WorkerClient::WorkerClient(Setup setup)
    : setup_(std::move(setup)),
      versions_(setup_.servers.size(), 0),
      awaited_(setup_.servers.size()) {}

// Servers wait for this worker no longer.
WorkerClient::~WorkerClient() {
  if (lost_) return;
  ServerRequest bye;
  bye.kind = Kind::kBye;
  for (const auto& server : setup_.servers) {
    Send(bye, kServersRank, *server).IgnoreError();  // it may have ended
  }
}

absl::Status WorkerClient::Lost(size_t server, const absl::Status& why) {
  lost_ = true;
  ServerRequest tells;
  tells.kind = Kind::kLost;
  tells.number = static_cast<int64_t>(server);
  for (size_t s = 0; s < setup_.servers.size(); ++s) {
    if (s == server) continue;
    // It speaks before it listens.
    if (awaited_[s].has_value() && !TakeAnswer(s).ok()) continue;
    Send(tells, kServersRank, *setup_.servers[s]).IgnoreError();
  }
  return absl::UnavailableError(absl::StrCat(
      setup_.server_names[server],
      " has died, or has given this worker up: start the job again from its "
      "last checkpoint (",
      why.message(), ")"));
}

absl::StatusOr<ServerAnswer> WorkerClient::TakeAnswer(size_t server) {
  Communicator& group = *setup_.servers[server];
  TANDEM_ASSIGN_OR_RETURN(const ServerAnswer answer,
                          ReceiveAnswer(kServersRank, group));
  if (!answer.ready) return answer;
  if (awaited_[server]->defined()) {
    versions_[server] = answer.version;
    TANDEM_RETURN_IF_ERROR(
        ReceiveBytes(*awaited_[server], kServersRank, group,
                     absl::StrCat("values of version ", answer.version)));
  }
  awaited_[server].reset();
  return answer;
}

absl::StatusOr<ServerAnswer> WorkerClient::TakeReady(
    size_t server, const ServerRequest& request) {
  ServerRequest again = request;
  again.again = true;
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const ServerAnswer answer, TakeAnswer(server));
    if (answer.ready) return answer;
    TANDEM_RETURN_IF_ERROR(Send(again, kServersRank, *setup_.servers[server]));
  }
}

absl::StatusOr<ServerAnswer> WorkerClient::Exchange(
    const ServerRequest& request, const Payloads& payloads,
    const Payloads& answers) {
  for (size_t s = 0; s < setup_.servers.size(); ++s) {
    Communicator& group = *setup_.servers[s];
    ServerRequest own = request;
    own.version = versions_[s];
    absl::Status sent = Send(own, kServersRank, group);
    if (!sent.ok()) return Lost(s, sent);
    if (request.kind == Kind::kPush) {
      const absl::Status fault = FaultPoint("push", static_cast<int64_t>(s));
      lost_ = lost_ || !fault.ok();  // the server is in the midst of a push
      TANDEM_RETURN_IF_ERROR(fault);
    }
    if (payloads[s].defined()) {
      sent = SendBytes(payloads[s], kServersRank, group,
                       absl::StrCat("request ", request.number));
      if (!sent.ok()) return Lost(s, sent);
    }
    awaited_[s] = answers[s];
  }
  ServerAnswer first;
  for (size_t s = 0; s < setup_.servers.size(); ++s) {
    const auto answer = TakeReady(s, request);
    if (!answer.ok()) return Lost(s, answer.status());
    if (s == 0) first = *answer;
  }
  return first;
}

absl::Status WorkerClient::Push(const StepPush& push,
                                const std::vector<at::Tensor>& gradients,
                                const std::vector<at::Tensor>& values) {
  ServerRequest request;
  request.kind = Kind::kPush;
  request.number = push.step;
  request.skips = push.skips;
  request.learning_rate = push.learning_rate;
  request.score = push.score;
  Payloads pushes, pulls;
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    for (const Slice& slice : *setup_.slices) {
      // Zeros: what lies between pieces is sent, too.
      pushes.push_back(
          at::zeros({GradientMessage::BytesFor(slice)}, at::kByte));
      GradientMessage(slice, pushes.back()).Put(gradients);
      pulls.push_back(at::empty({slice.bytes}, at::kByte));
    }
  }));
  TANDEM_RETURN_IF_ERROR(Exchange(request, pushes, pulls).status());
  return CatchTorch([&] {
    for (size_t s = 0; s < pulls.size(); ++s) {
      Unpack(pulls[s], (*setup_.slices)[s], values);
    }
  });
}

absl::Status WorkerClient::Meet(const std::vector<at::Tensor>& values,
                                const std::vector<at::Tensor>& kept) {
  ServerRequest request;
  request.kind = Kind::kMeet;
  request.number = ++meetings_;
  Payloads mine, pulls;
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    for (const Slice& slice : *setup_.slices) {
      // The first server keeps what workers have.
      const int64_t bytes = mine.empty() ? setup_.kept.bytes : 0;
      mine.push_back(at::zeros({bytes}, at::kByte));
      pulls.push_back(at::empty({slice.bytes + bytes}, at::kByte));
    }
    Pack(kept, setup_.kept, mine.front());
  }));
  TANDEM_RETURN_IF_ERROR(Exchange(request, mine, pulls).status());
  return CatchTorch([&] {
    for (size_t s = 0; s < pulls.size(); ++s) {
      const Slice& slice = (*setup_.slices)[s];
      Unpack(pulls[s].narrow(0, 0, slice.bytes), slice, values);
    }
    Unpack(pulls[0].narrow(0, setup_.slices->front().bytes, setup_.kept.bytes),
           setup_.kept, kept);
  });
}

absl::StatusOr<double> WorkerClient::MeanWeight(int64_t step, double mine) {
  ServerRequest request;
  request.kind = Kind::kWeigh;
  request.number = step;
  request.weight = mine;
  const Payloads none(setup_.servers.size());
  TANDEM_ASSIGN_OR_RETURN(const ServerAnswer answer,
                          Exchange(request, none, none));
  return answer.weight;
}

absl::StatusOr<Score> WorkerClient::Sum(const Score& score) {
  ServerRequest request;
  request.kind = Kind::kSum;
  request.number = ++sums_;
  request.score.score = score;
  const Payloads none(setup_.servers.size());
  TANDEM_ASSIGN_OR_RETURN(const ServerAnswer answer,
                          Exchange(request, none, none));
  return answer.score;
}

}  // namespace tandem
