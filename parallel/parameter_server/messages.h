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
#include "parallel/step/step_score.h"

namespace tandem {

// THE PROTOCOL
//
// Each worker and each server are a group of two, whose connection breaks for
// itself. In it the worker asks and the server answers, strictly in turn:
//
//   worker                              server
//   request, then its payload  -->  takes it
//                              <--  "wait", each 250 ms while it must
//   request, "again"           -->
//                              <--  "ready", then its payload
//
//   request  payload                              payload of the answer
//   push     mask of pieces, gradients (a slice)  values (the slice)
//   meet     what the worker keeps (1st server)   values, what is kept
//   sum      -                                    -
//   weigh    -                                    -
//   bye      -                                    no answer at all
//   lost     -                                    no answer at all
//
// Requests and answers are numbers, of which there are always as many; behind
// those of a push comes what it lists by name, if anything.
//
// Why it ends. A server has a thread for each worker, and none of them waits
// for another server. What a thread waits for before it says "ready" is said by
// workers' requests alone: for a push, that workers that have done fewer steps
// push theirs; for a meeting and a sum, that all others ask the same; for the
// weights of a step, that others tell theirs, or push that step. A worker sends
// its request to all servers before it takes the first answer. So whoever
// waits, waits for workers that have come less far, and the one that has come
// least far waits for nobody. A server that says "wait" lives: a worker needs
// no patience beyond its group's timeout, however slow the other workers are. A
// worker that says nothing for twice as long is given up: one that waits for a
// frozen server can then still tell the others which one that is ("lost").
//
// A push says which step of the worker it is. A server applies each once: one
// that it has seen before is answered, and nothing else.

struct ServerRequest {
  enum class Kind { kPush, kMeet, kSum, kWeigh, kBye, kLost };

  Kind kind = Kind::kPush;
  bool again = false;  // the same was asked before: no payload comes
  // kPush, kWeigh: the step. kMeet, kSum: which of them. kLost: the server that
  // died.
  int64_t number = 0;
  int64_t version = 0;  // of the values that gradients were computed from
  // kPush: without gradients, for its worker skips the step.
  bool skips = false;
  double learning_rate = 0;
  double weight = 0;  // kWeigh: of this worker's targets
  // kPush: of the step, as far as it says what the loss is made of. kSum: of
  // what was evaluated.
  StepScore score;
};

struct ServerAnswer {
  bool ready = false;
  int64_t version = 0;  // of the values: how many updates they have had
  double weight = 0;    // kWeigh: the mean of all
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
