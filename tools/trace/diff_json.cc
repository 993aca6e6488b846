#include "tools/trace/diff_json.h"

#include "nlohmann/json.hpp"
#include "runtime/trace/trace_names.h"

namespace weir::trace {
namespace {

using Json = nlohmann::ordered_json;

template <typename Number>
Json OrNull(const std::optional<Number>& number) {
  return number.has_value() ? Json(*number) : Json(nullptr);
}

Json RowsJson(const std::vector<DiffRow>& rows) {
  Json json = Json::array();
  for (const DiffRow& row : rows) {
    json.push_back({{"cause", row.cause},
                    {"name", row.name},
                    {"a_ns", OrNull(row.a_ns)},
                    {"b_ns", OrNull(row.b_ns)},
                    {"more_ns", row.more_ns()}});
  }
  return json;
}

}  // namespace

std::string ToJson(const RunDiff& diff, const std::string& a_name, const std::string& b_name) {
  Json json;
  json["a"] = {{"name", a_name}, {"ranks", diff.a_ranks}, {"step_ns", diff.a_step_ns}};
  json["b"] = {{"name", b_name}, {"ranks", diff.b_ranks}, {"step_ns", diff.b_step_ns}};
  json["verdict"] = Verdict(diff, a_name, b_name);
  json["actors_matched"] = diff.matched;
  json["actors_only_a"] = diff.only_a;
  json["actors_only_b"] = diff.only_b;
  json["steps"] = Json::array();
  for (const StepDiff& step : diff.steps)
    json["steps"].push_back({{"step", NumberOfStep(step.step)},
                             {"a_ns", OrNull(step.a_ns)},
                             {"b_ns", OrNull(step.b_ns)}});
  json["parts"] = RowsJson(diff.parts);
  json["path"] = RowsJson(diff.path);
  json["waits"] = RowsJson(diff.waits);
  json["work"] = Json::array();
  for (const WorkDiff& work : diff.work) {
    json["work"].push_back({{"name", work.name},
                            {"phase", work.phase},
                            {"a_ns", work.a_ns},
                            {"b_ns", work.b_ns},
                            {"more_ns", work.more_ns()},
                            {"a_act_ns", work.a_act_ns},
                            {"b_act_ns", work.b_act_ns},
                            {"matched", work.matched},
                            {"only_a", work.only_a},
                            {"only_b", work.only_b}});
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace weir::trace
