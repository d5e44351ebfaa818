// Messages between the workers and the servers of a parameter server.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_MESSAGES_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_MESSAGES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"

namespace tandem {

// THE PROTOCOL
//
// Each worker and each server are a group of two, whose connection breaks for
// itself. In it the worker asks and the server answers, strictly in turn:
//
//   worker                              server
//   request [8], then its payload  -->  takes it
//                                  <--  "wait" [8], each 250 ms while it must
//   request [8], "again"           -->
//                                  <--  "ready" [8], then its payload
//
//   request  payload                              payload of the answer
//   push     mask of pieces, gradients (a slice)  values (the slice)
//   meet     what the worker keeps (1st server)   values, what is kept
//   sum      -                                    - (the score is in the [8])
//   bye      -                                    no answer at all
//   lost     -                                    no answer at all
//
// Why it ends. A server has a thread for each worker, and none of them waits
// for another server. What a thread waits for before it says "ready" is said by
// workers' requests alone: for a push, that workers that have done fewer steps
// push theirs; for a meeting and a sum, that all others ask the same. A worker
// sends its request to all servers before it takes the first answer. So whoever
// waits, waits for workers that have come less far, and the one that has come
// least far waits for nobody. A server that says "wait" lives: a worker needs
// no patience beyond its group's timeout, however slow the other workers are. A
// worker that says nothing for twice as long is given up: one that waits for a
// frozen server can then still tell the others which one that is ("lost").
//
// A push says which step of the worker it is. A server applies each once: one
// that it has seen before is answered, and nothing else.

struct ServerRequest {
  enum class Kind { kPush, kMeet, kSum, kBye, kLost };

  Kind kind = Kind::kPush;
  bool again = false;  // the same was asked before: no payload comes
  // kPush: the step. kMeet, kSum: which of them. kLost: the server that died.
  int64_t number = 0;
  int64_t version = 0;  // of the values that gradients were computed from
  double learning_rate = 0;
  Score score;
};

struct ServerAnswer {
  bool ready = false;
  int64_t version = 0;  // of the values: how many updates they have had
  Score score;
};

absl::Status Send(const ServerRequest& request, int to, Communicator& group);
absl::StatusOr<ServerRequest> ReceiveRequest(int from, Communicator& group);
absl::Status Send(const ServerAnswer& answer, int to, Communicator& group);
absl::StatusOr<ServerAnswer> ReceiveAnswer(int from, Communicator& group);

// `what` is it for, in errors: "gradients of step 3".
absl::Status SendBytes(const at::Tensor& bytes, int to, Communicator& group,
                       const std::string& what);
absl::Status ReceiveBytes(const at::Tensor& bytes, int from,
                          Communicator& group, const std::string& what);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_MESSAGES_H_
