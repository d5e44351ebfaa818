#include "core/comm/partitioned_collectives.h"

#include <ATen/ops/tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator_tensors.h"

namespace tandem {
namespace {

constexpr char kAllGather[] = "all-gather";
constexpr char kReduceScatter[] = "reduce-scatter";
constexpr char kAllToAll[] = "all-to-all";

absl::Status Refuse(const Communicator& group, const char* operation,
                    const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(operation, " of group \"", group.name(), "\": ", why));
}

at::Tensor Flat(const at::Tensor& tensor) { return tensor.detach().view({-1}); }

// This rank's part of a flat tensor.
at::Tensor OwnPart(const Communicator& group, const at::Tensor& whole) {
  const int64_t n = whole.numel() / group.size();
  return whole.narrow(0, group.rank() * n, n);
}

const char* Begin(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  // Imagined memory (core/sim/imagined) has addresses, but none behind them.
  if (!a.device().is_cpu() && !a.is_alias_of(b)) return false;
  const std::less<const char*> before;
  return before(Begin(a), Begin(b) + b.nbytes()) &&
         before(Begin(b), Begin(a) + a.nbytes());
}

bool IsOwnPart(const Communicator& group, const at::Tensor& all,
               const at::Tensor& mine) {
  return mine.numel() > 0 &&
         Begin(mine) == Begin(all) + group.rank() * mine.nbytes();
}

// Does the group take both, and are they of one kind?
absl::Status CheckPair(const Communicator& group, const char* operation,
                       const at::Tensor& a, const at::Tensor& b) {
  TANDEM_RETURN_IF_ERROR(CheckTensor(group, operation, a));
  TANDEM_RETURN_IF_ERROR(CheckTensor(group, operation, b));
  if (a.scalar_type() == b.scalar_type() && a.device() == b.device()) {
    return absl::OkStatus();
  }
  return Refuse(
      group, operation,
      absl::StrCat("one tensor is ", DescribeType(a), ", the other ",
                   DescribeType(b), "; both must have one dtype and device"));
}

absl::Status CheckParts(const Communicator& group, const char* operation,
                        const at::Tensor& all, const at::Tensor& mine) {
  TANDEM_RETURN_IF_ERROR(CheckPair(group, operation, all, mine));
  if (all.numel() != group.size() * mine.numel()) {
    return Refuse(group, operation,
                  absl::StrCat("the whole is ", DescribeTensor(all),
                               ", and this rank's part ", DescribeTensor(mine),
                               "; the whole must have ", group.size(),
                               " times as many elements"));
  }
  if (!Overlap(all, mine) || IsOwnPart(group, all, mine)) {
    return absl::OkStatus();
  }
  return Refuse(group, operation,
                absl::StrCat("the part of rank ", group.rank(),
                             " lies in the whole, but not where that rank's "
                             "is, which begins at element ",
                             group.rank() * mine.numel()));
}

absl::Status CheckExchange(const Communicator& group,
                           const at::Tensor& received, const at::Tensor& sent) {
  TANDEM_RETURN_IF_ERROR(CheckPair(group, kAllToAll, received, sent));
  if (!Overlap(received, sent)) return absl::OkStatus();
  return Refuse(group, kAllToAll,
                "what is received overlaps what is sent; give two tensors");
}

absl::Status CheckEqualParts(const Communicator& group,
                             const at::Tensor& received,
                             const at::Tensor& sent) {
  if (received.numel() == sent.numel() && sent.numel() % group.size() == 0) {
    return absl::OkStatus();
  }
  return Refuse(
      group, kAllToAll,
      absl::StrCat(DescribeTensor(sent), " is sent and ",
                   DescribeTensor(received),
                   " received; both need as many elements, a multiple of the "
                   "group's ",
                   group.size(), " ranks (StartAllToAllRows takes others)"));
}

absl::Status CheckRows(const Communicator& group, const char* direction,
                       const at::Tensor& tensor,
                       const std::vector<int64_t>& rows) {
  const bool fits =
      tensor.dim() > 0 && rows.size() == static_cast<size_t>(group.size()) &&
      absl::c_all_of(rows, [](int64_t each) { return each >= 0; }) &&
      std::accumulate(rows.begin(), rows.end(), int64_t{0}) == tensor.size(0);
  if (fits) return absl::OkStatus();
  return Refuse(
      group, kAllToAll,
      absl::StrCat("{", absl::StrJoin(rows, ", "), "} rows are ", direction,
                   " in ", DescribeTensor(tensor), "; there must be ",
                   group.size(),
                   " numbers, one a rank, none negative, that add up to the "
                   "first dimension"));
}

absl::Status CheckAllRows(const Communicator& group, const at::Tensor& received,
                          const at::Tensor& sent, const ExchangedRows& rows) {
  TANDEM_RETURN_IF_ERROR(CheckRows(group, "received", received, rows.received));
  TANDEM_RETURN_IF_ERROR(CheckRows(group, "sent", sent, rows.sent));
  if (received.sizes().slice(1) != sent.sizes().slice(1)) {
    return Refuse(
        group, kAllToAll,
        absl::StrCat("rows of ", DescribeTensor(sent), " are sent and rows of ",
                     DescribeTensor(received),
                     " received; they must have one shape"));
  }
  const auto me = static_cast<size_t>(group.rank());
  if (rows.received[me] == rows.sent[me]) return absl::OkStatus();
  return Refuse(
      group, kAllToAll,
      absl::StrCat("this rank, ", group.rank(), ", sends itself ",
                   rows.sent[me], " rows and expects ", rows.received[me]));
}

// Asks all ranks what they send and expect, and compares that, on each alike.
absl::Status CompareRows(Communicator& group, const ExchangedRows& rows,
                         const CollectivePurpose& purpose) {
  std::vector<int64_t> mine = rows.sent;
  mine.insert(mine.end(), rows.received.begin(), rows.received.end());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> all,
      group.AllGather(at::tensor(mine), [&purpose] {
        return absl::StrCat("rows that are sent and received in an all-to-all",
                            purpose ? ": " : "", purpose ? purpose() : "");
      }));
  const int n = group.size();
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      const int64_t sent = all[from].const_data_ptr<int64_t>()[to];
      const int64_t expected = all[to].const_data_ptr<int64_t>()[n + from];
      if (sent == expected) continue;
      return Refuse(group, kAllToAll,
                    absl::StrCat("rank ", group.NameOf(from), " sends ", sent,
                                 " rows to rank ", group.NameOf(to),
                                 ", which expects ", expected));
    }
  }
  return absl::OkStatus();
}

// What there is to do in a group of one rank.
absl::StatusOr<PendingCollective> CopyAlone(const at::Tensor& to,
                                            const at::Tensor& from,
                                            double factor = 1) {
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    if (Begin(to) != Begin(from)) Flat(to).copy_(Flat(from));
    if (factor != 1) MultiplyInPlace(to.detach(), factor);
  }));
  return PendingCollective();
}

// Does the tensor's backend sum this rank's part alone?
bool BackendScatters(const Communicator& group, const at::Tensor& given) {
  return IsOnStreams(group, given) ||
         TensorBackend(group, given).getBackendName() == "shm";
}

// Sums what is `given` as the whole, of which this rank's `part` is wanted.
c10::intrusive_ptr<c10d::Work> IssueSum(const Communicator& group,
                                        at::Tensor whole, at::Tensor part,
                                        const c10d::ReduceOp& operation) {
  c10d::Backend& backend = TensorBackend(group, whole);
  if (BackendScatters(group, whole)) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = operation;
    return backend.reduce_scatter_single(part, whole, options);
  }
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  std::vector<at::Tensor> tensors = {std::move(whole)};
  return backend.allreduce(tensors, options);
}

// Bytes, by rank.
std::vector<int64_t> Splits(const std::vector<int64_t>& rows,
                            const at::Tensor& tensor) {
  const int64_t bytes = c10::multiply_integers(tensor.sizes().slice(1)) *
                        static_cast<int64_t>(tensor.element_size());
  std::vector<int64_t> splits;
  for (const int64_t each : rows) splits.push_back(each * bytes);
  return splits;
}

// Without rows in equal parts.
absl::StatusOr<PendingCollective> Exchange(const Communicator& group,
                                           const FlightOperation& operation,
                                           const at::Tensor& received,
                                           const at::Tensor& sent,
                                           const ExchangedRows& rows,
                                           const CollectivePurpose& purpose) {
  const at::Tensor given = ForBackend(group, received);
  at::Tensor out = ByteView(given);
  at::Tensor in = ByteView(ForBackend(group, sent));
  std::vector<int64_t> out_splits = Splits(rows.received, received);
  std::vector<int64_t> in_splits = Splits(rows.sent, sent);
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      GroupRunner(group)->Start(operation, purpose, RunPlace(in), [&] {
        return TensorBackend(group, in).all_to_all_single(out, in, out_splits,
                                                          in_splits);
      }));
  return WithCopyBack(std::move(pending), given, received);
}

}  // namespace

absl::StatusOr<PendingCollective> StartAllGather(
    Communicator& group, const at::Tensor& all, const at::Tensor& mine,
    const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckParts(group, kAllGather, all, mine));
  if (group.size() == 1) return CopyAlone(all, mine);
  const FlightOperation operation = TensorFlight(kAllGather, mine);
  TANDEM_RETURN_IF_ERROR(
      GroupRunner(group)->Agree(kAllGather, operation, mine, purpose));
  if (mine.numel() == 0) return PendingCollective();
  const at::Tensor given = ForBackend(group, all);
  at::Tensor whole = ByteView(given);
  at::Tensor part = IsOwnPart(group, all, mine)
                        ? OwnPart(group, whole)
                        : ByteView(ForBackend(group, mine));
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      GroupRunner(group)->Start(operation, purpose, RunPlace(whole), [&] {
        return TensorBackend(group, whole).all_gather_single(whole, part);
      }));
  return WithCopyBack(std::move(pending), given, all);
}

absl::StatusOr<PendingCollective> StartReduceScatterSum(
    Communicator& group, const at::Tensor& all, const at::Tensor& mine,
    double factor, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckSummand(group, kReduceScatter, all));
  TANDEM_RETURN_IF_ERROR(CheckParts(group, kReduceScatter, all, mine));
  if (factor != 1 && !all.is_floating_point()) {
    return Refuse(group, kReduceScatter,
                  absl::StrCat("a factor is for floating-point numbers, not ",
                               DescribeType(all)));
  }
  if (group.size() == 1) return CopyAlone(mine, all, factor);
  const FlightOperation operation = TensorFlight(kReduceScatter, mine);
  TANDEM_RETURN_IF_ERROR(
      GroupRunner(group)->Agree(kReduceScatter, operation, mine, purpose));
  if (mine.numel() == 0) return PendingCollective();
  const bool in_place = IsOwnPart(group, all, mine);
  at::Tensor whole = Flat(ForBackend(group, all));
  const bool scatters = BackendScatters(group, whole);
  if (!in_place && !(scatters && Multiplies(group, factor, whole))) {
    TANDEM_ASSIGN_OR_RETURN(whole, CatchTorchOr([&] { return whole.clone(); }));
  }
  c10d::ReduceOp sum = c10d::ReduceOp::SUM;
  Multiply(group, factor, whole, &sum);
  const bool goes_there = scatters && !in_place;
  const at::Tensor part =
      goes_there ? Flat(ForBackend(group, mine)) : OwnPart(group, whole);
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective pending,
      GroupRunner(group)->Start(operation, purpose, RunPlace(whole), [&] {
        return IssueSum(group, whole, part, sum);
      }));
  if (goes_there || in_place) {
    return WithCopyBack(std::move(pending), part, Flat(mine));
  }
  return std::move(pending).Then([part, mine] {
    return CatchTorch([&] { Flat(mine).copy_(part); }, "copying the sum");
  });
}

absl::StatusOr<PendingCollective> StartAllToAll(
    Communicator& group, const at::Tensor& received, const at::Tensor& sent,
    const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckExchange(group, received, sent));
  TANDEM_RETURN_IF_ERROR(CheckEqualParts(group, received, sent));
  if (group.size() == 1) return CopyAlone(received, sent);
  const FlightOperation operation = TensorFlight(kAllToAll, sent);
  TANDEM_RETURN_IF_ERROR(
      GroupRunner(group)->Agree(kAllToAll, operation, sent, purpose));
  if (sent.numel() == 0) return PendingCollective();
  return Exchange(group, operation, received, sent, {}, purpose);
}

absl::StatusOr<PendingCollective> StartAllToAllRows(
    Communicator& group, const at::Tensor& received, const at::Tensor& sent,
    const ExchangedRows& rows, const CollectivePurpose& purpose) {
  TANDEM_RETURN_IF_ERROR(CheckExchange(group, received, sent));
  TANDEM_RETURN_IF_ERROR(CheckAllRows(group, received, sent, rows));
  if (group.size() == 1) return CopyAlone(received, sent);
  if (group.options().check_collectives) {
    TANDEM_RETURN_IF_ERROR(CompareRows(group, rows, purpose));
  }
  // Ranks have different numbers of rows: their shape is what must agree.
  FlightOperation operation = TensorFlight(kAllToAll, sent);
  operation.sizes.remove_prefix(1);
  const std::string what = absl::StrCat(
      kAllToAll, " of rows of ", c10::toString(sent.scalar_type()), " [",
      absl::StrJoin(operation.sizes, ", "), "] on ",
      c10::DeviceTypeName(sent.device().type(), /*lower_case=*/true));
  TANDEM_RETURN_IF_ERROR(
      GroupRunner(group)->Agree(what, operation, at::Tensor(), purpose));
  return Exchange(group, operation, received, sent, rows, purpose);
}

}  // namespace tandem
