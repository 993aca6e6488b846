#include "compiler/passes/place_calls.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// The most names that a message lists.
constexpr size_t kNamesShown = 12;

bool Matches(const std::string& pattern, const std::string& name) {
  return FitsPattern(name, pattern, Wildcards::kStar);
}

std::string ToText(const PipelineSettings::Place& place) {
  return place.call.empty() ? absl::StrCat("function \"", place.function, "\"")
                            : absl::StrCat("call \"", place.call, "\"");
}

std::string Listed(std::vector<std::string> names) {
  if (names.size() > kNamesShown) {
    names.resize(kNamesShown);
    names.push_back("…");
  }
  return absl::StrJoin(names, ", ");
}

class CallPlacer {
 public:
  CallPlacer(const std::vector<PipelineSettings::Place>& places, PipelineSchedule* schedule,
             Module* module)
      : places_(places),
        schedule_(*schedule),
        module_(*module),
        calls_(module->model.calls),
        reads_(calls_.size()),
        stage_of_(calls_.size()) {
    for (size_t c = 0; c < calls_.size(); ++c) {
      for (const int value : calls_[c].args) {
        const int from = module_.model.values[value].call;
        if (from >= 0) reads_[c].push_back(from);
      }
      std::sort(reads_[c].begin(), reads_[c].end());
    }
  }

  absl::Status Run() {
    WEIR_RETURN_IF_ERROR(TakePlaces());
    if (schedule_.num_stages == 1) {
      for (ModelCall& call : calls_) call.part = call.stage = 0;
      return absl::OkStatus();
    }
    FollowOthers();
    for (size_t c = 0; c < calls_.size(); ++c) calls_[c].part = calls_[c].stage = *stage_of_[c];
    WEIR_RETURN_IF_ERROR(CheckWork());
    FindEdges();
    WEIR_RETURN_IF_ERROR(CheckNoCircle());
    std::vector<std::vector<int64_t>> before(schedule_.num_stages);
    for (const auto& [edge, calls] : edges_) before[edge.second].push_back(edge.first);
    SetStageGraph(std::move(before), &schedule_);
    return absl::OkStatus();
  }

 private:
  const std::string& FunctionOf(const ModelCall& call) const {
    return module_.functions[module_.model.functions[call.model_function].forward].name;
  }

  // Gives each call the stage of the first place that matches it.
  absl::Status TakePlaces() {
    for (const PipelineSettings::Place& place : places_) {
      int fits = -1;  // a call that the entry matches
      bool takes_any = false;
      for (size_t c = 0; c < calls_.size(); ++c) {
        if (place.call.empty() ? !Matches(place.function, FunctionOf(calls_[c]))
                               : !Matches(place.call, calls_[c].name))
          continue;
        fits = static_cast<int>(c);
        if (stage_of_[c].has_value()) continue;
        takes_any = true;
        stage_of_[c] = place.stage;
      }
      if (fits < 0) return Unknown(place);
      if (!takes_any) {
        return Rejected(
            {"W0461", absl::StrCat("pipeline.place of ", ToText(place)),
             "a call that no earlier entry matches, as the first entry that matches a call counts",
             absl::StrCat("calls of earlier entries alone: ", calls_[fits].name, " is on stage ",
                          *stage_of_[fits]),
             "the entry for fewer calls in front of the other"});
      }
      const int64_t stages = schedule_.num_stages;
      if (place.stage >= 0 && (place.stage < stages || stages == 1)) continue;
      return Rejected(
          {"W0454", absl::StrCat("pipeline.place of ", ToText(place)),
           absl::StrCat("a stage from 0 to ", stages - 1, ", as the mesh has pp=", stages),
           absl::StrCat("stage ", place.stage),
           place.stage < 0 ? "stage: 0"
           : place.stage < static_cast<int64_t>(calls_.size())
               ? absl::StrCat("--mesh pp=", place.stage + 1)
               : absl::StrCat("stage: ", stages - 1)});
    }
    return absl::OkStatus();
  }

  absl::Status Unknown(const PipelineSettings::Place& place) const {
    std::vector<std::string> names;
    for (const ModelCall& call : calls_) {
      const std::string& name = place.call.empty() ? FunctionOf(call) : call.name;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    const std::string near = Nearest(place.call.empty() ? place.function : place.call, names);
    return Rejected(
        {"W0453", "pipeline.place",
         place.call.empty() ? "a function that main calls" : "a call of main", ToText(place),
         near.empty() ? absl::StrCat("one of ", Listed(names)) : absl::StrCat("\"", near, "\"")});
  }

  // Gives the other calls the stage of the last call that they read, or else of the first call that
  // reads them.
  void FollowOthers() {
    FollowReads();
    std::vector<std::vector<int>> readers(calls_.size());  // by call, ascending
    for (size_t c = 0; c < calls_.size(); ++c) {
      for (const int from : reads_[c]) readers[from].push_back(static_cast<int>(c));
    }
    for (size_t c = calls_.size(); c-- > 0;) {
      for (size_t r = 0; r < readers[c].size() && !stage_of_[c].has_value(); ++r)
        stage_of_[c] = stage_of_[readers[c][r]];
    }
    FollowReads();
    for (std::optional<int64_t>& stage : stage_of_) {
      if (!stage.has_value()) stage = 0;
    }
  }

  void FollowReads() {
    for (size_t c = 0; c < calls_.size(); ++c) {
      for (size_t r = reads_[c].size(); r-- > 0 && !stage_of_[c].has_value();)
        stage_of_[c] = stage_of_[reads_[c][r]];
    }
  }

  absl::Status CheckWork() const {
    for (int64_t stage = 0; stage < schedule_.num_stages; ++stage) {
      if (std::any_of(calls_.begin(), calls_.end(),
                      [&](const ModelCall& call) { return call.stage == stage; }))
        continue;
      std::vector<std::string> names;
      for (const ModelCall& call : calls_)
        names.push_back(absl::StrCat(call.name, " (", call.stage, ")"));
      return Rejected(
          {"W0455", "pipeline.place",
           absl::StrCat("a call on each of the ", schedule_.num_stages, " stages of the mesh"),
           absl::StrCat("none on stage ", stage,
                        "; calls and their stages: ", Listed(std::move(names))),
           absl::StrCat("a place for stage ", stage, ", or a smaller mesh axis pp")});
    }
    return absl::OkStatus();
  }

  // Keeps one pair of calls for each edge between stages.
  void FindEdges() {
    for (size_t c = 0; c < calls_.size(); ++c) {
      for (const int from : reads_[c]) {
        if (calls_[from].stage != calls_[c].stage)
          edges_.try_emplace({calls_[from].stage, calls_[c].stage}, from, static_cast<int>(c));
      }
    }
  }

  absl::Status CheckNoCircle() const {
    std::vector<int64_t> before(schedule_.num_stages, 0);
    for (const auto& [edge, calls] : edges_) ++before[edge.second];
    std::vector<int64_t> ready;
    for (int64_t s = 0; s < schedule_.num_stages; ++s) {
      if (before[s] == 0) ready.push_back(s);
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      for (const auto& [edge, calls] : edges_) {
        if (edge.first == ready[i] && --before[edge.second] == 0) ready.push_back(edge.second);
      }
    }
    if (static_cast<int64_t>(ready.size()) == schedule_.num_stages) return absl::OkStatus();
    return Rejected(
        {"W0456", "pipeline.place",
         "stages that a micro-batch passes one after the other, and to none of which it comes back",
         absl::StrCat("a circle: ", CircleText(before)),
         "the calls of the circle on one stage, or a place for a call that has none"});
  }

  // Returns the reads that lead around a circle. `before` is above 0 at the stages that lie on
  // circles or after them.
  std::string CircleText(const std::vector<int64_t>& before) const {
    // Each of these stages reads another of them, so going back comes to a stage again.
    std::vector<std::pair<int64_t, int64_t>> way;  // edges, from the last to the first
    int64_t at = std::find_if(before.begin(), before.end(), [](int64_t n) { return n > 0; }) -
                 before.begin();
    const auto leads_to = [&](const std::pair<int64_t, int64_t>& edge) {
      return edge.second == at;
    };
    while (std::none_of(way.begin(), way.end(), leads_to)) {
      const auto edge = std::find_if(edges_.begin(), edges_.end(), [&](const auto& entry) {
        return leads_to(entry.first) && before[entry.first.first] > 0;
      });
      way.push_back(edge->first);
      at = edge->first.first;
    }
    const auto first = std::find_if(way.begin(), way.end(), leads_to) - way.begin();
    std::vector<std::string> reads;
    for (size_t i = way.size(); i-- > static_cast<size_t>(first);) {
      const std::pair<int, int>& calls = edges_.at(way[i]);
      reads.push_back(absl::StrCat(calls_[calls.second].name, " on stage ", way[i].second,
                                   " reads ", calls_[calls.first].name, " on stage ",
                                   way[i].first));
    }
    return Listed(std::move(reads));
  }

  const std::vector<PipelineSettings::Place>& places_;
  PipelineSchedule& schedule_;
  Module& module_;
  std::vector<ModelCall>& calls_;
  std::vector<std::vector<int>> reads_;  // by call: the calls whose results it reads, ascending
  std::vector<std::optional<int64_t>> stage_of_;  // by call
  // By edge: a call of the first stage, and a call of the second that reads it.
  std::map<std::pair<int64_t, int64_t>, std::pair<int, int>> edges_;
};

}  // namespace

absl::Status PlaceCalls(const std::vector<PipelineSettings::Place>& places,
                        PipelineSchedule* schedule, Module* module) {
  return CallPlacer(places, schedule, module).Run();
}

}  // namespace weir::compiler
