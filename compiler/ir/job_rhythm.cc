#include "compiler/ir/job_rhythm.h"

#include "absl/strings/str_cat.h"

namespace weir::compiler {

const StationTime* JobRhythm::Find(const Station& station) const {
  if (station.item < 0 || station.item >= static_cast<int>(stations.size())) return nullptr;
  const std::vector<StationTime>& in_item = stations[station.item];
  if (station.index < 0 || station.index >= static_cast<int>(in_item.size()) ||
      in_item[station.index].time_ns == 0)
    return nullptr;
  return &in_item[station.index];
}

std::string ToText(const JobRhythm& rhythm) {
  std::string text = absl::StrCat("iteration ", rhythm.iteration_ns, " ns, micro-batch ",
                                  rhythm.micro_batch_ns, " ns\n");
  for (size_t item = 0; item < rhythm.stations.size(); ++item) {
    for (size_t place = 0; place < rhythm.stations[item].size(); ++place) {
      const StationTime& time = rhythm.stations[item][place];
      if (time.time_ns == 0) continue;
      absl::StrAppend(&text, "  station ", item, ".", place, " starts at ", time.start_ns, " + ",
                      time.micro_batch_stride_ns, " a micro-batch + ", time.chunk_stride_ns,
                      " a chunk, takes ", time.time_ns, " ns, messages ", time.latency_ns, " ns\n");
    }
  }
  for (const auto& [family, slots] : rhythm.slots) {
    absl::StrAppend(&text, "  outputs of ", family.producer.item, ".", family.producer.index,
                    " for ", family.consumers.size(), " readers, slots ", slots, "\n");
  }
  return text;
}

}  // namespace weir::compiler
