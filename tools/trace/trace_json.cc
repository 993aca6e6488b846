#include "tools/trace/trace_json.h"

#include <string>

#include "nlohmann/json.hpp"
#include "runtime/trace/trace_names.h"
#include "tools/trace/causes.h"

namespace weir::trace {
namespace {

using Json = nlohmann::ordered_json;

Json ClassesJson(const std::vector<RankClass>& classes) {
  Json json = Json::array();
  for (const RankClass& of : classes) {
    json.push_back({{"rank", of.rank.value()},
                    {"ranks", of.ranks.size()},
                    {"text", absl::StrCat("ranks ", of.ranks.Text())}});
  }
  return json;
}

Json ReportJson(const TraceReport& report) {
  Json json;
  json["plan"] = report.plan_id;
  json["ranks"] = report.num_ranks;
  if (report.by_symmetry()) {
    json["by_symmetry"] = {{"ranks_simulated", report.NumRanksHere()},
                           {"text", SymmetryText(report.classes)},
                           {"classes", ClassesJson(report.classes)}};
  }
  json["stages"] = report.num_stages;
  json["stages_in_a_row"] = report.stages_in_a_row;
  json["virtual_stages"] = report.virtual_stages;
  json["micro_batches"] = report.micro_batches;
  json["first_step"] = NumberOfStep(report.first_step);
  json["last_step"] = NumberOfStep(report.last_step);
  if (report.left_out_step.has_value()) json["left_out_step"] = NumberOfStep(*report.left_out_step);
  json["window_ns"] = report.window_ns;
  json["step_ns"] = report.step_ns;
  json["bubble"] = report.bubble;
  json["bubble_formula"] = report.bubble_formula;
  json["schedule"] = report.schedule;
  json["pipeline_bubble"] = report.pipeline_bubble;
  json["predicted_bubble"] = report.predicted_bubble;
  json["devices"] = Json::array();
  for (const DeviceReport& d : report.devices) {
    json["devices"].push_back({{"rank", d.rank.value()},
                               {"name", d.name},
                               {"busy", d.busy},
                               {"waits_for_input", d.waits_for_input},
                               {"waits_for_credit", d.waits_for_credit},
                               {"between_acts", d.between_acts},
                               {"acts_dropped", d.acts_dropped}});
    if (d.queue.has_value()) json["devices"].back()["queue"] = d.queue.value();
    if (d.core_share >= 0) json["devices"].back()["core_share"] = d.core_share;
  }
  json["exposed"] = Json::array();
  for (const ExposedReport& e : report.exposed) {
    json["exposed"].push_back({{"boxing", e.boxing},
                               {"ns_per_step", e.ns_per_step},
                               {"share", e.share},
                               {"share_sent", e.share_sent},
                               {"times", e.times}});
  }
  json["waits"] = Json::array();
  for (const WaitReport& w : report.waits) {
    json["waits"].push_back({{"rank", w.rank.value()},
                             {"for", w.kind == WaitReport::Kind::kInput ? "input" : "credit"},
                             {"register", w.register_name},
                             {"holder", w.holder},
                             {"total_ns", w.total_ns},
                             {"times", w.times},
                             {"share", w.share}});
  }
  return json;
}

Json PathJson(const CriticalPath& path) {
  Json json;
  json["first_step"] = NumberOfStep(path.first_step);
  json["last_step"] = NumberOfStep(path.last_step);
  json["step_ns"] = path.step_ns;
  json["phases"] = path.phases;
  json["ranks"] = Json::object();
  for (const auto& [rank, share] : path.ranks) json["ranks"][absl::StrCat(rank)] = share;
  json["in_transfer"] = path.in_transfer;
  json["between_acts"] = path.between_acts;
  json["acts"] = Json::array();
  for (const PathActs& a : path.acts) {
    json["acts"].push_back({{"rank", a.rank.value()},
                            {"function", a.function},
                            {"phase", a.phase},
                            {"share", a.share},
                            {"ns_per_step", a.ns_per_step},
                            {"acts_per_step", a.acts_per_step}});
  }
  json["edges"] = Json::array();
  for (const PathEdge& e : path.edges) {
    json["edges"].push_back({{"register", e.name},
                             {"from", e.from.value()},
                             {"to", e.to.value()},
                             {"what", e.kind == PathEdge::Kind::kToken ? "token" : "slot"},
                             {"share", e.share},
                             {"ns_per_step", e.ns_per_step},
                             {"times_per_step", e.times_per_step}});
  }
  return json;
}

std::vector<int32_t> Numbers(const std::vector<RankId>& ranks) {
  std::vector<int32_t> numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value());
  return numbers;
}

Json StepPathsJson(const StepPaths& paths) {
  Json json = Json::array();
  for (const StepPath& path : paths.steps) {
    Json groups = Json::array();
    for (const PathGroup& group : path.groups) {
      groups.push_back({{"cause", PathCauseName(group.cause)},
                        {"name", group.name},
                        {"ranks", Numbers(group.ranks)},
                        {"ns", group.ns},
                        {"share", group.share},
                        {"times", group.times},
                        {"longest_ns", group.longest.end - group.longest.begin}});
    }
    json.push_back(
        {{"step", NumberOfStep(path.step)}, {"ns", path.ns}, {"groups", std::move(groups)}});
  }
  return json;
}

Json SegmentsJson(const std::vector<NamedSegment>& segments) {
  Json json = Json::array();
  for (const NamedSegment& segment : segments) {
    Json& to = json.emplace_back(Json{{"begin_ns", segment.begin},
                                      {"end_ns", segment.end},
                                      {"cause", PathCauseName(segment.cause)},
                                      {"name", segment.name},
                                      {"rank", segment.rank.value()}});
    if (segment.sender.has_value()) to["from_rank"] = segment.sender.value();
  }
  return json;
}

Json MemoryJson(const MemoryUse& memory) {
  Json json = {{"step", NumberOfStep(memory.step)}, {"step_ns", memory.end - memory.begin}};
  json["ranks"] = Json::array();
  for (const RankMemory& rank : memory.ranks) {
    Json held = Json::array();
    for (const HeldTensor& tensor : rank.held) {
      held.push_back({{"name", tensor.name},
                      {"registers", tensor.registers},
                      {"slots", tensor.slots},
                      {"bytes", tensor.bytes},
                      {"writer", tensor.writer},
                      {"last_reader", tensor.last_reader},
                      {"lags", tensor.lags}});
      if (!tensor.writer.empty()) held.back()["written_at_ns"] = tensor.written_at;
      if (tensor.last_reader.empty()) continue;
      held.back()["reader_rank"] = tensor.reader_rank.value();
      held.back()["read_until_ns"] = tensor.read_until;
    }
    json["ranks"].push_back({{"rank", rank.rank.value()},
                             {"arena_bytes", rank.arena_bytes},
                             {"scratch_bytes", rank.scratch_bytes},
                             {"state_bytes", rank.state_bytes},
                             {"always_bytes", rank.always_bytes},
                             {"peak_bytes", rank.peak_bytes},
                             {"peak_at_ns", rank.peak_at - memory.begin},
                             {"peak_act", rank.peak_act},
                             {"most_bytes_of_parts", rank.most},
                             {"held", std::move(held)}});
  }
  return json;
}

void AddNote(const TransferNote& note, Json* to) {
  (*to)["changes"] = Json::array();
  for (const TransferNote::Change& change : note.changes)
    (*to)["changes"].push_back(
        {{"from", change.from}, {"to", change.to}, {"tensors", change.tensors}});
  if (note.from_stage != note.to_stage) {
    (*to)["from_stage"] = note.from_stage;
    (*to)["to_stage"] = note.to_stage;
  }
  (*to)["why"] = Json::array();
  for (const TransferNote::Reason& reason : note.why) {
    Json& why = (*to)["why"].emplace_back(Json{{"kind", reason.kind}, {"text", reason.text}});
    if (!reason.axis.empty()) why["axis"] = reason.axis;
  }
}

Json TransfersJson(const std::vector<TransferRow>& transfers) {
  Json json = Json::array();
  for (const TransferRow& row : transfers) {
    Json& to = json.emplace_back(Json{{"name", row.name},
                                      {"method", row.method},
                                      {"registers", row.registers},
                                      {"links", row.links},
                                      {"bytes_per_step", row.bytes_per_step},
                                      {"messages_per_step", row.messages_per_step},
                                      {"late_ns_per_step", row.late_ns_per_step},
                                      {"under_way_ns_per_step", row.under_way_ns_per_step},
                                      {"timed", row.timed}});
    if (row.note != nullptr) AddNote(*row.note, &to);
    if (row.timed > 0) {
      to["way_ns"] = row.timed_ns / static_cast<double>(row.timed);
      to["bytes_per_second"] = row.bytes_per_second();
    }
    if (row.planned_ns > 0) {
      to["planned_way_ns"] = row.planned_ns / static_cast<double>(row.timed);
      to["planned_bytes_per_second"] = row.planned_bytes_per_second();
    }
  }
  return json;
}

Json PressureJson(const BackPressure& pressure) {
  Json json;
  json["text"] = PressureText(pressure);
  json["nodes"] = Json::array();
  for (const PressureNode& node : pressure.nodes) {
    json["nodes"].push_back({{"name", node.name},
                             {"phase", node.phase},
                             {"actors", node.actors},
                             {"ranks", Numbers(node.ranks)},
                             {"row", node.row},
                             {"column", node.column},
                             {"busy", node.busy},
                             {"starved", node.starved},
                             {"blocked", node.blocked},
                             {"ready", node.ready},
                             {"busy_ns_per_step", node.busy_ns_per_step}});
  }
  json["edges"] = Json::array();
  for (const PressureEdge& edge : pressure.edges) {
    json["edges"].push_back({{"from", edge.from},
                             {"to", edge.to},
                             {"registers", edge.registers},
                             {"worst", edge.worst},
                             {"lags", edge.lags},
                             {"bytes_per_step", edge.bytes_per_step},
                             {"slots_in_use", edge.slots_in_use},
                             {"full", edge.full},
                             {"starved_ns_per_step", edge.starved_ns_per_step},
                             {"blocked_ns_per_step", edge.blocked_ns_per_step},
                             {"held_up_ns_per_step", edge.held_up_ns_per_step}});
  }
  json["chain"] = pressure.chain;
  return json;
}

Json WhyJson(const WhySlow& why) {
  Json json;
  json["critical_path"] = PathJson(why.path);
  json["path_lines"] = Json::array();
  for (const PathLine& line : PathLines(why.path)) {
    json["path_lines"].push_back(
        {{"share", line.share}, {"ns_per_step", line.ns_per_step}, {"text", line.text}});
  }
  if (!why.segments.empty()) json["critical_path"]["segments"] = SegmentsJson(why.segments);
  json["typical_step"] = NumberOfStep(why.steps.typical_step);
  json["step_paths"] = StepPathsJson(why.steps);
  json["parts"] = Json::array();
  for (const StepPart& part : why.parts) {
    json["parts"].push_back(
        {{"name", Name(part.kind)}, {"share", part.share}, {"ns_per_step", part.ns_per_step}});
  }
  json["wait_roots"] = Json::array();
  for (const WaitRoot& root : why.roots) {
    json["wait_roots"].push_back({{"kind", Name(root.kind)},
                                  {"name", root.name},
                                  {"ranks", Numbers(root.ranks)},
                                  {"share", root.share},
                                  {"ns_per_step", root.ns_per_step}});
  }
  json["back_pressure"] = PressureJson(why.pressure);
  json["memory"] = MemoryJson(why.memory);
  json["transfers"] = TransfersJson(why.transfers);
  json["outliers"] = Json::array();
  for (const OutlierStep& outlier : why.outliers)
    json["outliers"].push_back({{"step", NumberOfStep(outlier.step)}, {"ns", outlier.ns}});
  json["median_step_ns"] = why.median_step_ns;
  json["recorded_step_ns"] = why.recorded_step_ns;
  json["replayed_step_ns"] = why.replayed_step_ns;
  json["slow_ranks"] = Json::array();
  for (const Straggler& slow : why.speeds.stragglers) {
    Json& to = json["slow_ranks"].emplace_back(Json{{"rank", slow.rank.value()},
                                                    {"factor", slow.factor},
                                                    {"more_ns_per_step", slow.more_ns_per_step},
                                                    {"peers", Numbers(slow.peers)}});
    to["functions"] = Json::array();
    for (const SlowFunction& f : slow.functions) {
      to["functions"].push_back({{"name", f.name},
                                 {"ns", f.own_ns},
                                 {"elsewhere_ns", f.others_ns},
                                 {"more_ns_per_step", f.more_ns_per_step}});
    }
  }
  json["advice"] = Advice(why);
  if (why.steps_of_changes > 0) json["what_if_steps"] = why.steps_of_changes;
  json["what_if"] = Json::array();
  for (const WhatIfRow& row : why.what_ifs) {
    Json& to = json["what_if"].emplace_back(
        Json{{"change", row.spec}, {"about", row.about}, {"finished", row.finished}});
    if (!row.finished) continue;
    to["step_ns"] = row.step_ns;
    to["gain"] = row.gain;
    to["more_bytes"] = row.more_bytes;
  }
  return json;
}

Json LastStateJson(const LastState& state) {
  Json json;
  json["missing_ranks"] = Numbers(state.missing);
  json["failures"] = Json::array();
  for (const MarkedFailure& failure : state.failures) {
    Json& to = json["failures"].emplace_back(Json{{"ns", failure.ns}, {"text", failure.text}});
    if (failure.rank.has_value()) to["rank"] = failure.rank.value();
  }
  json["sentences"] = state.sentences;
  json["ranks"] = Json::array();
  for (const OpenAct& act : state.acts) {
    Json& to = json["ranks"].emplace_back(Json{{"rank", act.rank.value()}, {"text", act.Text()}});
    if (act.need == OpenAct::Need::kNoStep) continue;
    to["function"] = act.function;
    to["step"] = NumberOfStep(act.step);
    to["micro_batch"] = act.micro_batch;
    if (act.need == OpenAct::Need::kNothing) continue;
    to["needs"] = act.need == OpenAct::Need::kToken ? "token" : "slot";
    to["register"] = act.register_name;
    if (act.holder_rank.has_value()) to["holder_rank"] = act.holder_rank.value();
    if (!act.holder.empty()) to["holder"] = act.holder;
  }
  return json;
}

}  // namespace

std::string ToJson(const TraceReport& report, const absl::StatusOr<WhySlow>& why,
                   const std::optional<LastState>& last_state) {
  Json json = ReportJson(report);
  if (why.ok()) {
    json["why_slow"] = WhyJson(*why);
    Json& causes = json["why_slow"]["causes"] = Json::array();
    for (const Cause& cause : FindCauses(report, *why)) {
      causes.push_back({{"share", cause.share},
                        {"ns_per_step", cause.ns_per_step},
                        {"text", cause.text},
                        {"view", cause.view}});
      if (!cause.find.empty()) causes.back()["find"] = cause.find;
    }
  } else {
    json["why_slow_error"] = std::string(why.status().message());
  }
  if (last_state.has_value()) json["last_state"] = LastStateJson(*last_state);
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace weir::trace
