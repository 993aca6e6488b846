// Says whether the samples of a batch are independent in a model: whether each row of the results
// depends on its own sample alone. The factor rules of the ops decide.
// Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// Returns the first node on the way to the outputs of `main` that may mix samples, for people:
// "function main, node mean". Empty: the samples are independent. A node mixes samples if an
// operand has their dimension and a result lacks it, if the op needs the dimension whole, or if a
// result pairs samples with samples. The graph must be right for plans of kEvaluate.
absl::StatusOr<std::string> NodeThatMixesSamples(const proto::Job& job);

// Where an output of `main` holds samples.
enum class SamplePlace {
  kNowhere,    // it is one result of all samples, or of none
  kFirst,      // its first dimension is that of the samples, and no other holds samples
  kElsewhere,  // in another dimension, or joined with another dimension
};

// Returns the places of the outputs of `main`, by name. The graph must be right for plans of
// kEvaluate.
absl::StatusOr<std::map<std::string, SamplePlace>> PlacesOfSamples(const proto::Job& job);

}  // namespace weir::compiler
