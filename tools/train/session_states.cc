#include "tools/train/session_states.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/engine/finite_watch.h"
#include "runtime/base/finite.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/stored_dtype.h"
#include "runtime/store/weight_index.h"
#include "tools/checkpoint/transition.h"

namespace weir::train {
namespace {

constexpr size_t kNamesShown = 5;

// Calls visit(rank, state) for each shard of each state of `set` on the local ranks.
template <typename F>
absl::Status ForEachShard(const actors::Session& session, StateSet set, F&& visit) {
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (BelongsTo(state.state_class, set)) WEIR_RETURN_IF_ERROR(visit(rank, state));
    }
  }
  return absl::OkStatus();
}

// Names for a message, which shows the first few. A file may have very many unknown names.
class SomeNames {
 public:
  void Add(const std::string& name) {
    if (shown_.size() < kNamesShown) shown_.push_back(name);
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  const std::string& front() const { return shown_.front(); }
  // Returns "a, b, c and 4 more".
  std::string Text() const {
    std::string text = absl::StrJoin(shown_, ", ");
    if (count_ > shown_.size()) absl::StrAppend(&text, " and ", count_ - shown_.size(), " more");
    return text;
  }

 private:
  std::vector<std::string> shown_;
  size_t count_ = 0;
};

absl::Status CheckNames(const store::SafetensorsReader& file,
                        const std::map<std::string, StateType>& states) {
  SomeNames missing, extra;
  size_t needed = 0;
  for (const auto& [name, type] : states) {
    if (!BelongsTo(type.state_class, StateSet::kAll)) continue;
    ++needed;
    if (file.tensors().count(name) == 0) missing.Add(name);
  }
  // The weights are those of the model, and only what the training keeps beside them differs.
  bool has_weights = true, has_others = false;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto state = states.find(name);
    if (state != states.end()) {
      has_others = has_others || state->second.state_class != actors::StateClass::kWeight;
      continue;
    }
    extra.Add(name);
    const bool is_of_weight =
        states.count(name.substr(0, name.rfind('/'))) > 0 || absl::StartsWith(name, "loss_scale/");
    has_weights = has_weights && is_of_weight;
    has_others = has_others || is_of_weight;
  }
  for (const auto& [name, type] : states) {
    if (type.state_class == actors::StateClass::kWeight && file.tensors().count(name) == 0)
      has_weights = false;
  }
  if (missing.empty() && extra.empty()) return absl::OkStatus();
  std::string found;
  if (!missing.empty()) found = absl::StrCat("no ", missing.Text());
  if (!extra.empty())
    absl::StrAppend(&found, found.empty() ? "" : "; ", "unknown to the model: ", extra.Text());
  std::string hint = "use weights saved from the same model";
  if (const std::string one_of = store::OneOfSeveralText(file.path()); !one_of.empty()) {
    absl::StrAppend(&found, "; the file is ", one_of);
    hint = store::IndexOfShard(file.path());
  } else if (has_weights && has_others) {
    hint = absl::StrCat(
        "the training.optimizer, training.group, training.average, training.gradient_delay, "
        "training.precision and training.loss_scale of "
        "the run that wrote it; or --init ",
        file.path(), ", which begins anew with its weights alone");
  } else if (!missing.empty() &&
             states.at(missing.front()).state_class != actors::StateClass::kWeight) {
    hint =
        "weights alone (written by --save) start a run with --init; --resume needs a --checkpoint";
  }
  return Rejected({"W0071", file.path(),
                   absl::StrCat("exactly the ", needed, " tensors of the model"), found, hint});
}

store::StateOwner OwnerOf(actors::StateClass state_class) {
  switch (state_class) {
    case actors::StateClass::kOptimizerSlot: return store::StateOwner::kOptimizerSlot;
    case actors::StateClass::kDelayedGradient: return store::StateOwner::kDelayedGradient;
    case actors::StateClass::kWeight:
    case actors::StateClass::kFetched: break;
  }
  return store::StateOwner::kWeight;
}

}  // namespace

bool BelongsTo(actors::StateClass state_class, StateSet set) {
  return set == StateSet::kWeights ? state_class == actors::StateClass::kWeight
                                   : state_class != actors::StateClass::kFetched;
}

std::map<std::string, StateType> StatesOf(const actors::Session& session, StateSet set) {
  std::map<std::string, StateType> states;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (BelongsTo(state.state_class, set))
        states[state.name] = {state.slice.dtype, state.slice.global_shape, state.state_class};
    }
  }
  return states;
}

absl::Status CheckCheckpoint(const store::SafetensorsReader& file,
                             const std::map<std::string, StateType>& states) {
  WEIR_RETURN_IF_ERROR(CheckNames(file, states));
  std::map<std::string, checkpoint::ExpectedState> expected;
  for (const auto& [name, type] : states) {
    if (BelongsTo(type.state_class, StateSet::kAll))
      expected[name] = {store::StoredName(type.dtype), type.shape, OwnerOf(type.state_class)};
  }
  checkpoint::TransitionOptions options;
  options.states = &expected;
  return checkpoint::CheckTransition(file, options).status();
}

weights::WeightTypes WeightTypesOf(const std::map<std::string, StateType>& states) {
  weights::WeightTypes types;
  for (const auto& [name, type] : states) {
    if (BelongsTo(type.state_class, StateSet::kWeights)) types[name] = {type.dtype, type.shape};
  }
  return types;
}

absl::StatusOr<weights::MappedWeights> OpenWeights(const LoadOrder& order) {
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        weights::OpenValues(order.path, order.values));
  if (order.map == nullptr) return weights::MappedWeights(std::move(file));
  std::shared_ptr<const store::SafetensorsReader> constants;
  if (!order.constants.empty()) {
    WEIR_ASSIGN_OR_RETURN(constants, store::SafetensorsReader::Open(order.constants));
  }
  return weights::MappedWeights(std::move(file), order.map, std::move(constants));
}

absl::Status LoadShards(const weights::MappedWeights& from, StateSet set,
                        actors::Session* session) {
  return ForEachShard(
      *session, set, [&](RankId rank, const actors::PlanState& state) -> absl::Status {
        if (from.IsFresh(state.name)) return absl::OkStatus();
        return session->FillState(
            rank, state.name, [&](char* host) { return from.Read(state.name, state.slice, host); });
      });
}

absl::Status LoadWeights(std::shared_ptr<const store::SafetensorsReader> file,
                         const weights::MapPlaces& places, actors::Session* session,
                         const weights::WeightTypes& unused) {
  weights::WeightTypes types = WeightTypesOf(StatesOf(*session, StateSet::kWeights));
  types.insert(unused.begin(), unused.end());
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                        weights::MapWeights(std::move(file), places, types));
  return LoadShards(mapped, StateSet::kWeights, session);
}

absl::StatusOr<std::unique_ptr<store::SafetensorsWriter>> BeginSave(
    const std::map<std::string, StateType>& states, StateSet set,
    const std::map<std::string, std::string>& metadata, const std::string& path) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const auto& [name, type] : states) {
    if (BelongsTo(type.state_class, set)) entries.push_back({name, type.dtype, type.shape});
  }
  return store::SafetensorsWriter::Create(path, std::move(entries), metadata);
}

void AddValues(RankId rank, const TensorSlice& slice, const void* data, SavedPart* part) {
  const int64_t count = slice.num_elements();
  part->elements += count;
  if (!part->nonfinite.empty() || AllFinite(slice.dtype, data, count)) return;
  part->nonfinite =
      absl::StrCat(actors::NonfiniteText(slice.dtype, data, count), " on rank ", rank);
}

absl::StatusOr<std::map<std::string, SavedPart>> SaveShards(const actors::Session& session,
                                                            StateSet set,
                                                            const std::string& temporary_path,
                                                            const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsPart> part,
                        store::SafetensorsPart::Open(temporary_path, path));
  std::map<std::string, SavedPart> parts;
  WEIR_RETURN_IF_ERROR(
      ForEachShard(session, set, [&](RankId rank, const actors::PlanState& state) -> absl::Status {
        if (!state.owner) return absl::OkStatus();
        WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(rank, state.name));
        AddValues(rank, state.slice, memory.data(), &parts[state.name]);
        return part->Write(state.name, state.slice, memory.data());
      }));
  WEIR_RETURN_IF_ERROR(part->Flush());
  return parts;
}

Nonfinite NonfiniteInFiles(OnNonfinite on_nonfinite) {
  return on_nonfinite == OnNonfinite::kContinue ? Nonfinite::kKeep : Nonfinite::kRefuse;
}

absl::Status NotFinite(const std::string& path, const std::string& state,
                       const std::string& found) {
  return ErrorOf(absl::StatusCode::kOutOfRange,
                 {"W0963", absl::StrCat(path, ", state ", state), "finite values to keep", found,
                  "an earlier checkpoint with a lower training.schedule.learning_rate"});
}

absl::Status NoteParts(const std::map<std::string, SavedPart>& parts, const SaveOrder& order,
                       store::SafetensorsWriter* writer) {
  for (const auto& [name, part] : parts) {
    if (order.nonfinite == Nonfinite::kRefuse && !part.nonfinite.empty()) {
      return NotFinite(order.path, name, part.nonfinite);
    }
    WEIR_RETURN_IF_ERROR(writer->NotePart(name, part.elements));
  }
  return absl::OkStatus();
}

absl::Status CopyWeights(const actors::Session& from, weights::Values values, actors::Session* to) {
  return ForEachShard(
      *to, StateSet::kWeights, [&](RankId rank, const actors::PlanState& state) -> absl::Status {
        if (to->IsShared(rank, state.name)) return absl::OkStatus();
        const IdVector<StateId, actors::PlanState>& sources = from.plan(rank).states;
        const auto find = [&sources](const std::string& name) {
          return std::find_if(sources.begin(), sources.end(),
                              [&name](const actors::PlanState& s) { return s.name == name; });
        };
        auto source = values == weights::Values::kAverages ? find(weights::AverageOf(state.name))
                                                           : sources.end();
        if (source == sources.end()) source = find(state.name);
        if (source == sources.end() || source->slice.shape != state.slice.shape ||
            source->slice.offset != state.slice.offset ||
            source->slice.dtype != state.slice.dtype) {
          return ErrorOf(absl::StatusCode::kInternal,
                         {"W0072", absl::StrCat("weight ", state.name, ", rank ", rank),
                          "the same shard in both plans of the job", "another", ""});
        }
        WEIR_ASSIGN_OR_RETURN(const device::HostView weight, from.ReadState(rank, source->name));
        return to->WriteState(rank, state.name, weight.bytes());
      });
}

}  // namespace weir::train
