#include "parallel/parameter_server/messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/base/status_macros.h"
#include "core/comm/pending_collective.h"
#include "parallel/strategy/score_numbers.h"

namespace tandem {
namespace {

// Doubles, in which counts are exact up to 2^53.
constexpr int64_t kNumbers = 5 + kScoreNumbers;
constexpr int kTag = 0;

}  // namespace

absl::Status SendBytes(const at::Tensor& bytes, int to, Communicator& group,
                       const std::string& what) {
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective sent,
      group.StartSend(bytes, to, kTag, [what] { return what; }));
  return sent.Wait();
}

absl::Status ReceiveBytes(const at::Tensor& bytes, int from,
                          Communicator& group, const std::string& what) {
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective coming,
      group.StartReceive(bytes, from, kTag, [what] { return what; }));
  return coming.Wait();
}

absl::Status Send(const ServerRequest& request, int to, Communicator& group) {
  const at::Tensor tensor = at::zeros({kNumbers}, at::kDouble);
  auto* const numbers = tensor.mutable_data_ptr<double>();
  numbers[0] = static_cast<double>(request.kind);
  numbers[1] = request.again ? 1 : 0;
  numbers[2] = static_cast<double>(request.number);
  numbers[3] = static_cast<double>(request.version);
  numbers[4] = request.learning_rate;
  ToNumbers(request.score, numbers + 5);
  return SendBytes(tensor, to, group, "a request");
}

absl::StatusOr<ServerRequest> ReceiveRequest(int from, Communicator& group) {
  const at::Tensor tensor = at::empty({kNumbers}, at::kDouble);
  TANDEM_RETURN_IF_ERROR(ReceiveBytes(tensor, from, group, "a request"));
  const auto* const numbers = tensor.const_data_ptr<double>();
  ServerRequest request;
  request.kind = static_cast<ServerRequest::Kind>(static_cast<int>(numbers[0]));
  request.again = numbers[1] != 0;
  request.number = static_cast<int64_t>(numbers[2]);
  request.version = static_cast<int64_t>(numbers[3]);
  request.learning_rate = numbers[4];
  request.score = ScoreOf(numbers + 5);
  return request;
}

absl::Status Send(const ServerAnswer& answer, int to, Communicator& group) {
  const at::Tensor tensor = at::zeros({kNumbers}, at::kDouble);
  auto* const numbers = tensor.mutable_data_ptr<double>();
  numbers[0] = answer.ready ? 1 : 0;
  numbers[1] = static_cast<double>(answer.version);
  ToNumbers(answer.score, numbers + 2);
  return SendBytes(tensor, to, group, "an answer");
}

absl::StatusOr<ServerAnswer> ReceiveAnswer(int from, Communicator& group) {
  const at::Tensor tensor = at::empty({kNumbers}, at::kDouble);
  TANDEM_RETURN_IF_ERROR(ReceiveBytes(tensor, from, group, "an answer"));
  const auto* const numbers = tensor.const_data_ptr<double>();
  ServerAnswer answer;
  answer.ready = numbers[0] != 0;
  answer.version = static_cast<int64_t>(numbers[1]);
  answer.score = ScoreOf(numbers + 2);
  return answer;
}

}  // namespace tandem
