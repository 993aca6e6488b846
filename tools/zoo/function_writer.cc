#include "tools/zoo/function_writer.h"

namespace weir::zoo {
namespace {

void SetValue(const AttrValue& value, proto::Attr* attr) {
  if (auto* i = std::get_if<int64_t>(&value)) attr->set_i(*i);
  if (auto* f = std::get_if<double>(&value)) attr->set_f(*f);
  if (auto* b = std::get_if<bool>(&value)) attr->set_b(*b);
  if (auto* s = std::get_if<std::string>(&value)) attr->set_s(*s);
  if (auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    for (int64_t i : *list) attr->mutable_ints()->add_values(i);
  }
}

}  // namespace

void FunctionWriter::Input(const std::string& name, const std::string& type) {
  proto::TensorDecl* input = function_->add_input();
  input->set_name(name);
  input->set_type(type);
}

void FunctionWriter::Output(const std::string& name) { function_->add_output(name); }

proto::Parameter* FunctionWriter::AddParameter(const std::string& name, const std::string& type) {
  proto::Parameter* parameter = function_->add_parameter();
  parameter->set_name(name);
  parameter->set_type(type);
  return parameter;
}

std::string FunctionWriter::Normal(const std::string& name, const std::string& type, double std) {
  proto::Parameter* parameter = AddParameter(name, type);
  parameter->mutable_init()->mutable_normal()->set_std(std);
  parameter->set_decay(true);
  return name;
}

std::string FunctionWriter::Ones(const std::string& name, const std::string& type) {
  AddParameter(name, type)->mutable_init()->set_ones(true);
  return name;
}

std::string FunctionWriter::Zeros(const std::string& name, const std::string& type) {
  AddParameter(name, type)->mutable_init()->set_zeros(true);
  return name;
}

std::string FunctionWriter::Node(const std::string& name, const std::string& op,
                                 std::initializer_list<std::string> inputs,
                                 const Attributes& attributes) {
  weir::proto::Node* node = function_->add_node();
  node->set_name(name);
  node->set_op(op);
  for (const std::string& input : inputs) {
    if (!input.empty()) node->add_input(input);
  }
  for (const auto& [key, value] : attributes.map()) {
    proto::NamedAttr* attr = node->add_attr();
    attr->set_name(key);
    SetValue(value, attr->mutable_value());
  }
  return name;
}

std::string FunctionWriter::Call(const std::string& name, const std::string& callee,
                                 const std::string& input, const std::string& output,
                                 int64_t repeat, const std::vector<std::string>& shared) {
  weir::proto::Node* node = function_->add_node();
  node->set_name(name);
  node->set_op("call");
  node->add_input(input);
  node->add_output(output);
  node->set_function(callee);
  node->set_repeat(repeat);
  for (const std::string& tensor : shared) node->add_shared(tensor);
  return output;
}

void WriteLogits(FunctionWriter& f, const std::string& input, bool tied, double std) {
  if (tied) {
    f.Node("logits", "matmul", {input, "token_table"}, {{"transpose_w", true}});
  } else {
    f.Node("logits", "matmul", {input, f.Normal("w_vocab", "f32[hidden, vocab]", std)});
  }
}

void AddDim(proto::Graph* graph, const std::string& name, int64_t size, int64_t unit) {
  proto::Dim* dim = graph->add_dim();
  dim->set_name(name);
  dim->set_size(size);
  if (unit != 1) dim->set_unit(unit);
}

}  // namespace weir::zoo
