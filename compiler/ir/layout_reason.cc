#include "compiler/ir/layout_reason.h"

#include "absl/strings/str_cat.h"

namespace weir::compiler {

std::string Name(LayoutReason::Kind kind) {
  using Kind = LayoutReason::Kind;
  switch (kind) {
    case Kind::kRule: return "rule";
    case Kind::kExplicit: return "explicit";
    case Kind::kFollows: return "follows";
    case Kind::kPartialSums: return "partial sums";
    case Kind::kReader: return "reader";
    case Kind::kForward: return "forward";
    case Kind::kRecomputed: return "recomputed";
    case Kind::kMicroBatches: return "micro-batches";
    case Kind::kStages: return "stages";
  }
  return "";
}

std::string ToText(const LayoutReason& reason) {
  using Kind = LayoutReason::Kind;
  switch (reason.kind) {
    case Kind::kRule: return absl::StrCat("rule ", reason.subject);
    case Kind::kExplicit: return "explicit layout";
    case Kind::kFollows: return absl::StrCat("follows its operand, split by ", reason.subject);
    case Kind::kPartialSums: return "partial sums pass";
    case Kind::kReader: return absl::StrCat("for ", reason.subject);
    case Kind::kForward: return "as in forward";
    case Kind::kRecomputed: return "as in forward, computed again";
    case Kind::kMicroBatches: return "over the micro-batches";
    case Kind::kStages: return "the next part of the pipeline";
  }
  return "";
}

std::string ToText(const LayoutReasons& reasons, const sbp::Mesh& stage_mesh) {
  std::string text;
  for (const LayoutReason& reason : reasons) {
    if (!text.empty()) text += ", ";
    if (reason.axis >= 0) absl::StrAppend(&text, stage_mesh.axes()[reason.axis].name, ": ");
    text += ToText(reason);
  }
  return text;
}

std::vector<int> ChangedAxes(const sbp::Layout& from, const sbp::Layout& to) {
  std::vector<int> axes;
  for (size_t a = 0; a < from.size() && a < to.size(); ++a) {
    if (!(from[a] == to[a])) axes.push_back(static_cast<int>(a));
  }
  return axes;
}

LayoutReasons ReasonsOfChange(const LayoutReasons& reasons, const sbp::Layout& from,
                              const sbp::Layout& to) {
  LayoutReasons found;
  for (int axis : ChangedAxes(from, to)) {
    for (const LayoutReason& reason : reasons) {
      if (reason.axis == axis) found.push_back(reason);
    }
  }
  return found;
}

}  // namespace weir::compiler
