// Why a tensor has its layout: the criterion of propagate-layouts that decided, on each axis of the
// mesh. People read the reasons in `weir plan`, traces and pages; the compiler itself reads none.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sbp/layout.h"
#include "sbp/mesh.h"

namespace weir::compiler {

struct LayoutReason {
  enum class Kind : uint8_t {
    kRule,          // a rule of the job; subject: "batch -> dp"
    kExplicit,      // the layout that the job gives this tensor
    kFollows,       // an operand of the op is split so; subject: the factor that is split
    kPartialSums,   // partial sums pass a linear op
    kReader,        // the node that reads the tensor wants it so; subject: the node
    kForward,       // the forward pass has it so
    kRecomputed,    // the forward pass has it so, and the backward pass computes it again
    kMicroBatches,  // the sum over micro-batches lies as its parts
    kStages,        // the next part of the pipeline is at another stage
  };
  Kind kind = Kind::kRule;
  std::string subject = {};
  int axis = kAllAxes;  // of the stage mesh

  static constexpr int kAllAxes = -1;
  friend bool operator==(const LayoutReason&, const LayoutReason&) = default;
};

using LayoutReasons = std::vector<LayoutReason>;

std::string Name(LayoutReason::Kind kind);  // "partial sums"
// Returns the reason without its axis: "rule batch -> dp", "follows its operand, split by ffn".
std::string ToText(const LayoutReason& reason);
// Returns "dp: rule batch -> dp, tp: partial sums pass"; empty if no criterion decided.
std::string ToText(const LayoutReasons& reasons, const sbp::Mesh& stage_mesh);

// Returns the axes on which two layouts of a tensor differ.
std::vector<int> ChangedAxes(const sbp::Layout& from, const sbp::Layout& to);
// Returns those of the reasons for `from` that are about single axes which a boxing to `to`
// changes.
LayoutReasons ReasonsOfChange(const LayoutReasons& reasons, const sbp::Layout& from,
                              const sbp::Layout& to);

}  // namespace weir::compiler
