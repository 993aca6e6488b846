#include "tools/train/lost_writes.h"

#include <string.h>

#include "absl/strings/str_cat.h"

namespace weir::train {

std::string LostWrites::Note(int error) {
  if (error != 0) {
    ++num_lost_;
    if (failing_) return "";
    failing_ = true;
    return absl::StrCat("WARNING: ", output_, ": a ", unit_,
                        " could not be written: ", strerror(error), ". The run goes on; later ",
                        unit_, "s are tried");
  }
  if (!failing_) return "";
  failing_ = false;
  return absl::StrCat(output_, ": ", unit_, "s are written again; ", num_lost_,
                      num_lost_ == 1 ? " is" : " are", " lost");
}

std::string LostWrites::Summary() const {
  if (num_lost_ == 0) return "";
  return absl::StrCat("WARNING: ", output_, " lacks ", num_lost_, " ", unit_,
                      num_lost_ == 1 ? "" : "s", " that could not be written");
}

}  // namespace weir::train
