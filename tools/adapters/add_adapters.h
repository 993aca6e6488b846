// Gives a job low-rank adapters (LoRA): an edit of its graph. For each chosen weight W, the matrix
// of a `matmul`, the function gets two trained parameters, and the product a second path:
//
//   W.lora_a [in, rank]   begins uniform in ±1/sqrt(in), as the initialisation of the paper's code
//   W.lora_b [rank, out]  begins as zeros, so that the job begins as it was
//   y = activation(x W + bias + (alpha / rank) x A B)
//
// A weight that the product transposes has [rank, in] and [out, rank]. All other parameters are
// frozen. The rank is a dimension with a name of its own, so the rules of the job split the
// adapters where they split the weight.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::adapters {

struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 0;  // 0: the rank, so that the factor is 1
  // Patterns of weights ("*.wq", "layers.?.w_up"); none: every weight that can have adapters and
  // has no dimension below the rank.
  std::vector<std::string> on;
  std::vector<std::string> train;  // patterns of other weights that are not frozen
};

struct AddedAdapters {
  std::vector<std::string> weights;  // with adapters, "layers.0.wq"
  // Weights without adapters that are frozen only because a dimension is below the rank.
  std::vector<std::string> too_small;
  int64_t trained = 0;  // elements of all weights that the job trains now
  int64_t frozen = 0;   // elements of the others
};

// Returns a note for people about the weights that are too small; "" if there are none.
std::string NoteOfTooSmall(const AddedAdapters& added);

// Edits the graph of `job`, which compiles. kInvalidArgument: a pattern that no weight fits, or
// only some of the weights that one product takes in turn (W0850); a weight that cannot have
// adapters, or a rank beyond its sizes (W0851); a job that has adapters (W0852). Then the job is
// unchanged.
absl::StatusOr<AddedAdapters> AddAdapters(const AdapterOptions& options, proto::Job* job);

}  // namespace weir::adapters
