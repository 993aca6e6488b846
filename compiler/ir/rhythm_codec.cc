#include "compiler/ir/rhythm_codec.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/rate_codec.h"

namespace weir::compiler {
namespace {

constexpr int kItemsMax = 1 << 20;
constexpr int kStationsMax = 1 << 16;  // of an item

void Set(const Station& station, proto::RhythmSpec::Station* out) {
  out->set_item(station.item);
  out->set_index(station.index);
}

bool IsStation(const proto::RhythmSpec::Station& in) {
  return in.item() >= 0 && in.item() < kItemsMax && in.index() >= 0 && in.index() < kStationsMax;
}

Station StationOf(const proto::RhythmSpec::Station& in) { return {in.item(), in.index()}; }

absl::Status Bad(const proto::RhythmSpec::Station& in) {
  return absl::InvalidArgumentError(
      absl::StrCat("a rhythm names the station ", in.item(), ".", in.index()));
}

}  // namespace

proto::RhythmSpec ToProto(const JobRhythm& rhythm) {
  proto::RhythmSpec spec;
  spec.set_iteration_ns(rhythm.iteration_ns);
  spec.set_micro_batch_ns(rhythm.micro_batch_ns);
  spec.set_bubble(rhythm.bubble);
  for (size_t item = 0; item < rhythm.stations.size(); ++item) {
    for (size_t index = 0; index < rhythm.stations[item].size(); ++index) {
      const StationTime& from = rhythm.stations[item][index];
      proto::RhythmSpec::Time* time = spec.add_time();
      Set({static_cast<int>(item), static_cast<int>(index)}, time->mutable_station());
      *time->mutable_timing() = weir::ToProto(Timing(from));
      time->set_latency_ns(from.latency_ns);
    }
  }
  for (const auto& [key, slots] : rhythm.slots) {
    proto::RhythmSpec::Family* family = spec.add_family();
    Set(key.producer, family->mutable_producer());
    for (const Station& consumer : key.consumers) Set(consumer, family->add_consumer());
    family->set_tokens(key.tokens);
    family->set_initial_tokens(key.initial_tokens);
    family->set_slots(slots);
  }
  return spec;
}

absl::StatusOr<JobRhythm> RhythmFromProto(const proto::RhythmSpec& spec) {
  JobRhythm rhythm;
  rhythm.iteration_ns = spec.iteration_ns();
  rhythm.micro_batch_ns = spec.micro_batch_ns();
  rhythm.bubble = spec.bubble();
  int64_t num_stations = 0;
  for (const proto::RhythmSpec::Time& time : spec.time()) {
    if (!IsStation(time.station())) return Bad(time.station());
    const size_t item = time.station().item(), index = time.station().index();
    if (rhythm.stations.size() <= item) rhythm.stations.resize(item + 1);
    std::vector<StationTime>& in_item = rhythm.stations[item];
    if (in_item.size() <= index) {
      num_stations += static_cast<int64_t>(index + 1 - in_item.size());
      // A sound message names every place, so a few bytes cannot ask for much memory.
      if (num_stations > spec.time_size()) return Bad(time.station());
      in_item.resize(index + 1);
    }
    in_item[index] = {FromProto(time.timing()), time.latency_ns()};
  }
  for (const proto::RhythmSpec::Family& family : spec.family()) {
    RegisterFamily key;
    if (!IsStation(family.producer())) return Bad(family.producer());
    key.producer = StationOf(family.producer());
    for (const proto::RhythmSpec::Station& consumer : family.consumer()) {
      if (!IsStation(consumer)) return Bad(consumer);
      key.consumers.push_back(StationOf(consumer));
    }
    key.tokens = family.tokens();
    key.initial_tokens = family.initial_tokens();
    rhythm.slots[std::move(key)] = family.slots();
  }
  return rhythm;
}

}  // namespace weir::compiler
