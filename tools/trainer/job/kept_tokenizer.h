// Kept tokenizer: that of a job's texts, beside its checkpoints, so that they
// know what their tokens mean.

#ifndef TANDEM_TOOLS_TRAINER_JOB_KEPT_TOKENIZER_H_
#define TANDEM_TOOLS_TRAINER_JOB_KEPT_TOKENIZER_H_

#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Puts the tokenizer that lies beside the token files of --dataset=tokens, or
// else in --init_from, into DIR/tokenizer, DIR being --save_dir. Nothing where
// there is none, or no DIR. FailedPrecondition where DIR has another one: its
// checkpoints are of other tokens. The same on all ranks. Collective.
absl::Status KeepTokenizer(const TrainOptions& options, Communicator& world);

// The folder with the tokenizer of the model that a user means by `path`: that
// folder itself, as Hugging Face's are; else the one kept for a folder of
// checkpoints, or for one of them. Empty: there is none.
std::string KeptTokenizer(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_KEPT_TOKENIZER_H_
