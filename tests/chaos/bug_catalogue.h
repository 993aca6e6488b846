// Describes the bugs that can be planted. Thread rule: constants.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/planted_bug.h"

namespace weir::chaos {

struct CatalogueEntry {
  PlantedBug bug;
  std::string name;
  std::string what;
};

// Returns all bugs but kNone, in the order of the enumeration.
const std::vector<CatalogueEntry>& BugCatalogue();

}  // namespace weir::chaos
