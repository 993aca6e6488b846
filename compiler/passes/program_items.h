// ProgramItems adds values and items to the program of a step, one by one: the part of
// build-program that does not know what a step consists of.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/function_builder.h"
#include "compiler/ir/layout_rules.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

class ProgramItems {
 protected:
  // Both arguments must outlive the object.
  ProgramItems(const LayoutRules& rules, LogicalPlan* plan);

  // at_update is the rate of work that happens when weights are updated; after_update is the rate
  // of values made from new weights. The first step needs these values too. So if the first step
  // does not come right after an update (see Training::update_phase), every step makes them anew.
  Frequency at_update() const;
  Frequency after_update() const;

  // Returns the index of a new program value.
  int NewValue(const std::string& name, const sbp::TensorType& type, const sbp::Layout& layout,
               int64_t stage, Frequency frequency);
  // Adds an item of part `part_`. The reference holds until the next item is added.
  ProgramItem& NewItem(ItemKind kind, PhaseKind phase, const std::string& name,
                       Frequency frequency);

  // Returns `value` at another place, boxed there at `rate` (the value of a step may be boxed again
  // for every micro-batch). There is one boxing for each place, rate and purpose.
  int Boxed(int value, const sbp::Layout& layout, int64_t stage, Frequency frequency,
            const std::string& purpose = "");

  // Returns the index of the function, which is called on `stage`. All calls with the same text on
  // stages of one mesh share a function that is built here.
  int InternFunction(int64_t stage, FunctionBuilder& builder);

  // Returns the sum of `parts` in this order, as a call of the update on `stage`.
  int Sum(const std::string& name, const std::vector<int>& parts, const sbp::TensorType& type,
          const sbp::Layout& layout, int64_t stage);

  // A loss scale that adapts is a variable, from which the loss gets its gradient. Adds it to stage
  // 0 and returns its program value; -1: there is none.
  int AddLossScaleFactor();
  // Adds what makes the gradient of the loss of the factor, on the stage of the loss, and returns
  // the gradient.
  int AddLossSeed(int factor, int64_t stage);
  // Adds what adapts the factor. `scale`: the factor for the gradients (BuildClip), on stage 0.
  void AddLossScaleStep(int factor, int scale);

  // Returns the mean of a scalar of micro-batches over those of a step or of an update, as
  // `frequency` says, on the stage of the scalar. The mean is P(sum) where the scalar is.
  int AddMean(const std::string& name, int value, Frequency frequency);
  // Reports a scalar under `name`.
  void AddSink(const std::string& name, int value);

  const LayoutRules& rules_;
  LogicalPlan& plan_;
  Module& module_;
  int64_t part_ = 0;  // of the call that items are added for

 private:
  std::map<std::string, int> boxed_;
  std::map<std::string, int> interned_;
};

}  // namespace weir::compiler
