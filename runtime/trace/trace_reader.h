// A trace file as values: its slices by process with their annotations, the two ends of
// each flow, what it says of the job and of the plan of each rank.
// Not here: what it means (trace_report.h, recorded_run.h).
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"

namespace weir {

// What a slice says of itself, by name. There are few, and slices are many: they stand in a row, not in a tree.
template <typename Value>
class TraceAnnotations {
 public:
  using Entry = std::pair<std::string, Value>;
  using const_iterator = typename std::vector<Entry>::const_iterator;

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  const_iterator find(absl::string_view name) const {
    return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.first == name; });
  }
  size_t count(absl::string_view name) const { return find(name) == end() ? 0 : 1; }
  // The value of `name`, which is added if it is not there.
  Value& operator[](absl::string_view name) {
    for (Entry& entry : entries_) {
      if (entry.first == name) return entry.second;
    }
    entries_.emplace_back(std::string(name), Value());
    return entries_.back().second;
  }
  void Reserve(size_t count) { entries_.reserve(count); }

 private:
  std::vector<Entry> entries_;
};

struct TraceSlice {
  int64_t begin = 0;
  int64_t end = 0;
  std::string category;
  std::string name;
  TraceAnnotations<std::string> texts;
  TraceAnnotations<int64_t> numbers;
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
  // other bytes, and refuses a file whose texts, tracks and plans would take more than 6 times its size and 16 MiB: a text that is
  // written once can be the name of any number of slices.
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
  // A slice that has begun, with the flows of tokens that begin and end at its end.
  struct OpenSlice {
    TraceSlice slice;
    std::vector<uint64_t> sends, takes;
  };
  struct Sequence {
    Texts names, categories, annotations, strings;
  };
  void OnPacket(const trace::TracePacket& packet);
  void OnTrack(const trace::TrackDescriptor& track);
  void OnEvent(const trace::TrackEvent& event, int64_t ns, Sequence& sequence);
  void OnSliceEnd(uint64_t track, uint64_t process, int64_t ns);
  void OnInstant(const trace::TrackEvent& event, uint64_t process, const Sequence& sequence);
  void Learn(const trace::InternedData& data, Sequence* sequence);
  void ReadAnnotations(const trace::TrackEvent& event, const Sequence& sequence, TraceSlice* out);
  // Counts what is kept; `text` as its own bytes.
  void Keep(int64_t bytes) { kept_bytes_ += bytes; }
  const std::string& Keep(const std::string& text) {
    Keep(static_cast<int64_t>(text.size()));
    return text;
  }
  bool IsFull() const { return kept_bytes_ > kept_bytes_max_; }
  static const std::string& Find(const Texts& texts, uint64_t iid) {
    static const std::string kNone;
    auto at = texts.find(iid);
    return at == texts.end() ? kNone : at->second;
  }

  std::map<uint32_t, Sequence> sequences_;
  std::map<uint64_t, uint64_t> parent_of_;  // track -> process
  std::map<uint64_t, OpenSlice> open_;      // by track
  int64_t kept_bytes_ = 0, kept_bytes_max_ = 0;
};

}  // namespace weir
