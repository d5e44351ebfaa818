// Gather table: which part of which gradient a block of threads copies into a
// bucket.

#ifndef TANDEM_CORE_CUDA_GATHER_TABLE_H_
#define TANDEM_CORE_CUDA_GATHER_TABLE_H_

#include <cstdint>

#include "core/cuda/host_device.h"

namespace tandem {

// A gradient, `length` contiguous elements, and where it goes in the bucket.
struct GatherPiece {
  const void* from = nullptr;
  int64_t to = 0;
  int64_t length = 0;
};

// Pieces of one launch, as a kernel's argument takes them (4 KiB at most), cut
// into chunks of kGatherChunk elements, counted over all pieces.
constexpr int kMostGatherPieces = 128;
constexpr int kGatherChunk = 2048;

struct GatherTable {
  GatherPiece pieces[kMostGatherPieces];
  int first_chunk[kMostGatherPieces + 1];  // of each piece; at the end all
  int count = 0;

  TANDEM_HOST_DEVICE int chunks() const { return first_chunk[count]; }
};

// Requires count <= kMostGatherPieces.
inline GatherTable MakeGatherTable(const GatherPiece* pieces, int count) {
  GatherTable table;
  table.count = count;
  table.first_chunk[0] = 0;
  for (int i = 0; i < count; ++i) {
    table.pieces[i] = pieces[i];
    const int64_t chunks = (pieces[i].length + kGatherChunk - 1) / kGatherChunk;
    table.first_chunk[i + 1] = table.first_chunk[i] + static_cast<int>(chunks);
  }
  return table;
}

struct GatherSpan {
  int piece = 0;
  int64_t begin = 0;  // elements within the piece
  int64_t end = 0;
};

// The elements of a chunk. Requires 0 <= chunk < table.chunks().
TANDEM_HOST_DEVICE inline GatherSpan SpanOfChunk(const GatherTable& table,
                                                 int chunk) {
  // The last piece that does not begin behind it: those without elements, which
  // begin where the next does, are passed over.
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  GatherSpan span;
  span.piece = low;
  span.begin = int64_t{chunk - table.first_chunk[low]} * kGatherChunk;
  const int64_t length = table.pieces[low].length;
  span.end = span.begin + kGatherChunk;
  if (span.end > length) span.end = length;
  return span;
}

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_GATHER_TABLE_H_
