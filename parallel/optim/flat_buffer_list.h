// Flat buffer list: some of a model's flat buffers, or all.

#ifndef TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_LIST_H_
#define TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_LIST_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

class FlatBuffer;

using FlatBuffers = std::vector<std::unique_ptr<FlatBuffer>>;

// What optimizers, clipping and averaging work on. Owns nothing: the buffers
// must outlive it. Made of FlatBuffers by itself where a function takes one.
class FlatBufferList {
 public:
  FlatBufferList() = default;
  FlatBufferList(const FlatBuffers& buffers) {  // NOLINT: implicit
    for (const auto& buffer : buffers) buffers_.push_back(buffer.get());
  }
  explicit FlatBufferList(std::vector<FlatBuffer*> buffers)
      : buffers_(std::move(buffers)) {}

  std::vector<FlatBuffer*>::const_iterator begin() const {
    return buffers_.begin();
  }
  std::vector<FlatBuffer*>::const_iterator end() const {
    return buffers_.end();
  }
  size_t size() const { return buffers_.size(); }
  bool empty() const { return buffers_.empty(); }

 private:
  std::vector<FlatBuffer*> buffers_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_FLAT_BUFFER_LIST_H_
