#include "tools/train/on_nonfinite.h"

#include <algorithm>

namespace weir::train {

void SetOnNonfinite(OnNonfinite on_nonfinite, proto::RankPlan* plan) {
  if (on_nonfinite == OnNonfinite::kStop) return;
  for (proto::Program& program : *plan->mutable_program()) {
    for (proto::KernelCall& call : *program.mutable_call()) {
      if (call.op() != "clip_scale") continue;
      const auto skips = [](const proto::NamedAttr& attr) {
        return attr.name() == "on_nonfinite" && attr.value().s() == "skip";
      };
      if (std::any_of(call.attr().begin(), call.attr().end(), skips)) continue;
      proto::NamedAttr* attr = call.add_attr();
      attr->set_name("on_nonfinite");
      attr->mutable_value()->set_s(on_nonfinite == OnNonfinite::kSkip ? "skip" : "continue");
    }
  }
}

}  // namespace weir::train
