#include "tools/view/plan_file.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace weir::view {
namespace {

using Json = nlohmann::ordered_json;

// A value takes up to 70 bytes, and two in the file.
constexpr int64_t kValuesMax = 1'000'000;
constexpr int64_t kDepthMax = 32;

// The fields that the page reads (tools/view/page/bundle.ts). A plan may lack those with `?`. The
// one element of a list stands for all.
constexpr char kFields[] = R"({
  "plan_id": "",
  "fit": {"fits": true, "text": "", "?device_bytes_max": 0},
  "?rules_found": {"text": "", "job_text": ""},
  "lines": {"job": "", "step": "", "memory": "", "bytes": "", "?time": "", "?hosts": "",
            "?precision": ""},
  "warnings": [""],
  "prediction": {"step_seconds": 0},
  "devices": [{"rank": 0, "name": "", "computing": 0, "packing": 0, "waiting": 0, "bytes": 0}],
  "schedule": {"kind": "", "bubble_of_even_parts": 0, "predicted_bubble": 0, "text": "",
               "parts": [{"stage": 0, "in_flight": 0, "calls": [""]}]},
  "bytes_per_step": 0,
  "boxings": [{"name": "", "method": "", "layouts": "", "bytes_per_step": 0, "times": 0,
               "?stages": "", "?why": "",
               "?busiest_link": {"from": 0, "to": 0, "bytes_per_step": 0}}],
  "functions": [{"name": "", "first_call": "", "calls": 0,
                 "tensors": [{"name": "", "what": "", "role": "", "type": "", "layout": "",
                              "why": ""}]}],
  "ranks": [{"rank": 0, "device": "", "actors": 0, "registers": 0, "arena_bytes": 0,
             "memory": {"weight_bytes": 0, "optimiser_bytes": 0, "register_bytes": 0,
                        "landing_bytes": 0, "scratch_bytes": 0, "most_alive_bytes": 0,
                        "largest": [{"name": "", "bytes": 0, "slots": 0, "from": "", "until": "",
                                     "why": ""}]}}]
})";

// Counts what a text holds, and takes no memory for it.
class Counter : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool key(string_t&) override { return Count(); }
  bool start_object(size_t) override { return Begin(); }
  bool end_object() override { return End(); }
  bool start_array(size_t) override { return Begin(); }
  bool end_array() override { return End(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    absl::string_view what = error.what();
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    problem_ = absl::StrCat("no JSON at byte ", position, ": ", what);
    return false;
  }

 private:
  bool Count() {
    if (++values_ <= kValuesMax) return true;
    problem_ = absl::StrCat("JSON with more than ", kValuesMax, " values");
    return false;
  }
  bool Begin() {
    if (++depth_ <= kDepthMax) return Count();
    problem_ = absl::StrCat("JSON with more than ", kDepthMax, " levels");
    return false;
  }
  bool End() {
    --depth_;
    return true;
  }

  std::string problem_;
  int64_t values_ = 0, depth_ = 0;
};

const char* KindOf(const Json& value) {
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return "null";
}

std::string Within(const std::string& place, absl::string_view name) {
  return place.empty() ? std::string(name) : absl::StrCat(place, ".", name);
}

// Returns what `value`, which is at `place`, lacks to be like `example`; empty: nothing.
std::string Lack(const Json& value, const Json& example, const std::string& place) {
  if (absl::string_view(KindOf(value)) != KindOf(example)) {
    return absl::StrCat("JSON whose ", place.empty() ? "whole" : place, " is ", KindOf(value),
                        ", and not ", KindOf(example));
  }
  if (example.is_array()) {
    size_t number = 0;
    for (const Json& element : value) {
      std::string lack = Lack(element, example[0], Within(place, absl::StrCat(number++)));
      if (!lack.empty()) return lack;
    }
  }
  if (!example.is_object()) return "";
  for (const auto& field : example.items()) {
    absl::string_view name = field.key();
    const bool may_lack = absl::ConsumePrefix(&name, "?");
    const auto found = value.find(std::string(name));
    if (found == value.end() && may_lack) continue;
    if (found == value.end()) return absl::StrCat("JSON without ", Within(place, name));
    std::string lack = Lack(*found, field.value(), Within(place, name));
    if (!lack.empty()) return lack;
  }
  return "";
}

absl::Status NoPlan(const std::string& path, const std::string& found) {
  return Damaged({"W0538", path, "a trace, a job as protobuf text, or a plan as JSON", found,
                  "weir plan JOB --json > FILE, or weir view JOB, with the flags of weir plan"});
}

}  // namespace

absl::StatusOr<Json> ReadPlanFile(absl::string_view text, const std::string& path) {
  Counter counter;
  if (!Json::sax_parse(text.begin(), text.end(), &counter)) return NoPlan(path, counter.problem());
  Json plan = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (plan.is_discarded()) return NoPlan(path, "JSON that cannot be read");
  static const Json& example = *new Json(Json::parse(kFields));
  if (const std::string lack = Lack(plan, example, ""); !lack.empty()) return NoPlan(path, lack);
  if (plan["functions"].empty()) return NoPlan(path, "JSON without a function in `functions`");
  return plan;
}

}  // namespace weir::view
