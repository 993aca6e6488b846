// The compiler's view of a model: functions of nodes over values, and a program of calls. The
// passes read and write this view and nothing else.
//
// The compiler compiles a Function once, however often the model calls the function. A Function is
// straight-line: its nodes stand in an order that defines every value before its first use. A value
// carries a logical type (the tensor of one micro-batch, whole over all devices). After the pass
// propagate-layouts a value also carries a layout over the mesh of its stages. The op "boxing"
// changes the layout of a value. After propagate-layouts no other op needs an operand in another
// layout.
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

#include "compiler/ir/layout_reason.h"
#include "ops/defs/op_def.h"
#include "proto/graph.pb.h"
#include "sbp/boxing.h"
#include "sbp/layout.h"
#include "sbp/mesh.h"

namespace weir::compiler {

inline constexpr char kBoxingOp[] = "boxing";
inline constexpr char kMovingAverageOp[] = "moving_average";

struct Value {
  std::string name;
  sbp::TensorType type;
  sbp::Layout layout;  // over the stage mesh; empty before propagate_layouts
  LayoutReasons why;   // why the value has this layout
};

struct Node {
  std::string name;
  std::string op;
  std::vector<ops::ValueId> inputs;  // -1: absent optional
  std::vector<ops::ValueId>
      outputs;  // may be fewer than the op has: trailing optional ones dropped
  Attributes attrs;
  uint64_t rng_key = 0;
  std::string where;  // "function block, node q", for messages
  // A rule of the job has the node compute in this precision; none: the node computes in that of
  // the job. The pass apply-precision reads it.
  std::optional<DType> precision = {};
};

enum class ArgKind : uint8_t {
  kActivation,  // layout by the rules
  kParameter,   // a weight, in its compute layout
  kFixed,       // layout given: stashes, gradients, scalars of the runtime
};

// The values are integers from 0 to below `below`, because an op reads them as indices or the graph
// declares the range. All readers ignore the value `ignored`, which may lie outside.
struct IndexRange {
  int64_t below = 0;
  // The reader that sets `below`, for people: "an index along dimension vocab of …".
  std::string reader;
  bool of_rows = false;  // some reader looks up rows of a table: the values are tokens
  std::optional<int64_t> ignored = {};
};

struct Arg {
  ops::ValueId value = -1;
  ArgKind kind = ArgKind::kActivation;
  std::optional<IndexRange> declared;  // by the user's function
};

enum class ResultKind : uint8_t {
  kActivation,  // boxed to the layout of the rules
  kFixed,       // boxed to `layout`
  kNatural,     // any layout (parameter gradients, losses, stashes)
};

struct Result {
  ops::ValueId value = -1;
  ResultKind kind = ResultKind::kActivation;
  sbp::Layout layout;  // kFixed
  // The value is kept over acts and published once a step, or at the rate of its program value.
  bool per_step = false;
};

struct ParameterInfo {
  std::string name;
  proto::Initializer init;
  bool decay = false;
  bool frozen = false;  // training leaves the parameter as it is
  int arg = -1;         // index in Function::args
  // The caller gives the weight as this input of the graph's function; -1: each call has a weight
  // of its own, and `init` and `decay` are those of the weight.
  int input = -1;
  // Above 0: some moving_average has the parameter for its average, and this is the share of the
  // new sample in an update.
  float momentum = 0;
};

struct Function {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Arg> args;
  std::vector<Result> results;
  std::vector<ParameterInfo> parameters;
  // Values that live in persistent memory named after the call's parameter or fetch ("adam_m"). The
  // node that outputs such a value reads and writes the memory in place.
  std::map<ops::ValueId, std::string> states;
  // Values that forward keeps for the backward pass, besides arguments. None: all values that
  // backward reads.
  std::optional<std::vector<ops::ValueId>> keep;
  // The function is laid out by the rules of this stage, over its mesh; -1: by the rules of all
  // stages, which have one mesh. If stages have unequal meshes, every function has a stage.
  int64_t rules_of_stage = -1;
  // Returns a stage with the mesh of the function.
  int64_t stage_of_mesh() const { return rules_of_stage < 0 ? 0 : rules_of_stage; }

  ops::ValueId AddValue(std::string name, sbp::TensorType type);
  // Returns the index of the node that outputs `value`, or -1 (an argument).
  int ProducerOf(ops::ValueId value) const;
  int ArgOf(ops::ValueId value) const;  // -1: none
  bool IsFrozen(int arg) const;         // whether argument `arg` is a frozen parameter
  // Returns the number of arguments before `arg` that are no parameters.
  size_t ActivationsBefore(int arg) const;
};

// Returns one function as stable text, for dumps and golden tests.
std::string ToText(const Function& function, const sbp::Mesh& stage_mesh);

// ---- the model as the user wrote it: functions and the calls of `main` ----

// Links a model function to its gradient. The pass differentiate fills in this struct.
struct ModelFunction {
  int forward = -1;
  int backward = -1;    // -1: nothing to differentiate
  int num_results = 0;  // results of the user; stashes follow in Function::results
  std::vector<char> arg_needs_grad;
  // The source of each argument of `backward`.
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
  // The results of `backward`, in order: the gradients of these forward arguments (activations and
  // parameters alike).
  std::vector<int> backward_results;
  // The function that split-backward took out of `backward`: the gradients of parameters that no
  // other gradient needs. The values that this function reads from `backward` are results of
  // `backward`, after `backward_results`.
  int weight_gradient = -1;  // -1: not split
  std::vector<BackwardArg> weight_gradient_args;
  std::vector<int> weight_gradient_results;  // as backward_results
  // The function that the pass compute-ahead took out of `forward`: what a call computes from data
  // once a step, before any micro-batch. Its arguments are these arguments of `forward`; its
  // results are the last arguments of `forward`. -1: none.
  int ahead = -1;
  std::vector<int> ahead_args;
};

// The model's use of an input that data feeds.
struct InputUse {
  std::optional<IndexRange> range;  // none: any value will do
  bool needed = true;               // the result of some call depends on it, so plans feed it
};

struct ModelValue {
  std::string name;
  sbp::TensorType type;
  int call = -1;  // the call that produces it, or -1: fed by data under `name`
  int result = 0;
  InputUse use = {};  // only for a value that data feeds
  // The call that computes the value once a step from data, as result `result` of
  // ModelFunction::ahead; `call` is -1 then. -1: another value.
  int ahead_of = -1;
};

// A weight of the model. Several calls may read it.
struct ModelWeight {
  std::string name;  // "layers.3.wq"; a weight of main: "table"
  proto::Initializer init;
  bool decay = false;
  bool frozen = false;
  int group = -1;  // TrainingSettings::groups; -1: none
};

// A PrecisionUse counts the nodes that a rule of precision is for; a call counts with all its
// nodes.
struct PrecisionUse {
  DType precision = DType::kF32;
  int64_t nodes = 0;  // that the rule is the first to fit
  int64_t fits = 0;   // nodes that fit the rule, perhaps after another
};

struct ModelCall {
  int model_function = -1;
  std::string name;          // "layers.3"
  std::vector<int> args;     // model values for the activation arguments, in order
  std::vector<int> weights;  // model weights for Function::parameters, in order
  std::vector<int> results;
  int64_t part = 0;  // of the pipeline; part i lies on stage i % stages
  int64_t stage = 0;
};

struct Model {
  std::vector<ModelFunction> functions;
  std::vector<ModelValue> values;
  std::vector<ModelWeight> weights;
  std::vector<ModelCall> calls;
  int loss = -1;                                     // model value
  std::vector<std::pair<std::string, int>> metrics;  // scalar outputs of main, loss first
  // The outputs of a model without a loss, each with its name and its model value.
  std::vector<std::pair<std::string, int>> fetched;
  int logits = -1;                           // kGenerate: the model value to fetch
  std::vector<PrecisionUse> precision_uses;  // by rule of TrainingSettings::precision_rules
  int64_t nodes_of_calls = 0;                // with such rules: of the user's graph
};

// ---- program ----

// A Frequency says how often an item acts, or how often a token of a value comes.
enum class Frequency : uint8_t {
  kMicroBatch,
  kStep,
  // Both kinds act once in H steps, and exist only if weights are updated every H-th step. kUpdate
  // acts in the step that updates. kAfterUpdate acts in the step after, the first of the next H.
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
  sbp::TensorType type;
  sbp::Layout layout;
  int64_t stage = 0;
  Frequency frequency = Frequency::kMicroBatch;
  int variable = -1;  // index in Module::variables: present before the first step
  // The number of tokens by which readers lag. The first reads return zeros.
  int64_t delay = 0;
  // The weight (index in Module::variables) whose gradient the value is; -1 without a delay.
  int gradient_of = -1;
};

// Persistent memory that a call of the program writes.
struct ItemState {
  std::string name;    // unique in the program
  std::string weight;  // the optimiser keeps the state for this weight; empty: a fetched result
  sbp::Layout layout;
};

struct ProgramItem {
  ItemKind kind = ItemKind::kCall;
  PhaseKind phase = PhaseKind::kForward;
  std::string name;
  int function = -1;      // kCall
  uint64_t instance = 0;  // the call of the user's model that the item belongs to
  int64_t part = 0;       // the pipeline part that the item works for
  Frequency frequency = Frequency::kMicroBatch;
  std::vector<int> inputs;          // program values
  std::vector<int> outputs;         // kBoxing: outputs[i] is inputs[i] in its new placement
  LayoutReasons why;                // kBoxing: why the tensors arrive in another layout
  std::string feed;                 // kSource, kSink
  std::optional<IndexRange> range;  // kSource: of the values fed
  std::vector<ItemState> states;    // kCall: those of the function, in the order of their values
};

// A weight of one call.
struct Variable {
  std::string name;      // "layers.3.wq"
  sbp::TensorType type;  // f32
  proto::Initializer init;
  bool decay = false;
  int64_t stage = 0;
  sbp::Layout layout;  // at rest
  int value = -1;      // the program value that holds it
  // Above 0: updates move the variable by this share towards samples (ops/defs/moving_average.cc).
  // 0: a gradient trains the variable.
  float momentum = 0;
  int group = -1;  // TrainingSettings::groups; -1: none
  // The name of what the variable is a slot of, as slots of the optimiser are; empty: a weight.
  std::string slot_of;
};

struct Module {
  Model model;
  // A deque keeps references valid when passes add functions.
  std::deque<Function> functions;
  std::vector<ProgramValue> values;
  std::vector<ProgramItem> items;
  std::vector<Variable> variables;
  int AddValue(ProgramValue value) {
    values.push_back(std::move(value));
    return static_cast<int>(values.size()) - 1;
  }
};

// Returns the program as stable text: variables first, then items. Empty before build-program.
std::string ProgramText(const Module& module, const sbp::Mesh& stage_mesh);

}  // namespace weir::compiler
