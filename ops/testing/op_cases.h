// An OpCase is one small example call of an op. Every op has at least one case; the law test, the
// gradient test and the completeness test run over all cases.
//
// Add a case for each attribute that changes what an op does and for each optional
// operand. Sizes should not divide by 2 or 3, so that shards are uneven.
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

#include "ops/defs/op_def.h"
#include "ops/testing/host_tensor.h"

namespace weir::ops {

// A Fill is the kind of contents of a case's tensor.
enum class Fill : uint8_t {
  kNormal,    // standard normals
  kApart,     // normals moved away from 0 by 0.1, for kinks at 0
  kPositive,  // 0.5 and more
  kBetween,   // between whole numbers and halves, for jumps there
  kSteps,     // -1, 0 or 1, so that equal values occur
  kIds,       // integers from -1 to 8, some outside any table of the cases
  kClasses,   // integers from 0 to 4
  kMarked,    // integers from 0 to 4, and some that are -100
  kMask,      // 0 or 1
  kPages,     // in row r of a table the pages from 3r to 3r + 2, and numbers that are no page
  kDistinct,  // numbers of which the first 251 are at least 0.05 apart, for the largest of several
};

struct OpCase {
  std::string name;  // unique; begins with the op
  std::string op;
  Attributes attrs;
  std::vector<std::string> inputs;  // types with all sizes written out
  std::vector<Fill> fills;          // per input; missing: kNormal
  int num_outputs = -1;             // -1: all the op has
  std::vector<Fill> initial;        // outputs that are read and written: their contents before
  double tolerance = 2e-5;          // of a split run; 0: the op only moves elements
  int64_t step = 0;
  int64_t micro_batch = 0;
  Transfer transfer = {};  // of an op of transfers
};

const std::vector<OpCase>& OpCases();

// An OpExample holds the parts of a case, inferred and filled. A case that inference refuses is
// fatal to the test.
struct OpExample {
  const OpDef* def = nullptr;
  Attributes attrs;  // with defaults
  std::vector<sbp::TensorType> input_types, output_types;
  std::vector<HostTensor> inputs;
  std::vector<HostTensor> outputs;  // initial contents
};
absl::StatusOr<OpExample> MakeExample(const OpCase& op_case, uint64_t seed);

// Marks the inputs that a gradient reaches: real ones, but those of moving_average that only its
// average needs.
std::vector<bool> TakesGradient(const OpExample& example);

}  // namespace weir::ops
