#include "tools/trace/trace_json.h"

#include <string>

#include "nlohmann/json.hpp"
#include "tools/trace/causes.h"

namespace weir::trace {
namespace {

using Json = nlohmann::ordered_json;

Json ReportJson(const TraceReport& report) {
  Json json;
  json["plan"] = report.plan_id;
  json["ranks"] = report.num_ranks;
  json["stages"] = report.num_stages;
  json["micro_batches"] = report.micro_batches;
  json["first_step"] = report.first_step;
  json["last_step"] = report.last_step;
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
  json["first_step"] = path.first_step;
  json["last_step"] = path.last_step;
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

Json WhyJson(const WhySlow& why) {
  Json json;
  json["critical_path"] = PathJson(why.path);
  json["path_lines"] = Json::array();
  for (const PathLine& line : PathLines(why.path)) {
    json["path_lines"].push_back(
        {{"share", line.share}, {"ns_per_step", line.ns_per_step}, {"text", line.text}});
  }
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
  json["outliers"] = Json::array();
  for (const OutlierStep& outlier : why.outliers)
    json["outliers"].push_back({{"step", outlier.step}, {"ns", outlier.ns}});
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
  json["sentences"] = state.sentences;
  json["ranks"] = Json::array();
  for (const OpenAct& act : state.acts) {
    Json& to = json["ranks"].emplace_back(Json{{"rank", act.rank.value()}, {"text", act.Text()}});
    if (act.need == OpenAct::Need::kNoStep) continue;
    to["function"] = act.function;
    to["step"] = act.step;
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
    for (const Cause& cause : FindCauses(report, *why))
      causes.push_back({{"share", cause.share}, {"text", cause.text}});
  } else {
    json["why_slow_error"] = std::string(why.status().message());
  }
  if (last_state.has_value()) json["last_state"] = LastStateJson(*last_state);
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace weir::trace
