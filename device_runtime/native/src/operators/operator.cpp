#include "operators/operator.h"

namespace phonograd {

const OperatorType* find_operator(const std::string& name, const std::string& domain) {
  for (const OperatorTable* table :
       {&view_operators(), &elementwise_operators(), &reduction_operators(), &product_operators(), &loss_operators(),
        &embedding_operators(), &dropout_operators(), &lstm_operators(), &gru_operators()}) {
    for (const OperatorType& type : *table) {
      if (name == type.name && domain == type.domain) return &type;
    }
  }
  return nullptr;
}

Factors Operator::factors(size_t) const {
  throw Error(Status::bug, description() + ": no factored gradient; please report this");
}

void check_ids(const char* what, const Tensor& ids, int64_t below, const int64_t* ignored) {
  for (int64_t n = 0; n < ids.elements(); ++n) {
    const int64_t id = ids.integers()[n];
    if ((id >= 0 && id < below) || (ignored != nullptr && id == *ignored)) continue;
    throw Error(Status::training, std::string(what) + " " + std::to_string(id) + " at place " + std::to_string(n) +
                                      " of '" + ids.name + "': expected an id below " + std::to_string(below) +
                                      (ignored == nullptr ? "" : ", or " + std::to_string(*ignored) + " for none"));
  }
}

void check_node(NodeChecker& node) {
  const onnx::Node& source = *node.node().source;
  const OperatorType* type = find_operator(source.op, source.domain);
  if (type == nullptr) node.refuse("the engine has no such operator; see `phonograd inspect` for the graph");
  const size_t inputs = source.inputs.size(), outputs = source.outputs.size();
  node.require(inputs >= type->fewest_inputs && inputs <= type->most_inputs,
               std::to_string(inputs) + " inputs, expected " + std::to_string(type->fewest_inputs) + " to " +
                   std::to_string(type->most_inputs));
  node.require(outputs >= 1 && outputs <= type->most_outputs,
               std::to_string(outputs) + " outputs, expected 1 to " + std::to_string(type->most_outputs));
  for (const onnx::Attribute& attribute : source.attributes) {
    bool known = false;
    for (const char* name : type->attributes) known = known || attribute.name == name;
    node.require(known, "attribute '" + attribute.name + "' is not known to the engine");
  }
  type->check(node);
}

}  // namespace phonograd
