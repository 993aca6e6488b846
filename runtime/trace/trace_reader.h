// A trace file as values: its slices by process with their annotations, the two ends of
// each flow, what it says of the job and of the plan of each rank.
// Not here: what it means (trace_report.h, recorded_run.h).
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"

namespace weir {

struct TraceSlice {
  int64_t begin = 0;
  int64_t end = 0;
  std::string category;
  std::string name;
  std::map<std::string, std::string> texts;
  std::map<std::string, int64_t> numbers;
  std::vector<uint64_t> sends, takes;  // flows of tokens
};

// A rank. Slices are in the order in which they ended.
struct TraceProcess {
  std::string name;
  int rank = -1;
  int64_t acts_dropped = 0;
  std::vector<TraceSlice> slices;
};

// An act that sent or took a token of another rank.
struct TraceFlowEnd {
  std::string actor;
  uint64_t process = 0;
  int64_t end = 0;
};
using TraceFlowEnds = std::unordered_map<uint64_t, TraceFlowEnd>;  // by flow

// Reads the packets one by one and resolves interned texts per sequence.
class TraceReader {
 public:
  // `file` is the bytes, `name` what the error calls them. kDataLoss (W0531) if they are no trace of Weir. Never crashes on
  // other bytes.
  absl::Status Read(absl::string_view file, absl::string_view name = "trace file");

  std::map<uint64_t, TraceProcess> processes;  // by track
  std::map<int, trace::PlanFacts> plans;       // by rank
  TraceFlowEnds senders, takers;
  std::map<std::string, std::string> job_texts;
  std::map<std::string, int64_t> job_numbers;
  bool has_job = false;

  // What the trace says of its job; empty or 0 if nothing.
  std::string JobText(const std::string& name) const {
    auto at = job_texts.find(name);
    return at == job_texts.end() ? std::string() : at->second;
  }
  int64_t JobNumber(const std::string& name) const {
    auto at = job_numbers.find(name);
    return at == job_numbers.end() ? 0 : at->second;
  }

 private:
  using Texts = std::unordered_map<uint64_t, std::string>;
  struct Sequence {
    Texts names, categories, annotations, strings;
  };
  void OnPacket(const trace::TracePacket& packet);
  void OnTrack(const trace::TrackDescriptor& track);
  void OnEvent(const trace::TrackEvent& event, int64_t ns, Sequence& sequence);
  static void Learn(const trace::InternedData& data, Sequence* sequence);
  static void ReadAnnotations(const trace::TrackEvent& event, const Sequence& sequence, TraceSlice* out);
  static std::string Find(const Texts& texts, uint64_t iid) {
    auto at = texts.find(iid);
    return at == texts.end() ? "" : at->second;
  }

  std::map<uint32_t, Sequence> sequences_;
  std::map<uint64_t, uint64_t> parent_of_;  // track -> process
  std::map<uint64_t, TraceSlice> open_;     // by track
};

}  // namespace weir
