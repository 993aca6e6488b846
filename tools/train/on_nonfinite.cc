#include "tools/train/on_nonfinite.h"

namespace weir::train {

void SetOnNonfinite(OnNonfinite on_nonfinite, proto::RankPlan* plan) {
  if (on_nonfinite == OnNonfinite::kStop) return;
  for (proto::Program& program : *plan->mutable_program()) {
    for (proto::KernelCall& call : *program.mutable_call()) {
      if (call.op() != "clip_scale") continue;
      proto::NamedAttr* attr = call.add_attr();
      attr->set_name("on_nonfinite");
      attr->mutable_value()->set_s(on_nonfinite == OnNonfinite::kSkip ? "skip" : "continue");
    }
  }
}

}  // namespace weir::train
