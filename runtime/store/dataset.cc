#include "runtime/store/dataset.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir {

absl::Status UnknownFeed(const std::string& feed, const std::vector<std::string>& known) {
  std::string nearest = Nearest(feed, known);
  return Rejected({"W0055", "input " + feed + " of the model", "one of the feeds of the data: " + absl::StrJoin(known, ", "),
                   feed, nearest.empty() ? "rename the input of the model" : "call the input " + nearest});
}

absl::Status WrongFeedType(const std::string& feed, const std::string& expected, const TensorSlice& slice) {
  return Rejected({"W0056", "input " + feed + " of the model", expected,
                   absl::StrCat(Name(slice.dtype), ToText(slice.global_shape)), "change the type of the input"});
}

}  // namespace weir
