#include "runtime/base/combiner.h"

namespace weir {

std::string Name(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum: return "sum";
    case Combiner::kMax: return "max";
  }
  return "?";
}

}  // namespace weir
