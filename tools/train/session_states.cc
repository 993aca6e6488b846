#include "tools/train/session_states.h"

#include <string.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/store/slice_runs.h"

namespace weir {
namespace {

constexpr size_t kNamesShown = 5;

bool Belongs(const std::string& name, StateSet set) {
  bool weight = !absl::StrContains(name, "/");
  return set == StateSet::kWeights ? weight : !absl::StartsWith(name, "fetch/");
}

// Calls visit(rank, state) for each shard of `name`, ranks in order.
template <typename F>
absl::Status ForEachShard(const Session& session, const std::string& name, F&& visit) {
  for (int rank = 0; rank < session.num_ranks(); ++rank) {
    for (const PlanState& state : session.plan(rank).states) {
      if (state.name == name) WEIR_RETURN_IF_ERROR(visit(rank, state));
    }
  }
  return absl::OkStatus();
}

// The shards of `name` cut out of the whole tensor, to every rank that holds one.
absl::Status ScatterState(const std::string& whole, const std::string& name, Session* session) {
  return ForEachShard(*session, name, [&](int rank, const PlanState& state) -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(absl::Span<char> memory, session->StateMemory(rank, name));
    int64_t width = SizeOf(state.slice.dtype);
    ForEachRun(state.slice, [&](int64_t local, int64_t global, int64_t count) {
      memcpy(memory.data() + local * width, whole.data() + global * width, static_cast<size_t>(count * width));
    });
    return absl::OkStatus();
  });
}

// "a, b, c and 4 more"
std::string NameSome(const std::vector<std::string>& names) {
  std::vector<std::string> shown(names.begin(), names.begin() + static_cast<int64_t>(std::min(names.size(), kNamesShown)));
  std::string text = absl::StrJoin(shown, ", ");
  if (names.size() > shown.size()) absl::StrAppend(&text, " and ", names.size() - shown.size(), " more");
  return text;
}

absl::Status CheckNames(const SafetensorsReader& file, StateSet set, const std::map<std::string, StateType>& states) {
  std::vector<std::string> missing, extra;
  for (const auto& [name, type] : states) {
    if (file.tensors().count(name) == 0) missing.push_back(name);
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (Belongs(name, set) && states.count(name) == 0) extra.push_back(name);
  }
  if (missing.empty() && extra.empty()) return absl::OkStatus();
  std::string found;
  if (!missing.empty()) found = absl::StrCat("no ", NameSome(missing));
  if (!extra.empty()) absl::StrAppend(&found, found.empty() ? "" : "; ", "unknown to the model: ", NameSome(extra));
  std::string hint = "use weights saved from the same model";
  if (!missing.empty() && set == StateSet::kAll && absl::StrContains(missing[0], "/")) {
    hint = "weights alone (written by --save) start a run with --init; --resume needs a --checkpoint";
  }
  return Rejected({"W0071", file.path(), absl::StrCat("exactly the ", states.size(), " tensors of the model"), found, hint});
}

}  // namespace

std::map<std::string, StateType> StatesOf(const Session& session, StateSet set) {
  std::map<std::string, StateType> states;
  for (int rank = 0; rank < session.num_ranks(); ++rank) {
    for (const PlanState& state : session.plan(rank).states) {
      if (Belongs(state.name, set)) states[state.name] = {state.slice.dtype, state.slice.global_shape};
    }
  }
  return states;
}

absl::StatusOr<std::string> GatherState(const Session& session, const std::string& name) {
  std::string whole;
  int64_t covered = 0, elements = -1;
  WEIR_RETURN_IF_ERROR(ForEachShard(session, name, [&](int rank, const PlanState& state) -> absl::Status {
    if (elements < 0) {
      elements = NumElements(state.slice.global_shape);
      whole.resize(static_cast<size_t>(elements * SizeOf(state.slice.dtype)));
    }
    if (!state.owner) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(absl::Span<char> memory, session.StateMemory(rank, name));
    int64_t width = SizeOf(state.slice.dtype);
    ForEachRun(state.slice, [&](int64_t local, int64_t global, int64_t count) {
      memcpy(whole.data() + global * width, memory.data() + local * width, static_cast<size_t>(count * width));
    });
    covered += state.slice.num_elements();
    return absl::OkStatus();
  }));
  if (covered != elements) {
    return absl::InternalError(absl::StrCat("W0072 at state ", name, ": expected owners of ", elements,
                                            " elements; found owners of ", covered, "."));
  }
  return whole;
}

absl::Status SaveStates(const Session& session, StateSet set, const std::map<std::string, std::string>& metadata,
                        const std::string& path) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, type] : StatesOf(session, set)) entries.push_back({name, type.dtype, type.shape});
  WEIR_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(path, std::move(entries), metadata));
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(std::string whole, GatherState(session, writer->entries()[i].name));
    WEIR_RETURN_IF_ERROR(writer->Write(i, whole.data()));
  }
  return writer->Commit();
}

absl::Status LoadStates(const SafetensorsReader& file, StateSet set, Session* session) {
  std::map<std::string, StateType> states = StatesOf(*session, set);
  WEIR_RETURN_IF_ERROR(CheckNames(file, set, states));
  // Shapes and dtypes of all first: reading an empty slice checks them and touches nothing.
  for (const auto& [name, type] : states) {
    TensorSlice nothing{type.dtype, Shape(type.shape.size(), 0), Shape(type.shape.size(), 0), type.shape};
    if (type.shape.empty()) {
      char scalar[8];
      WEIR_RETURN_IF_ERROR(file.Read(name, TensorSlice::Whole(type.dtype, {}), scalar));
    } else {
      WEIR_RETURN_IF_ERROR(file.Read(name, nothing, nullptr));
    }
  }
  for (const auto& [name, type] : states) {
    WEIR_RETURN_IF_ERROR(ForEachShard(*session, name, [&](int rank, const PlanState& state) -> absl::Status {
      WEIR_ASSIGN_OR_RETURN(absl::Span<char> memory, session->StateMemory(rank, state.name));
      return file.Read(state.name, state.slice, memory.data());
    }));
  }
  return absl::OkStatus();
}

absl::Status CopyWeights(const Session& from, Session* to) {
  for (const auto& [name, type] : StatesOf(*to, StateSet::kWeights)) {
    WEIR_ASSIGN_OR_RETURN(std::string whole, GatherState(from, name));
    if (static_cast<int64_t>(whole.size()) != NumElements(type.shape) * SizeOf(type.dtype)) {
      return absl::InternalError(absl::StrCat("weight ", name, " differs between two plans of one job"));
    }
    WEIR_RETURN_IF_ERROR(ScatterState(whole, name, to));
  }
  return absl::OkStatus();
}

}  // namespace weir
