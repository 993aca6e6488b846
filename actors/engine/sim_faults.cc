#include "actors/engine/sim_faults.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"

namespace weir::actors {
namespace {

using Kind = SimFault::Kind;
using Tamper = transport::SimNetwork::Delivery::Tamper;

constexpr int kHarmlessMax = 3;

const char* Name(Tamper tamper) {
  switch (tamper) {
    case Tamper::kNone: return "as sent";
    case Tamper::kOvertaken: return "overtaken by the next of its lane";
    case Tamper::kStaleBefore: return "after its twin of the epoch before";
    case Tamper::kForeignBefore: return "after its twin of another job";
    case Tamper::kTwice: return "twice";
    case Tamper::kTwiceLater: return "once more, later";
    case Tamper::kTruncated: return "cut short";
    case Tamper::kHeaderBit: return "with a wrong bit in its header";
    case Tamper::kPayloadBit: return "with a wrong bit in its payload";
    case Tamper::kLost: return "lost, and the connection with it";
  }
  return "?";
}

bool IsOneOf(absl::string_view code, std::initializer_list<const char*> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

class FaultDrawer {
 public:
  FaultDrawer(uint64_t seed, const SimShape& shape) : seed_(seed), shape_(shape) {}
  int64_t Draw(int64_t bound) {
    return bound <= 1
               ? 0
               : static_cast<int64_t>(MixKey(seed_, num_draws_++) % static_cast<uint64_t>(bound));
  }

  SimFault Harmless() {
    static constexpr Tamper kTampers[] = {Tamper::kOvertaken, Tamper::kStaleBefore,
                                          Tamper::kForeignBefore};
    SimFault fault;
    const int64_t choice = Draw(shape_.num_lanes > 0 ? 5 : 1);
    fault.kind = choice == 0 ? Kind::kSlowRank : choice == 1 ? Kind::kSlowLane : Kind::kTamper;
    if (fault.kind == Kind::kTamper) return Tampered(kTampers[choice - 2]);
    fault.target =
        static_cast<int>(Draw(fault.kind == Kind::kSlowRank ? shape_.num_ranks : shape_.num_lanes));
    fault.at = Draw(shape_.num_events);
    fault.until = fault.at + 1 + Draw(shape_.num_events);
    return fault;
  }
  SimFault Harmful() {
    static constexpr Tamper kTampers[] = {Tamper::kTwice,      Tamper::kTwiceLater,
                                          Tamper::kTruncated,  Tamper::kHeaderBit,
                                          Tamper::kPayloadBit, Tamper::kLost};
    const int64_t choice = Draw(shape_.num_lanes > 0 ? 8 : 1);
    if (choice >= 2) return Tampered(kTampers[choice - 2]);
    SimFault fault;
    fault.kind = choice == 0 ? Kind::kAbort : Kind::kDeadRank;
    fault.at = Draw(shape_.num_events);
    fault.target = static_cast<int>(Draw(shape_.num_ranks));
    return fault;
  }

 private:
  SimFault Tampered(Tamper tamper) {
    SimFault fault;
    fault.tamper = tamper;
    fault.at = Draw(shape_.num_deliveries);
    fault.bit = static_cast<uint32_t>(Draw(1 << 16));
    return fault;
  }

  const uint64_t seed_;
  const SimShape& shape_;
  uint64_t num_draws_ = 0;
};

}  // namespace

bool IsHarmless(const SimFault& fault) {
  switch (fault.kind) {
    case Kind::kTamper: return fault.tamper <= Tamper::kForeignBefore;
    case Kind::kSlowLane:
    case Kind::kSlowRank: return true;
    case Kind::kDeadRank:
    case Kind::kAbort: return false;
  }
  return false;
}

std::string Describe(const SimFault& fault) {
  switch (fault.kind) {
    case Kind::kTamper: return absl::StrCat("delivery ", fault.at, " comes ", Name(fault.tamper));
    case Kind::kSlowLane:
      return absl::StrCat("lane ", fault.target, " is slow, events ", fault.at, " to ",
                          fault.until);
    case Kind::kSlowRank:
      return absl::StrCat("rank ", fault.target, " is slow, events ", fault.at, " to ",
                          fault.until);
    case Kind::kDeadRank: return absl::StrCat("rank ", fault.target, " dies at event ", fault.at);
    case Kind::kAbort: return absl::StrCat("abort at event ", fault.at);
  }
  return "?";
}

bool MayEndWith(const SimFault& fault, absl::string_view code) {
  switch (fault.kind) {
    case Kind::kSlowLane:
    case Kind::kSlowRank: return false;
    case Kind::kDeadRank: return code == "W0521";
    case Kind::kAbort: return code.empty();
    case Kind::kTamper: break;
  }
  switch (fault.tamper) {
    case Tamper::kTwice:
    case Tamper::kTwiceLater: return code == "W0524";
    // A header without its end belongs to no message of any job. The message is dropped, so its
    // slot never comes back.
    case Tamper::kTruncated: return IsOneOf(code, {"W0524", "W0516", "W0515"});
    // Some bits name another slot or number that could come, or say that all is well.
    case Tamper::kHeaderBit:
      return IsOneOf(code, {"W0524", "W0510", "W0511", "W0526", "W0516", "W0515"});
    case Tamper::kPayloadBit: return code == "W0526";
    case Tamper::kLost: return code == "W0521";
    default: return false;
  }
}

std::vector<SimFault> DrawFaults(uint64_t seed, SimFaultLevel level, const SimShape& shape) {
  std::vector<SimFault> faults;
  if (level == SimFaultLevel::kNone) return faults;
  FaultDrawer drawer(seed, shape);
  const int64_t num_harmless = drawer.Draw(kHarmlessMax + 1);
  for (int64_t i = 0; i < num_harmless; ++i) faults.push_back(drawer.Harmless());
  if (level == SimFaultLevel::kAny && drawer.Draw(2) == 0) faults.push_back(drawer.Harmful());
  std::stable_sort(faults.begin(), faults.end(),
                   [](const SimFault& a, const SimFault& b) { return a.at < b.at; });
  return faults;
}

}  // namespace weir::actors
