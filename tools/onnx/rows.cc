// The table of all translations.
#include <map>

#include "tools/onnx/translation.h"

namespace weir::onnx {

const Row* FindRow(const std::string& op) {
  static const auto* rows = [] {
    auto* all = new std::map<std::string, Row>;
    for (const std::vector<Row>& some :
         {ElementwiseRows(), MovementRows(), ProductRows(), ReductionRows(), WindowRows(),
          MaskRows(), IndexRows(), AttentionRows(), LossRows(), ResizeRows()}) {
      for (const Row& row : some) all->emplace(row.op, row);
    }
    return all;
  }();
  const auto found = rows->find(op);
  return found == rows->end() ? nullptr : &found->second;
}

}  // namespace weir::onnx
