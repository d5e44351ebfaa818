// The pickle of a file of torch.save (core/pytorch_file/state_dict.h).

#include "core/pytorch_file/pickle_tree.h"
#include "core/pytorch_file/state_dict.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

void CheckNames(const PickleTree& tree) {
  for (const PickleNode& node : tree.nodes) {
    const bool is_called = node.kind == PickleNode::Kind::kGlobal ||
                           node.kind == PickleNode::Kind::kCall;
    CHECK(!is_called || IsKnownGlobal(node.text)) << node.text;
    for (const uint32_t item : node.items) CHECK_LT(item, tree.nodes.size());
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tree =
      tandem::ParsePickle(tandem::InputText(data, size), tandem::IsKnownGlobal);
  if (!tree.ok()) return 0;
  tandem::CheckNames(*tree);
  const auto tensors = tandem::TensorsOfStateDict(*tree);
  if (!tensors.ok()) return 0;
  for (const tandem::PickledTensor& each : *tensors) {
    CHECK(tandem::CheckView(each.view).ok());
    CHECK(tandem::IsEmpty(each.view) || tandem::SpanOf(each.view) > 0);
  }
  return 0;
}
