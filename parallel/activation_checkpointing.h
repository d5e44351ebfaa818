// Activation checkpointing, torch.utils.checkpoint for C++, which lives in the
// room parallel/activation_checkpointing.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_H_

// IWYU pragma: begin_exports
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/activation_checkpointing/selective_checkpoint.h"
// IWYU pragma: end_exports

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_H_
