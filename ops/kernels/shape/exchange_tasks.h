// The tasks of exchange_pack and exchange_fill (runtime/base/transfer/transfer.h): what is moved in
// each chunk, found when the kernel is made, in parts that the kernel does one by one or side by
// side. Thread rule: immutable values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/exchange_plan.h"
#include "runtime/base/combiner.h"

namespace weir::kernels {

// A PackPlan says what exchange_pack writes into its message.
struct PackPlan {
  struct Piece {
    int64_t tensor;    // the input
    int64_t position;  // of its first element
    DenseRect rect;    // of the input
  };
  // Elements [first, last) of a piece go to the message's elements from `message_offset` on.
  struct Task {
    int64_t piece, first, last, message_offset;
  };
  struct Chunk {
    int64_t first_task = 0, num_tasks = 0, elements = 0;
  };

  int64_t element_bytes = 4;
  std::vector<Piece> pieces;
  std::vector<Task> tasks;
  std::vector<Chunk> chunks;

  bool HasChunk(int64_t chunk) const {
    return 0 <= chunk && chunk < static_cast<int64_t>(chunks.size());
  }
  // Returns the bytes of the message of a chunk, 0 if there is no such chunk.
  int64_t MessageBytes(int64_t chunk) const {
    return HasChunk(chunk) ? chunks[chunk].elements * element_bytes : 0;
  }
};

// A FillPlan says what exchange_fill reads and combines. Sources of a region are combined as the
// leaves of the tree that ExchangeRegion describes.
struct FillPlan {
  static constexpr int64_t kSourcesMax = 1 << 14;  // of a region

  struct Source {
    int64_t input;  // index among the kernel's inputs
    bool is_message;
    DenseRect rect;  // of an own tensor
  };
  struct Region {
    int64_t tensor;  // the output
    Combiner combiner;
    DenseRect target;
    int64_t first_source, num_sources;
  };
  // Fills elements [first, last) of a region. `first_offset` is an index into `offsets`, for the
  // offsets at which each source's message holds element `first`.
  struct Task {
    int64_t region, first, last;
    int64_t first_offset;
  };

  DType dtype = DType::kF32;
  int64_t num_own = 0;
  std::vector<Region> regions;
  std::vector<Source> sources;
  std::vector<int64_t> offsets;
  std::vector<Task> tasks;
  std::vector<int64_t> first_task;     // per chunk, and one past the last
  std::vector<int64_t> message_bytes;  // per chunk and message
  int64_t num_messages = 0;

  bool HasChunk(int64_t chunk) const {
    return 0 <= chunk && chunk + 1 < static_cast<int64_t>(first_task.size());
  }
  // Returns source s of the task, as a rectangle of its tensor. An own tensor's rectangle has the
  // elements of the region, a message's only those of the task.
  DenseRect SourceRect(const Task& task, const Region& region, int64_t s) const;
  // kDataLoss unless each message has as many bytes as the tasks of the chunk read, where the
  // arguments know the bytes. Precondition: HasChunk(args.chunk).
  absl::Status CheckMessages(const KernelArgs& args) const;
};

// Return the tasks of a kernel, each of at most `task_elements` elements. kInvalidArgument unless
// the spec has its half of an exchange, without flaws, and operands that fit.
absl::StatusOr<PackPlan> PlanPack(const KernelSpec& spec, int64_t task_elements);
absl::StatusOr<FillPlan> PlanFill(const KernelSpec& spec, int64_t task_elements);

}  // namespace weir::kernels
