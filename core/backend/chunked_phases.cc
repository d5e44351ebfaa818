#include "core/backend/chunked_phases.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tandem {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Chunks begin on lines of the cache.
constexpr int64_t kLine = 64;

// Of equal sizes, as far as that goes: a rest of a few bytes would cost as much
// as a small message.
std::vector<Tensors> Cut(const Tensors& tensors, int64_t chunk_bytes) {
  if (tensors.size() != 1 || !tensors[0].is_contiguous()) return {tensors};
  const at::Tensor& tensor = tensors[0];
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (bytes <= chunk_bytes) return {tensors};
  const int64_t count = (bytes + chunk_bytes - 1) / chunk_bytes;
  const int64_t lines = (bytes + count * kLine - 1) / (count * kLine);
  const int64_t step = lines * kLine / tensor.element_size();
  const at::Tensor flat = tensor.detach().view({-1});
  std::vector<Tensors> chunks;
  for (int64_t begin = 0; begin < flat.numel(); begin += step) {
    chunks.push_back(
        {flat.narrow(0, begin, std::min(step, flat.numel() - begin))});
  }
  return chunks;
}

// A chunk on its way.
struct Chunk {
  Tensors tensors;
  WorkPtr work;  // of the phase that it is in

  void Enter(const ThreePhases::Start& phase) {
    if (work != nullptr) work->wait();
    work = phase ? phase(tensors) : nullptr;
  }
};

}  // namespace

void RunInChunks(const Tensors& tensors, int64_t chunk_bytes,
                 const ThreePhases& phases) {
  std::vector<Chunk> chunks;
  for (Tensors& each : Cut(tensors, chunk_bytes)) {
    chunks.push_back({std::move(each), nullptr});
  }
  const size_t n = chunks.size();
  for (size_t i = 0; i < n + 2; ++i) {
    if (i < n) chunks[i].Enter(phases.up);
    if (i >= 1 && i <= n) chunks[i - 1].Enter(phases.across);
    if (i >= 2) chunks[i - 2].Enter(phases.down);
  }
  for (Chunk& chunk : chunks) chunk.Enter(nullptr);
}

}  // namespace tandem
