#include "ops/defs/ignore_index.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::ops {

AttrSchema IgnoreIndexAttr(const std::string& effect) {
  return {kIgnoreIndex, AttrKind::kInts, std::vector<int64_t>{},
          absl::StrCat("a target of this value is ignored: ", effect, "; empty: none")};
}

OperandCheck& CheckIgnoreIndex(const Attributes& attrs, OperandCheck& check) {
  const std::vector<int64_t> values = attrs.Ints(kIgnoreIndex);
  using Limits = std::numeric_limits<int32_t>;
  if (values.empty()) return check;
  if (values.size() == 1 && Limits::min() <= values[0] && values[0] <= Limits::max()) return check;
  return check.Fail({"W0310", "", "at most one ignore_index, of type i32",
                     absl::StrCat("[", absl::StrJoin(values, ", "), "]"), "ignore_index: [-100]"});
}

}  // namespace weir::ops
