// Completeness tests name the parts that a new op still lacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ops/defs/op_def.h"
#include "ops/kernels/kernel.h"
#include "ops/testing/op_cases.h"

namespace weir::ops {
namespace {

// Returns the user ops whose results are masks, and that compare integers of any value.
const std::set<std::string>& MakesMasks() {
  static const auto* ops = new std::set<std::string>{
      "equal",         "not_equal",   "less",       "less_equal",  "greater",
      "greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not"};
  return *ops;
}

// Returns the user ops without a gradient, with the reasons.
const std::map<std::string, std::string>& NotDifferentiable() {
  static const auto* reasons = [] {
    auto* all = new std::map<std::string, std::string>{
        {"accuracy", "a step function: its derivative is zero wherever it exists"},
        {"argmax", "its result is a place, an integer"},
        {"one_hot", "its operand is an integer"},
        {"attention_cached", "it runs models that are trained"},
        {"step_mean", "its operand depends on data alone"},
    };
    for (const std::string& name : MakesMasks()) all->emplace(name, "its result is a mask");
    return all;
  }();
  return *reasons;
}

// Returns the internal ops that carry tensors of any type from rank to rank, after ranges have been
// found.
const std::set<std::string>& MovesBytes() {
  static const auto* ops = new std::set<std::string>{"exchange_pack", "exchange_fill"};
  return *ops;
}

template <typename Check>
void ForEachOp(Check&& check) {
  for (const std::string& name : OpRegistry::Names()) {
    SCOPED_TRACE("op " + name);
    check(name, *OpRegistry::Find(name));
  }
}

TEST(Completeness, EveryOpSaysWhatItDoesAndWhatItsOperandsAre) {
  ForEachOp([](const std::string& name, const OpDef& def) {
    EXPECT_EQ(def.schema.name, name);
    EXPECT_FALSE(def.schema.doc.empty()) << "OpSchema.doc";
    EXPECT_FALSE(def.schema.factors.empty()) << "OpSchema.factors";
    EXPECT_FALSE(def.schema.outputs.empty()) << "OpSchema.outputs";
    for (const auto* operands : {&def.schema.inputs, &def.schema.outputs}) {
      for (const OperandSchema& operand : *operands)
        EXPECT_FALSE(operand.doc.empty()) << "doc of " << operand.name;
    }
    for (const AttrSchema& attr : def.schema.attrs)
      EXPECT_FALSE(attr.doc.empty()) << "doc of " << attr.name;
  });
}

TEST(Completeness, OptionalAndVariadicOperandsComeLast) {
  ForEachOp([](const std::string& name, const OpDef& def) {
    for (const auto* operands : {&def.schema.inputs, &def.schema.outputs}) {
      for (size_t i = 0; i + 1 < operands->size(); ++i) {
        EXPECT_FALSE((*operands)[i].variadic) << (*operands)[i].name;
        EXPECT_TRUE(!(*operands)[i].optional || (*operands)[i + 1].optional)
            << (*operands)[i + 1].name;
      }
    }
  });
}

TEST(Completeness, EveryOpHasShapesARuleAndACost) {
  ForEachOp([](const std::string& name, const OpDef& def) {
    EXPECT_TRUE(def.infer) << "OpDef.infer";
    EXPECT_TRUE(def.rule) << "OpDef.rule";
    EXPECT_TRUE(def.flops) << "OpDef.flops";
  });
}

TEST(Completeness, EveryOpHasACase) {
  std::set<std::string> with_case, names;
  for (const OpCase& op_case : OpCases()) {
    with_case.insert(op_case.op);
    EXPECT_TRUE(names.insert(op_case.name).second) << "two cases called " << op_case.name;
    EXPECT_NE(OpRegistry::Find(op_case.op), nullptr) << op_case.name;
  }
  ForEachOp([&](const std::string& name, const OpDef&) {
    EXPECT_TRUE(with_case.count(name)) << "add a case to ops/testing/op_cases.cc";
  });
}

TEST(Completeness, EveryCaseInfersAndCosts) {
  for (const OpCase& op_case : OpCases()) {
    auto example = MakeExample(op_case, 1);
    ASSERT_TRUE(example.ok()) << op_case.name << ": " << example.status();
    EXPECT_GE(example->def->flops(example->attrs, example->input_types, example->output_types), 0)
        << op_case.name;
  }
}

// The runtime could not check the range of an integer that an op reads in any other way.
TEST(Completeness, EveryIntegerOperandIsAnIndexOrPassesThrough) {
  for (const OpCase& op_case : OpCases()) {
    auto example = MakeExample(op_case, 1);
    ASSERT_TRUE(example.ok()) << op_case.name << ": " << example.status();
    const OpSchema& schema = example->def->schema;
    for (size_t i = 0; i < example->input_types.size(); ++i) {
      if (example->input_types[i].dtype != DType::kI32) continue;
      const OperandSchema& operand = schema.inputs[std::min(i, schema.inputs.size() - 1)];
      // cross_entropy_finish compares its targets with the ignored one, after ranges have been
      // found. rotary takes any number as a position, and attention_cached one without a page.
      EXPECT_TRUE(operand.index.has_value() || schema.moves_elements ||
                  MovesBytes().count(op_case.op) > 0 || MakesMasks().count(op_case.op) > 0 ||
                  op_case.op == "cross_entropy_finish" || op_case.op == "rotary" ||
                  (op_case.op == "attention_cached" && operand.name == "positions"))
          << op_case.name << ": say in ops/defs what " << operand.name
          << " indexes (OperandSchema::index), or that the op only moves elements";
      if (!operand.index.has_value()) continue;
      EXPECT_GT(
          IndexedDim(*operand.index, example->attrs, example->input_types, example->output_types)
              .size,
          0)
          << op_case.name;
    }
  }
}

TEST(Completeness, EveryOpHasAKernelOfEveryKindAndEveryKernelAnOp) {
  const std::vector<std::string> ops = OpRegistry::Names();
  for (const std::string kind : {"cpu", "cuda-emulated", "cuda"}) {
    const std::vector<std::string> kernels = kernels::KernelRegistry::Names(kind);
    if (kind == "cuda" && kernels.empty()) continue;  // built without the CUDA toolkit
    for (const std::string& op : ops) {
      EXPECT_TRUE(std::count(kernels.begin(), kernels.end(), op))
          << "add a kernel of " << op << " for " << kind << " to ops/kernels/"
          << (kind == "cpu" ? "cpu" : "cuda");
    }
    for (const std::string& kernel : kernels) {
      EXPECT_TRUE(std::count(ops.begin(), ops.end(), kernel))
          << "no op for kernel " << kernel << " of " << kind;
    }
  }
}

TEST(Completeness, EveryUserOpHasAGradientOrAReasonForNone) {
  ForEachOp([](const std::string& name, const OpDef& def) {
    bool excused = NotDifferentiable().count(name) > 0;
    if (!def.schema.internal) {
      EXPECT_NE(static_cast<bool>(def.gradient), excused)
          << "give it a gradient or a reason here, not both";
    } else {
      EXPECT_FALSE(def.gradient) << "internal ops stand behind differentiation";
    }
  });
}

}  // namespace
}  // namespace weir::ops
