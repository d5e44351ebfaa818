#include "parallel/parameter_server/messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/comm/pending_collective.h"
#include "parallel/step/step_score.h"

namespace tandem {
namespace {

// Doubles, in which counts are exact up to 2^53.
constexpr int64_t kNumbers = 8 + kScoreNumbers;
constexpr int kTag = 0;

constexpr char kLoss[] = "loss";
constexpr char kSum[] = "sum";

// Three lines each: what it is, its name, its value with all digits.
void AddLines(absl::string_view kind,
              const std::map<std::string, double>& values, std::string* text) {
  for (const auto& [name, value] : values) {
    absl::StrAppendFormat(text, "%s\n%s\n%.17g\n", kind, name, value);
  }
}

std::string ScoreNames(const StepScore& score) {
  std::string text;
  AddLines(kLoss, score.auxiliary_losses, &text);
  AddLines(kSum, score.sums, &text);
  return text;
}

absl::Status ReadNames(absl::string_view text, StepScore* score) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i + 2 < lines.size(); i += 3) {
    auto& values = lines[i] == kSum ? score->sums : score->auxiliary_losses;
    if (!absl::SimpleAtod(lines[i + 2], &values[lines[i + 1]])) {
      return absl::InternalError(absl::StrCat(
          "not the value of a loss, ", lines[i + 1], ": ", lines[i + 2]));
    }
  }
  return absl::OkStatus();
}

absl::Status SendText(const std::string& text, int to, Communicator& group) {
  if (text.empty()) return absl::OkStatus();
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor bytes = at::empty({size}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return SendBytes(bytes, to, group, "what a push lists");
}

absl::StatusOr<std::string> ReceiveText(int64_t size, int from,
                                        Communicator& group) {
  if (size == 0) return std::string();
  const at::Tensor bytes = at::empty({size}, at::kByte);
  TANDEM_RETURN_IF_ERROR(ReceiveBytes(bytes, from, group, "what a push lists"));
  return std::string(static_cast<const char*>(bytes.const_data_ptr()),
                     static_cast<size_t>(size));
}

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
  const std::string names = ScoreNames(request.score);
  const at::Tensor tensor = at::zeros({kNumbers}, at::kDouble);
  auto* const numbers = tensor.mutable_data_ptr<double>();
  numbers[0] = static_cast<double>(request.kind);
  numbers[1] = request.again ? 1 : 0;
  numbers[2] = static_cast<double>(request.number);
  numbers[3] = static_cast<double>(request.version);
  numbers[4] = request.skips ? 1 : 0;
  numbers[5] = request.learning_rate;
  numbers[6] = request.weight;
  numbers[7] = static_cast<double>(names.size());
  ToNumbers(request.score.score, numbers + 8);
  TANDEM_RETURN_IF_ERROR(SendBytes(tensor, to, group, "a request"));
  return SendText(names, to, group);
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
  request.skips = numbers[4] != 0;
  request.learning_rate = numbers[5];
  request.weight = numbers[6];
  TANDEM_ASSIGN_OR_RETURN(
      const std::string names,
      ReceiveText(static_cast<int64_t>(numbers[7]), from, group));
  request.score.score = ScoreFromNumbers(numbers + 8);
  TANDEM_RETURN_IF_ERROR(ReadNames(names, &request.score));
  return request;
}

absl::Status Send(const ServerAnswer& answer, int to, Communicator& group) {
  const at::Tensor tensor = at::zeros({kNumbers}, at::kDouble);
  auto* const numbers = tensor.mutable_data_ptr<double>();
  numbers[0] = answer.ready ? 1 : 0;
  numbers[1] = static_cast<double>(answer.version);
  numbers[2] = answer.weight;
  ToNumbers(answer.score, numbers + 3);
  return SendBytes(tensor, to, group, "an answer");
}

absl::StatusOr<ServerAnswer> ReceiveAnswer(int from, Communicator& group) {
  const at::Tensor tensor = at::empty({kNumbers}, at::kDouble);
  TANDEM_RETURN_IF_ERROR(ReceiveBytes(tensor, from, group, "an answer"));
  const auto* const numbers = tensor.const_data_ptr<double>();
  ServerAnswer answer;
  answer.ready = numbers[0] != 0;
  answer.version = static_cast<int64_t>(numbers[1]);
  answer.weight = numbers[2];
  answer.score = ScoreFromNumbers(numbers + 3);
  return answer;
}

}  // namespace tandem
