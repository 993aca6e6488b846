// Converts what a trace says of a rank beside its acts: the facts of the plan. Thread rule: a
// FactsWriter is used by one thread; otherwise pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/trace.pb.h"
#include "runtime/trace/trace_file.h"

namespace weir::trace {

// A FactsWriter fills one message; a text that comes again is written once.
class FactsWriter {
 public:
  explicit FactsWriter(proto::PlanFacts* facts) : facts_(facts) {}

  // Writes all that a replay needs. Call once.
  void Write(const TracedRank& rank);
  // Returns the index of a text in the message's table of texts.
  uint32_t Text(const std::string& text);

 private:
  void AddActor(const TracedActor& from);
  proto::RegisterFacts* AddRegister(const TracedRegister& from);

  proto::PlanFacts* const facts_;
  std::map<std::string, uint32_t> texts_;
};

// Returns the rank of facts that a FactsWriter wrote, in this process or in another of the same
// build. The rank has no records, device and holders, and stands for itself alone. Indices of texts
// are not checked further than that they lie in the table.
TracedRank RankOfFacts(const proto::PlanFacts& facts);

}  // namespace weir::trace
