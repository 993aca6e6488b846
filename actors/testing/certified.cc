#include "actors/testing/certified.h"

#include <cstdio>
#include <cstdlib>

#include "actors/plan/derive_certificate.h"

namespace weir::actors {

std::vector<proto::RankPlan> Certified(std::vector<proto::RankPlan> plans) {
  if (const absl::Status status = DeriveCertificate(&plans); !status.ok()) {
    std::fprintf(stderr, "no certificate: %s\n", std::string(status.message()).c_str());
    std::abort();
  }
  return plans;
}

}  // namespace weir::actors
