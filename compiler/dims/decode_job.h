// Derives from the job of a language model the job that generates: the same model up to its logits,
// over a few positions of each sequence, with the keys and values of all earlier positions in
// states: pools of pages, and a table of the pages of each sequence. The derived graph is found
// from what ops do (ops/defs/at_positions.h and factor rules), not from names:
//
//   attention, causal along the positions   keeps its keys and values (attention_cached)
//   rotary                                  reads the position of each element
//   a table with a row for each position    is looked up at the positions
//   an op that treats all positions alike   stays as it is
//
// A graph with another op that mixes positions, or with one that mixes sequences, has no such form.
// Then only the whole sequence can be computed, again for each token. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "sbp/layout.h"

namespace weir::compiler {

// The positions of a page. A sequence wastes less than one page, and an entry of a table serves so
// many positions.
constexpr int64_t kPageSize = 16;

struct DecodeSizes {
  int64_t rows = 1;       // sequences at a time
  int64_t positions = 1;  // of each sequence in one step
  int64_t pages = 1;      // of each pool, for each row
  int64_t entries = 1;    // of the table of a row: the most pages of a sequence
};

struct DecodeJob {
  proto::Job
      job;  // for plans of PlanMode::kGenerate; mesh, rules and pipeline are those of the job
  // The input of main with the position of each token, i32[rows, positions], like the tokens.
  std::string positions;
  // The input of main with the table of each sequence, i32[rows, entries]. Entry i is the page of
  // the positions from i * kPageSize on, or 0. Empty: nothing keeps positions.
  std::string table;
  // The parameters of main on which only other results than the logits depend. `job` lacks them,
  // and a file of weights has them.
  std::map<std::string, sbp::TensorType> unused;
};

// `tokens` is the input of main with the tokens, i32[samples, window]. kInvalidArgument: W0770 if
// the graph has no such form, with the op and the reason; or the error of FindDims.
absl::StatusOr<DecodeJob> DecodeJobOf(const proto::Job& job, const std::string& tokens,
                                      const DecodeSizes& sizes);

// Returns the job over whole windows of `samples` sequences. The dimension of samples is found as
// by DecodeJobOf: the size changes in the table of dimensions if the table has it and its name
// means nothing else, or else in every type and attribute. kInvalidArgument: W0070 if the table
// does not have the size, and an op cuts it, or it is 1; or the error of FindDims.
absl::StatusOr<proto::Job> WithSamples(const proto::Job& job, const std::string& tokens,
                                       int64_t samples);

}  // namespace weir::compiler
