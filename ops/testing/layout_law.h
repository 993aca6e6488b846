// The law of layouts, for one example of an op: for every legal signature, cutting the inputs by
// the signature, running the kernel on each device alone and merging the outputs gives the result
// of the whole op. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"
#include "sbp/factor_rule.h"

namespace weir::ops {

// A LawSubject is one example of an op, run as a whole and cut by signatures.
struct LawSubject {
  std::string name;
  OpExample example;
  sbp::FactorRule rule;
  KernelRun run;
  bool in_place = false;          // the op reads what its outputs hold before
  double tolerance = 0;           // of a split run; 0: the op only moves elements
  std::vector<HostTensor> whole;  // outputs of the whole op
};

// Returns the subject of an example whose types are inferred, with the outputs of the whole op. The
// result is an error if the kernel refuses the example.
absl::StatusOr<LawSubject> MakeLawSubject(std::string name, OpExample example, KernelRun run);

// Returns the signatures that may be used: their units agree.
std::vector<sbp::AxisSignature> UsableSignatures(const LawSubject& subject);

// Returns "" if the op, split by one signature per mesh axis, gives the result of the whole op.
std::string LawViolation(const LawSubject& subject, const std::vector<sbp::AxisSignature>& per_axis,
                         const sbp::Mesh& mesh);

}  // namespace weir::ops
