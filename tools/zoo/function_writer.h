// Writes a Function of a graph line by line, in the way that the models of the zoo need. The writer
// checks nothing: the compiler finds errors of a graph.
// Thread rule: one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "proto/graph.pb.h"
#include "runtime/base/attributes.h"

namespace weir::zoo {

class FunctionWriter {
 public:
  // `function` must outlive the writer.
  FunctionWriter(proto::Function* function, const std::string& name) : function_(function) {
    function_->set_name(name);
  }

  void Input(const std::string& name, const std::string& type);
  void Output(const std::string& name);

  // Parameters. Each function returns the parameter's name. Matrices decay, vectors do not.
  std::string Normal(const std::string& name, const std::string& type, double std);
  std::string Ones(const std::string& name, const std::string& type);
  std::string Zeros(const std::string& name, const std::string& type);

  // Adds `name = op(inputs)` and returns `name`. Empty inputs are left out.
  std::string Node(const std::string& name, const std::string& op,
                   std::initializer_list<std::string> inputs, const Attributes& attributes = {});
  // Calls `callee` `repeat` times in a chain. All rounds read `shared`.
  std::string Call(const std::string& name, const std::string& callee, const std::string& input,
                   const std::string& output, int64_t repeat,
                   const std::vector<std::string>& shared = {});

 private:
  proto::Parameter* AddParameter(const std::string& name, const std::string& type);

  proto::Function* function_;
};

// Adds "logits", the product of `input` and a matrix: of "token_table" itself if `tied`, else of a
// parameter "w_vocab".
void WriteLogits(FunctionWriter& f, const std::string& input, bool tied, double std);

// Adds { name, size, unit } to the dimensions of `graph`; unit 1 is left out.
void AddDim(proto::Graph* graph, const std::string& name, int64_t size, int64_t unit = 1);

}  // namespace weir::zoo
