// Builds functions and models by hand, for tests of the compiler, without a job and its graph.
// Failures to build are failures of the test. Not here: what a model computes (evaluate_step.h).
// Thread rule: one thread, one maker.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/layout_rules.h"

namespace weir::compiler {

// Returns the dimensions that types of tests may name: batch=4, rows=6, wide=4, deep=8, classes=4,
// and heads=8 in units of 4.
const std::map<std::string, sbp::TensorDim>& TestDims();

// Parses "f32[batch, wide]" over TestDims.
sbp::TensorType TypeOf(const std::string& text);

sbp::Mesh MeshOf(const std::string& text);

// Returns the rules {dimension, axis} of a job, with explicit layouts {"function/tensor", layout}.
using Pairs = std::vector<std::pair<std::string, std::string>>;
LayoutRules RulesOf(const sbp::Mesh& stage_mesh, const Pairs& rules, const Pairs& layouts = {});

class FunctionMaker {
 public:
  explicit FunctionMaker(const std::string& name) { function.name = name; }

  ops::ValueId Input(const std::string& name, const std::string& type);
  ops::ValueId Parameter(const std::string& name, const std::string& type);

  // Adds a node with the attributes' defaults, and returns its first `num_outputs` results. The
  // first result has the name of the node, and the result k the name "node.k".
  std::vector<ops::ValueId> Nodes(int num_outputs, const std::string& name, const std::string& op,
                                  const std::vector<ops::ValueId>& inputs, Attributes attrs = {});
  ops::ValueId Node(const std::string& name, const std::string& op,
                    const std::vector<ops::ValueId>& inputs, Attributes attrs = {}) {
    return Nodes(1, name, op, inputs, std::move(attrs))[0];
  }
  void Return(ops::ValueId value) { function.results.push_back({value}); }

  Function function;
};

class ModelMaker {
 public:
  // Adds a function, all of whose results are the user's. Returns its index among the model's.
  int Add(Function function);
  // Adds an input that data feeds. Returns the model value.
  int Data(const std::string& name, const std::string& type);
  // Returns the model values of the results.
  std::vector<int> Call(const std::string& name, int model_function, const std::vector<int>& args);

  Module module;
};

// Returns a classifier of two residual layers, which are two calls of one function:
//   x -> layers.0 -> layers.1 -> main.1 (logits, softmax_cross_entropy with `labels`, loss)
Module SmallClassifier();

// Returns the value of that name. Names of one function are unique here.
ops::ValueId Find(const Function& function, const std::string& name);

// Returns a line "h = matmul(x, w)" for each node.
std::vector<std::string> NodeLines(const Function& function);

// Returns all that a pass may change as text: functions with the kinds of their arguments and
// results, names, types, layouts, attributes and random keys; the links between functions; the
// model's values and calls; the program.
std::string EverythingOf(const Module& module, const sbp::Mesh& stage_mesh);

}  // namespace weir::compiler
