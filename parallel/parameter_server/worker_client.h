// Worker client: a worker's end of its connections to all parameter servers.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_CLIENT_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_CLIENT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/parameter_server/messages.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/step/step_score.h"

namespace tandem {

// Each request goes to all servers before the first answer is taken
// (messages.h). Unavailable, naming the server, when one has died, or has given
// this worker up; the other servers are told. After an error it is of no more
// use. Not thread-safe.
//
// Fault point: "push:SERVER".
class WorkerClient {
 public:
  struct Setup {
    const std::vector<Slice>* slices;  // by server; must outlive the client
    Slice kept;
    // By server: it and this rank, which is rank 1 of the two.
    std::vector<std::unique_ptr<Communicator>> servers;
    std::vector<std::string> server_names;  // "server 1 (rank 1 of the job)"
  };

  explicit WorkerClient(Setup setup);
  ~WorkerClient();
  WorkerClient(const WorkerClient&) = delete;
  WorkerClient& operator=(const WorkerClient&) = delete;

  struct StepPush {
    int64_t step = 0;
    double learning_rate = 0;
    StepScore score;
    bool skips = false;  // there are no gradients
  };

  // Pushes `gradients` (undefined: none) of the layout's trained tensors, and
  // puts new values into `values`. For the same step again it does not count.
  absl::Status Push(const StepPush& push,
                    const std::vector<at::Tensor>& gradients,
                    const std::vector<at::Tensor>& values);
  // The mean of what all living workers' targets weigh in that step.
  absl::StatusOr<double> MeanWeight(int64_t step, double mine);
  // Waits for the other workers, and takes the servers' values, and what the
  // first worker keeps.
  absl::Status Meet(const std::vector<at::Tensor>& values,
                    const std::vector<at::Tensor>& kept);
  // The sum of all workers' scores.
  absl::StatusOr<Score> Sum(const Score& score);

 private:
  using Payloads = std::vector<at::Tensor>;  // by server; undefined: none

  // What the server says, and what comes with it when it is ready.
  absl::StatusOr<ServerAnswer> TakeAnswer(size_t server);
  // Until it is ready.
  absl::StatusOr<ServerAnswer> TakeReady(size_t server,
                                         const ServerRequest& request);
  absl::StatusOr<ServerAnswer> Exchange(const ServerRequest& request,
                                        const Payloads& payloads,
                                        const Payloads& answers);
  absl::Status Lost(size_t server, const absl::Status& why);

  const Setup setup_;
  std::vector<int64_t> versions_;  // by server: of the values that are here
  // By server: it owes an answer, whose payload goes there.
  std::vector<std::optional<at::Tensor>> awaited_;
  int64_t meetings_ = 0;
  int64_t sums_ = 0;
  bool lost_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_CLIENT_H_
