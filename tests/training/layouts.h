// The layouts for tests of whole runs: dp, ZeRO 1 to 3, tp, both sequence kinds, pp and their
// products. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/zoo/zoo_options.h"

namespace weir::training {

struct Layout {
  std::string mesh;
  int zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
};

std::vector<Layout> LayoutMatrix();

// Returns "dp=2 zero 3".
std::string NameOf(const Layout& layout);

// Returns a model of four layers that every layout of the matrix can split.
zoo::TransformerOptions SmallTransformer();

// A function of the zoo, such as GptJob.
using MakeJob = absl::StatusOr<proto::Job> (*)(const zoo::TransformerOptions&);

// Makes the job with the mesh, ZeRO stage and sequence kind of the layout.
absl::StatusOr<proto::Job> JobOn(const Layout& layout, MakeJob make,
                                 zoo::TransformerOptions options);

}  // namespace weir::training
