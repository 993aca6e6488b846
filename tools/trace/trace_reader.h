// A TraceReader holds a trace file as values: its slices by process with their annotations, the two
// ends of each flow, and the file's statements about the job and about the plan of each rank. Not
// here: the meaning of the values (trace_report.h, recorded_run.h).
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/trace.pb.h"
#include "runtime/base/ids.h"

namespace weir::trace {

// A SharedText is a text of a TraceReader that many slices have; the text lives as long as the
// reader.
class SharedText {
 public:
  SharedText() : text_(&None()) {}
  explicit SharedText(const std::string* text) : text_(text) {}

  const std::string& text() const { return *text_; }
  operator const std::string&() const { return *text_; }
  friend bool operator==(const SharedText& a, absl::string_view b) { return *a.text_ == b; }

 private:
  static const std::string& None() {
    static const std::string kNone;
    return kNone;
  }
  const std::string* text_;
};

// Holds the annotations of a slice, by name. Annotations are few and slices are many, so
// annotations are stored in an array, not in a tree.
template <typename Value>
class TraceAnnotations {
 public:
  using Entry = std::pair<SharedText, Value>;
  using const_iterator = typename std::vector<Entry>::const_iterator;

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  const_iterator find(absl::string_view name) const {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& entry) { return entry.first == name; });
  }
  size_t count(absl::string_view name) const { return find(name) == end() ? 0 : 1; }
  // Replaces the earlier value of that name.
  void Set(SharedText name, Value value) {
    for (Entry& entry : entries_) {
      if (entry.first == name.text()) {
        entry.second = value;
        return;
      }
    }
    entries_.emplace_back(name, value);
  }
  void Reserve(size_t count) { entries_.reserve(count); }

 private:
  std::vector<Entry> entries_;
};

struct TraceSlice {
  int64_t begin = 0;
  int64_t end = 0;
  SharedText category;
  SharedText name;
  TraceAnnotations<SharedText> texts;
  TraceAnnotations<int64_t> numbers;
};

// A TraceProcess is a rank. Slices are in the order in which they ended.
struct TraceProcess {
  std::string name;
  RankId rank;  // none: the trace does not say which
  int64_t acts_dropped = 0;
  std::vector<TraceSlice> slices;
};

// A TraceFlowEnd is an act that sent or took the token of a flow, of another rank.
struct TraceFlowEnd {
  uint64_t flow = 0;
  SharedText actor;
  uint64_t process = 0;
  int64_t end = 0;
};

// A MarkedFailure is a failure that the trace of a failed job marks.
struct MarkedFailure {
  int64_t ns = 0;    // when the starter of the job noticed it
  RankId rank;       // of the process that failed; none: the job as a whole
  std::string text;  // "killed by SIGKILL (9)"
};

// Reads the packets one by one and resolves interned texts per sequence.
class TraceReader {
 public:
  TraceReader() = default;
  // A move keeps the shared texts in place; a copy would share them with the original.
  TraceReader(TraceReader&&) = default;
  TraceReader& operator=(TraceReader&&) = default;

  // `file` is the bytes, `name` is the name of the bytes in errors. kDataLoss (W0531) if they are
  // no trace of Weir. Never crashes on other bytes, and refuses a file whose texts, tracks, flows
  // and plans would take more than 6 times its size and 16 MiB. A text that is written once is kept
  // once, for any number of slices.
  absl::Status Read(absl::string_view file, absl::string_view name = "trace file");

  std::map<uint64_t, TraceProcess> processes;  // by track
  std::map<RankId, proto::PlanFacts> plans;
  std::vector<TraceFlowEnd> senders, takers;  // in the order in which the acts ended
  std::vector<MarkedFailure> failures;        // in the order of the file
  std::map<std::string, std::string> job_texts;
  std::map<std::string, int64_t> job_numbers;
  bool has_job = false;

  // Return the trace's statements about its job; empty or 0 if there are none.
  std::string JobText(const std::string& name) const {
    auto at = job_texts.find(name);
    return at == job_texts.end() ? std::string() : at->second;
  }
  int64_t JobNumber(const std::string& name) const {
    auto at = job_numbers.find(name);
    return at == job_numbers.end() ? 0 : at->second;
  }
  // Returns the step of an act, from 0 on as everywhere in the code (runtime/trace/trace_names.h):
  // all readers of a step ask here. None: the slice has no step, or one that no run has.
  std::optional<int64_t> StepOf(const TraceSlice& slice) const;

 private:
  using Texts = std::unordered_map<uint64_t, SharedText>;
  // An OpenSlice is a slice that has begun, with the flows of tokens that begin and end at its end.
  struct OpenSlice {
    TraceSlice slice;
    std::vector<uint64_t> sends, takes;
  };
  struct Sequence {
    Texts names, categories, annotations, strings;
  };
  void OnPacket(const proto::TracePacket& packet);
  void OnTrack(const proto::TrackDescriptor& track);
  void OnEvent(const proto::TrackEvent& event, int64_t ns, Sequence& sequence);
  void OnSliceEnd(uint64_t track, uint64_t process, int64_t ns);
  void OnInstant(const proto::TrackEvent& event, uint64_t process, int64_t ns,
                 const Sequence& sequence);
  void Learn(const proto::InternedData& data, Sequence* sequence);
  void ReadAnnotations(const proto::TrackEvent& event, const Sequence& sequence, TraceSlice* out);
  // Counts the bytes that are kept.
  void Keep(int64_t bytes) { kept_bytes_ += bytes; }
  SharedText Share(const std::string& text);
  bool IsFull() const { return kept_bytes_ > kept_bytes_max_; }
  static SharedText Find(const Texts& texts, uint64_t iid) {
    auto at = texts.find(iid);
    return at == texts.end() ? SharedText() : at->second;
  }

  std::map<uint32_t, Sequence> sequences_;
  std::map<uint64_t, uint64_t> parent_of_;  // track -> process
  std::map<uint64_t, OpenSlice> open_;      // by track
  std::unordered_set<std::string> shared_;  // texts of slices, each once; they do not move
  bool steps_count_from_0_ = true;          // those of files of earlier versions do
  int64_t kept_bytes_ = 0, kept_bytes_max_ = 0;
};

}  // namespace weir::trace
