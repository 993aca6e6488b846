#include "runtime/base/transfer/transfer_note.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr char kNoAxes[] = "[]";  // the text of a layout over a mesh without axes

}  // namespace

std::string ChangesText(const TransferNote& note) {
  if (note.changes.empty()) return "";
  const auto most =
      std::max_element(note.changes.begin(), note.changes.end(),
                       [](const TransferNote::Change& a, const TransferNote::Change& b) {
                         return a.tensors < b.tensors;
                       });
  // A place of one device has no axes to lie over.
  std::string text = most->from == kNoAxes ? "" : most->from;
  if (most->from != most->to) text = absl::StrCat(most->from, " -> ", most->to);
  const size_t others = note.changes.size() - 1;
  if (others > 0) absl::StrAppend(&text, " and ", others, " other change", others == 1 ? "" : "s");
  if (note.from_stage != note.to_stage) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "stage ", note.from_stage, " -> ",
                    note.to_stage);
  }
  return text;
}

std::string WhyText(const TransferNote& note) {
  std::string text;
  for (const TransferNote::Reason& reason : note.why)
    absl::StrAppend(&text, text.empty() ? "" : ", ", reason.text);
  return text;
}

}  // namespace weir
