// Parameter servers, which live in the room parallel/parameter_server.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_H_

#include "parallel/parameter_server/parameter_server.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_H_
