// Early return on errors, for functions that return absl::Status or
// absl::StatusOr.
//
//   TANDEM_RETURN_IF_ERROR(store.Connect());
//   TANDEM_ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(world_size, {}));

#ifndef TANDEM_CORE_BASE_STATUS_MACROS_H_
#define TANDEM_CORE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expression` (an absl::Status) unless it is OK.
#define TANDEM_RETURN_IF_ERROR(expression)           \
  do {                                               \
    absl::Status tandem_status_ = (expression);      \
    if (!tandem_status_.ok()) return tandem_status_; \
  } while (false)

// Evaluates `expression` (an absl::StatusOr<T>); returns its status on error,
// else assigns or initialises `target` with its value. A target whose type
// holds a comma needs parentheses or an alias. It is several statements: as the
// body of an `if` it needs braces, which the name of its variable says in the
// compiler's error.
#define TANDEM_ASSIGN_OR_RETURN(target, expression)                           \
  TANDEM_ASSIGN_OR_RETURN_IMPL_(                                              \
      TANDEM_STATUS_CONCAT_(tandem_assign_or_return_needs_braces_, __LINE__), \
      target, expression)

#define TANDEM_ASSIGN_OR_RETURN_IMPL_(status_or, target, expression) \
  auto status_or = (expression);                                     \
  if (!status_or.ok()) return std::move(status_or).status();         \
  target = *std::move(status_or)

#define TANDEM_STATUS_CONCAT_(a, b) TANDEM_STATUS_CONCAT_IMPL_(a, b)
#define TANDEM_STATUS_CONCAT_IMPL_(a, b) a##b

#endif  // TANDEM_CORE_BASE_STATUS_MACROS_H_
