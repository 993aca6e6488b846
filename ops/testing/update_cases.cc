#include "ops/testing/update_cases.h"

#include <string>
#include <utility>

namespace weir::ops {
namespace {

constexpr Fill kN = Fill::kNormal, kP = Fill::kPositive;

// The norm of gradients, and updates element by element.
void AddUpdates(std::vector<OpCase>* cases) {
  cases->push_back({"sum_squares", "sum_squares", {}, {"f32[a=5, b=7]"}});
  cases->push_back(
      {"sum_squares of several", "sum_squares", {}, {"f32[a=5, b=7]", "f32[]", "f32[a=3]"}});
  cases->push_back(
      {"clip_scale", "clip_scale", {{"clip_norm", 0.5}}, {"f32[]"}, {Fill::kPositive}});
  cases->push_back(
      {"clip_scale off", "clip_scale", {{"clip_norm", 0.0}}, {"f32[]"}, {Fill::kPositive}});
  cases->push_back({"clip_scale with a loss scale",
                    "clip_scale",
                    {{"clip_norm", 0.5}},
                    {"f32[]", "f32[]"},
                    {Fill::kPositive, Fill::kPositive}});
  cases->push_back({"clip_scale with a loss scale that adapts",
                    "clip_scale",
                    {{"clip_norm", 0.5}},
                    {"f32[]", "f32[]", "f32[]"},
                    {Fill::kPositive, Fill::kPositive, Fill::kPositive}});
  cases->push_back({"adapt_loss_scale",
                    "adapt_loss_scale",
                    {{"growth_interval", int64_t{2}}},
                    {"f32[]"},
                    {Fill::kPositive},
                    -1,
                    {Fill::kPositive, Fill::kPositive}});
  Attributes adamw = {
      {"learning_rate", 0.01}, {"weight_decay", 0.1}, {"warmup_steps", int64_t{10}}};
  cases->push_back({"adamw",
                    "adamw",
                    adamw,
                    {"f32[a=5, b=7]", "f32[]"},
                    {kN, Fill::kPositive},
                    -1,
                    {kN, kN, Fill::kPositive},
                    2e-5,
                    3});
  cases->push_back({"sgd",
                    "sgd",
                    {{"learning_rate", 0.01}, {"weight_decay", 0.1}},
                    {"f32[a=5, b=7]", "f32[]"},
                    {kN, Fill::kPositive},
                    1,
                    {kN},
                    2e-5,
                    3});
  cases->push_back({"sgd with momentum",
                    "sgd",
                    {{"learning_rate", 0.01}, {"momentum", 0.9}},
                    {"f32[a=5, b=7]", "f32[]"},
                    {kN, Fill::kPositive},
                    -1,
                    {kN, kN},
                    2e-5,
                    3});
}

// Updates that are graphs.
void AddDirections(std::vector<OpCase>* cases) {
  const std::string whole = "f32[a=5, b=7]", scalar = "f32[]";
  const auto add = [&](const std::string& name, const std::string& op, const Attributes& attrs,
                       std::vector<std::string> inputs, std::vector<Fill> fills,
                       std::vector<Fill> initial) {
    cases->push_back(
        {name, op, attrs, std::move(inputs), std::move(fills), -1, std::move(initial), 2e-5, 3});
  };
  const Attributes rate = {{"learning_rate", 0.01}, {"weight_decay", 0.1}};
  add("lion", "lion", rate, {whole, scalar}, {kN, kP}, {kN, kN});
  // The direction is written, the moments are read and written.
  add("adam_direction", "adam_direction", {{"weight_decay", 0.1}}, {whole, scalar, whole},
      {kN, kP, kN}, {kN, kN, kP});
  add("momentum_direction", "momentum_direction", {}, {whole, scalar}, {kN, kP}, {kN, kN});
  add("momentum_direction without a look ahead", "momentum_direction", {{"nesterov", false}},
      {whole, scalar}, {kN, kP}, {kN, kN});
  add("moment_of_squares", "moment_of_squares", {{"count", 4.0}}, {"f32[a=5]", scalar}, {kP, kP},
      {kN, kP});
  add("weight_average", "weight_average", {{"average_decay", 0.9}}, {whole, scalar}, {kN, kP},
      {kN});
  add("weight_step", "weight_step", rate, {whole, scalar}, {kN, kP}, {kN});
  Attributes by_norms = rate;
  by_norms.Set("by", std::string("lamb"));
  add("weight_step of lamb", "weight_step", by_norms, {whole, scalar, scalar, scalar},
      {kN, kP, kP, kP}, {kN});
  by_norms.Set("by", std::string("adafactor"));
  by_norms.Set("count", 35.0);
  add("weight_step of adafactor", "weight_step", by_norms, {whole, scalar, scalar, scalar},
      {kN, kP, kP, kP}, {kN});
  add("unit_norm", "unit_norm", {}, {whole, scalar}, {kN, kP}, {});
  add("adafactor_direction of a matrix", "adafactor_direction", {{"count", 5.0}},
      {"f32[e=3, a=5, b=7]", scalar, "f32[e=3, a=5]", "f32[e=3, b=7]", "f32[e=3]"},
      {kN, kP, kP, kP, kP}, {});
  add("adafactor_direction of a vector", "adafactor_direction", {},
      {"f32[a=5]", scalar, "f32[a=5]"}, {kN, kP, kP}, {});
}

}  // namespace

void AddUpdateCases(std::vector<OpCase>* cases) {
  AddUpdates(cases);
  AddDirections(cases);
}

}  // namespace weir::ops
