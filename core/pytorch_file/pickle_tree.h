// Pickle as a tree.
//
// A pickle is a program for a stack machine, some of whose instructions call
// functions by their names. Here a call becomes a node with the function's name
// and its arguments, and names are compared with a list as they come (as by
// PyTorch's weights_only unpickler, which this takes after).

#ifndef TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_
#define TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/pytorch_file/pickle_node.h"

namespace tandem {

// Reads a pickle of protocol 2, which torch.save writes. Trusts nothing, and
// calls nothing: InvalidArgument, with the place, for a function or class that
// `is_known` does not take, by its name ("os.system"); for other opcodes than
// state_dicts have; for what is incomplete, or has more than kMaxPickleNodes or
// kMaxPickleItems. collections.OrderedDict() is a dict; the attributes that it
// is given are dropped.
absl::StatusOr<PickleTree> ParsePickle(
    absl::string_view pickle,
    absl::FunctionRef<bool(absl::string_view global)> is_known);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_PICKLE_TREE_H_
