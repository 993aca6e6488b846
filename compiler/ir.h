// The compiler's view of a model: functions of nodes over values, and a program of
// calls. Every pass reads and writes this and nothing else.
//
// A Function is compiled once however often it is called. It is straight-line: nodes stand
// in an order in which every value is defined before it is used. Values carry a
// logical type (the tensor of one micro-batch, whole over all devices) and, once
// propagate_layouts has run, a layout over the stage mesh. The op "boxing" changes
// the layout of a value; no other op's operands ever need one after insert_boxing.
//
// A Module joins functions by a Program: items (calls, boxings, sources, sinks) over program
// values, each with a stage and a rate (per micro-batch or per step).
//
// Thread rule: plain data, one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/defs/op_def.h"
#include "proto/graph.pb.h"
#include "sbp/boxing.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"

namespace weir::compiler {

inline constexpr char kBoxingOp[] = "boxing";

struct Value {
  std::string name;
  TensorType type;
  Layout layout;    // over the stage mesh; empty before propagate_layouts
  std::string why;  // why this layout, for people
};

struct Node {
  std::string name;
  std::string op;
  std::vector<ValueId> inputs;   // -1: absent optional
  std::vector<ValueId> outputs;  // may be fewer than the op has: trailing optional ones dropped
  Attributes attrs;
  uint64_t rng_key = 0;
  std::string where;  // "function block, node q", for messages
};

enum class ArgKind : uint8_t {
  kActivation,  // layout by the rules
  kParameter,   // a weight, in its compute layout
  kFixed,       // layout given: stashes, gradients, scalars of the runtime
};

// Integers from 0 to below `below`, because something reads them as indices or the graph declares
// it.
struct IndexRange {
  int64_t below = 0;
  std::string
      reader;  // for people: who has room for no more, "an index along dimension vocab of …"
  bool of_rows = false;  // some reader looks up rows of a table: the values are tokens
};

struct Arg {
  ValueId value = -1;
  ArgKind kind = ArgKind::kActivation;
  std::optional<IndexRange> declared;  // by the user's function
};

enum class ResultKind : uint8_t {
  kActivation,  // boxed to the layout of the rules
  kFixed,       // boxed to `layout`
  kNatural,     // whatever layout falls out (parameter gradients, losses, stashes)
};

struct Result {
  ValueId value = -1;
  ResultKind kind = ResultKind::kActivation;
  Layout layout;          // kFixed
  bool per_step = false;  // kept over acts and published once a step, or at the rate of the program
                          // value that it becomes
};

struct ParameterInfo {
  std::string name;
  Initializer init;
  bool decay = false;
  int arg = -1;  // index in Function::args
};

struct Function {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Arg> args;
  std::vector<Result> results;
  std::vector<ParameterInfo> parameters;
  // Values that live in persistent memory named after the call's parameter or fetch
  // ("adam_m"): written and read in place by the node that outputs them.
  std::map<ValueId, std::string> states;
  // Values that the backward pass finds kept, besides arguments; none: all that it reads.
  std::optional<std::vector<ValueId>> keep;

  ValueId AddValue(std::string name, TensorType type);
  // Index of the node that outputs `value`, or -1 (an argument).
  int ProducerOf(ValueId value) const;
  int ArgOf(ValueId value) const;  // -1: none
};

// One function as text, stable, for dumps and golden tests.
std::string ToText(const Function& function, const Mesh& stage_mesh);

// ---- the model as the user wrote it: functions and the calls of `main` ----

// How a model function and its gradient hang together, filled by differentiate.
struct ModelFunction {
  int forward = -1;
  int backward = -1;    // -1: nothing to differentiate
  int num_results = 0;  // results of the user; stashes follow in Function::results
  std::vector<char> arg_needs_grad;
  // Where each argument of `backward` comes from.
  struct BackwardArg {
    enum Kind : uint8_t {
      kForwardArg,
      kForwardResult,
      kResultGrad,
      kBackwardResult
    } kind = kForwardArg;
    int index = 0;
  };
  std::vector<BackwardArg> backward_args;
  // Results of `backward`, in order: gradients of these forward arguments (activations
  // and parameters alike).
  std::vector<int> backward_results;
  // What split-backward took out of `backward`: gradients of parameters that no other gradient
  // needs. What these read of `backward` follows in its results after those of `backward_results`.
  int weight_gradient = -1;  // -1: not split
  std::vector<BackwardArg> weight_gradient_args;
  std::vector<int> weight_gradient_results;  // as backward_results
};

// How a model reads what data feeds it.
struct InputUse {
  std::optional<IndexRange> range;  // none: any value will do
  bool needed = true;               // the result of some call depends on it, so plans feed it
};

struct ModelValue {
  std::string name;
  TensorType type;
  int call = -1;  // the call that produces it, or -1: fed by data under `name`
  int result = 0;
  InputUse use = {};  // of what is fed
};

struct ModelCall {
  int model_function = -1;
  std::string name;       // "layers.3"
  std::vector<int> args;  // model values for the activation arguments, in order
  std::vector<int> results;
  int64_t part = 0;  // of the pipeline; part i lies on stage i % stages
  int64_t stage = 0;
};

struct Model {
  std::vector<ModelFunction> functions;
  std::vector<ModelValue> values;
  std::vector<ModelCall> calls;
  int loss = -1;                                     // model value
  std::vector<std::pair<std::string, int>> metrics;  // scalar outputs of main, loss first
  int logits = -1;                                   // kGenerate: the model value to fetch
};

// ---- program ----

// Of acts of an item, and tokens of a value.
enum class Rate : uint8_t {
  kMicroBatch,
  kStep,
  // Where weights are updated every H-th step only: once in H steps, in the step that updates, or,
  // after it, in the first of the next H.
  kUpdate,
  kAfterUpdate,
};
enum class ItemKind : uint8_t { kCall, kBoxing, kSource, kSink, kKeep };
enum class PhaseKind : uint8_t {
  kForward,
  kBackward,
  kWeightGradient,
  kUpdate,
  kBoxing,
  kData,
  kMetric
};

struct ProgramValue {
  std::string name;
  TensorType type;
  Layout layout;
  int64_t stage = 0;
  Rate rate = Rate::kMicroBatch;
  int variable = -1;     // index in Module::variables: present before the first step
  int64_t delay = 0;     // tokens by which readers lag: those of the first reads are zeros
  int gradient_of = -1;  // with a delay: the index in Module::variables of the weight that this is
                         // the gradient of
};

struct ProgramItem {
  ItemKind kind = ItemKind::kCall;
  PhaseKind phase = PhaseKind::kForward;
  std::string name;
  int function = -1;      // kCall
  uint64_t instance = 0;  // the call of the user's model this belongs to
  int64_t part = 0;       // of the pipeline: the part that this works for
  Rate rate = Rate::kMicroBatch;
  std::vector<int> inputs;          // program values
  std::vector<int> outputs;         // kBoxing: outputs[i] is inputs[i] in its new place
  std::string feed;                 // kSource, kSink
  std::optional<IndexRange> range;  // kSource: of the values fed
  std::string state_prefix;         // kCall with function states: state k is named state_names[k]
  std::vector<std::string> state_names;
  std::vector<Layout> state_layouts;
};

// A trained weight of one call.
struct Variable {
  std::string name;  // "layers.3.wq"
  TensorType type;   // f32
  Initializer init;
  bool decay = false;
  int64_t stage = 0;
  Layout layout;   // at rest
  int value = -1;  // the program value that holds it
};

struct Module {
  Model model;
  // A deque, so that references stay valid where passes add functions.
  std::deque<Function> functions;
  std::vector<ProgramValue> values;
  std::vector<ProgramItem> items;
  std::vector<Variable> variables;
  int AddValue(ProgramValue value) {
    values.push_back(std::move(value));
    return static_cast<int>(values.size()) - 1;
  }
};

// The program as text, stable: variables, then items. Empty before build-program.
std::string ProgramText(const Module& module, const Mesh& stage_mesh);

}  // namespace weir::compiler
