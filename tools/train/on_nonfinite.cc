#include "tools/train/on_nonfinite.h"

namespace weir {

void SetOnNonfinite(OnNonfinite on_nonfinite, RankPlan* plan) {
  if (on_nonfinite == OnNonfinite::kStop) return;
  for (Program& program : *plan->mutable_program()) {
    for (KernelCall& call : *program.mutable_call()) {
      if (call.op() != "clip_scale") continue;
      NamedAttr* attr = call.add_attr();
      attr->set_name("on_nonfinite");
      attr->mutable_value()->set_s(on_nonfinite == OnNonfinite::kSkip ? "skip" : "continue");
    }
  }
}

}  // namespace weir
