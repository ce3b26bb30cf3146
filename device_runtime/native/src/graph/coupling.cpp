#include "graph/coupling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace phonograd {
namespace {

using onnx::Node;

// For each of an LSTM's gates i, o, f, c, the CIFG's gate (i, o, c) and its sign: sigmoid(-x) is 1 - sigmoid(x).
constexpr std::array<int64_t, 4> kNumbers = {0, 1, 0, 2};
constexpr std::array<int64_t, 8> kBiasNumbers = {0, 1, 0, 2, 3, 4, 3, 5};
constexpr std::array<float, 4> kSigns = {1, 1, -1, 1};
constexpr std::array<float, 8> kBiasSigns = {1, 1, -1, 1, 1, 1, -1, 1};

// Never destroyed: a string's destructor at exit would be bound to the system's C++ library on macOS.
const std::string& no_name() {
  static const std::string& none = *new std::string;
  return none;
}

const std::string& input(const Node* node, size_t index) {
  return node != nullptr && index < node->inputs.size() ? node->inputs[index] : no_name();
}

const std::string& output(const Node* node, size_t index = 0) {
  return node != nullptr && index < node->outputs.size() ? node->outputs[index] : no_name();
}

struct Cell {
  std::string W, R, B, P;          // values as they are stored
  std::string matrix, transposed;  // P [E, H] and [H, E]
  std::string h;                   // the LSTM's output times P^T, [T, B, E]
  std::string dh, dW, dR, dB, dP;  // "" for what nobody wants
};

class Coupling {
 public:
  explicit Coupling(onnx::Model& model) : model_(model) {
    for (const onnx::Constant& constant : model.constants) constants_[constant.name] = &constant;
    for (Node& node : model.nodes) {
      for (const std::string& value : node.outputs) makers_[value] = &node;
      for (const std::string& value : node.inputs) users_[value].push_back(&node);
    }
    for (const onnx::ValueInfo& value : model.outputs) outputs_.insert(value.name);
  }

  void rewrite() {
    std::map<std::string, Cell> cells;  // by the LSTM's output
    for (const Node& node : model_.nodes) {
      Cell cell;
      if (is_cell(node, cell)) cells[output(&node)] = cell;
    }
    if (cells.empty()) return;
    for (Node& node : model_.nodes) {
      const bool gradient = node.op == "LSTMGrad";
      const auto found = cells.find(gradient ? input(&node, 6) : output(&node));
      if (found == cells.end()) continue;
      if (gradient) {
        replace_gradient(node, found->second);
      } else {
        replace_forward(node, found->second);
      }
    }
    retire();
  }

 private:
  // The node that makes a value, if it has that operator; else nullptr.
  const Node* maker(const std::string& value, const char* op) const {
    const auto found = makers_.find(value);
    return !value.empty() && found != makers_.end() && found->second->op == op ? found->second : nullptr;
  }
  const std::vector<Node*>& users(const std::string& value) const {
    static const std::vector<Node*> none;
    const auto found = users_.find(value);
    return value.empty() || found == users_.end() ? none : found->second;
  }
  // The only one of its users with that operator, or nullptr.
  const Node* user(const std::string& value, const char* op) const {
    const Node* only = nullptr;
    for (const Node* node : users(value)) {
      if (node->op != op) continue;
      if (only != nullptr) return nullptr;
      only = node;
    }
    return only;
  }
  // What reads a value that nothing else reads, or nullptr.
  const Node* only_user(const std::string& value) const {
    return users(value).size() == 1 && outputs_.count(value) == 0 ? users(value)[0] : nullptr;
  }

  template <typename Element, size_t kCount>
  bool holds(const std::string& value, const std::array<Element, kCount>& expected) const {
    const auto found = constants_.find(value);
    const size_t bytes = kCount * sizeof(Element);
    return found != constants_.end() && found->second->bytes.size() == bytes &&
           std::memcmp(found->second->bytes.data(), expected.data(), bytes) == 0;
  }
  bool holds_signs(const Node* node, bool biases) const {
    return biases ? holds(input(node, 1), kBiasSigns) : holds(input(node, 1), kSigns);
  }
  bool holds_numbers(const Node* node, bool biases) const {
    const bool held = biases ? holds(input(node, 1), kBiasNumbers) : holds(input(node, 1), kNumbers);
    return held && node->integer("axis", 0) == 0;
  }

  // The three gates that four are made of: Reshape, Gather, Mul, Reshape. "" if they are not.
  std::string rows_of(const std::string& four, bool biases = false) const {
    const Node* signs = maker(input(maker(four, "Reshape"), 0), "Mul");
    const Node* gather = maker(input(signs, 0), "Gather");
    const Node* by_gate = maker(input(gather, 0), "Reshape");
    if (by_gate == nullptr || !holds_signs(signs, biases) || !holds_numbers(gather, biases)) return "";
    return holds(input(by_gate, 1), std::array<int64_t, 2>{biases ? 6 : 3, -1}) ? input(by_gate, 0) : "";
  }

  bool is_cell(const Node& node, Cell& cell) const {
    const bool training = node.op == "LSTMTraining";
    if ((node.op != "LSTM" && !training) || node.inputs.size() != 7) return false;
    const Node* product = maker(input(maker(node.inputs[2], "Unsqueeze"), 0), "MatMul");
    cell.W = rows_of(node.inputs[1]);
    cell.R = rows_of(input(product, 0));
    cell.B = rows_of(node.inputs[3], true);
    cell.matrix = input(product, 1);
    cell.P = input(maker(cell.matrix, "Squeeze"), 0);
    cell.transposed = output(user(cell.matrix, "Transpose"));
    const Node* projected = user(output(user(output(&node), "Squeeze")), "MatMul");
    cell.h = output(projected);
    if (cell.W.empty() || cell.R.empty() || cell.B.empty() || cell.P.empty() || cell.h.empty()) return false;
    if (cell.transposed.empty() || projected->inputs[1] != cell.transposed) return false;
    return !training || find_gradients(user(output(&node), "LSTMGrad"), cell);
  }

  bool find_gradients(const Node* gradient, Cell& cell) const {
    const Node* product = maker(input(maker(input(gradient, 9), "Unsqueeze"), 0), "FusedMatMul");
    cell.dh = input(product, 0);
    return input(product, 1) == cell.transposed && product->integer("transB", 0) != 0 &&
           find_gradient_of_rows(output(gradient, 1), cell.dW) &&
           find_gradient_of_rows(output(gradient, 3), cell.dB, true) &&
           find_gradients_of_product(output(gradient, 2), cell);
  }

  // Find the three gates' gradient behind the four's: Reshape, Mul, perhaps Identity, GatherGrad, Reshape. "" if it is
  // not read, false if it is read otherwise.
  bool find_gradient_of_rows(std::string value, std::string& found, bool biases = false) const {
    if (users(value).empty()) return true;
    bool scattered = false;
    for (int nodes = 0; nodes < 5; ++nodes) {
      const Node* next = only_user(value);
      if (next == nullptr) return false;
      const bool signs = next->op == "Mul" && holds_signs(next, biases);
      const bool scatters = next->op == "GatherGrad" && holds_numbers(next, biases);
      if (!signs && !scatters && next->op != "Reshape" && next->op != "Identity") return false;
      value = output(next);
      if (scattered) {
        found = value;
        return true;
      }
      scattered = scatters;
    }
    return false;
  }

  // Find the gradients behind (R P)'s gradient X: R's is X P^T, P's is R^T X plus that of its other use.
  bool find_gradients_of_product(const std::string& whole, Cell& cell) const {
    if (users(whole).empty()) return true;
    const Node* squeezed = only_user(whole);
    if (squeezed == nullptr || squeezed->op != "Squeeze") return false;
    for (const Node* gemm : users(output(squeezed))) {
      if (gemm->op != "Gemm") return false;
      if (input(gemm, 1) == cell.matrix) {
        if (!find_gradient_of_rows(output(gemm), cell.dR)) return false;
        continue;
      }
      const Node *sum = only_user(output(gemm)), *unsqueezed = sum == nullptr ? nullptr : only_user(output(sum));
      if (unsqueezed == nullptr || sum->op != "Sum" || unsqueezed->op != "Unsqueeze") return false;
      const std::string& other = input(sum, input(sum, 0) == output(gemm) ? 1 : 0);
      const Node* by_h = maker(input(maker(other, "Transpose"), 0), "Gemm");
      if (input(maker(input(by_h, 1), "Reshape"), 0) != cell.dh || sum->inputs.size() != 2) return false;
      cell.dP = output(unsqueezed);
    }
    return true;
  }

  void replace_forward(Node& node, const Cell& cell) {
    take_over({cell.h});
    node.op = node.op == "LSTM" ? "CIFG" : "CIFGTraining";
    node.domain = kDomain;
    node.inputs = {node.inputs[0], cell.W, cell.R, cell.B, "", node.inputs[5], node.inputs[6], cell.P};
    node.outputs.resize(6);
    node.outputs[5] = node.outputs[0];
    node.outputs[0] = cell.h;
  }

  void replace_gradient(Node& node, const Cell& cell) {
    take_over({cell.dW, cell.dR, cell.dB, cell.dP});
    node.op = "CIFGGrad";
    node.domain = kDomain;
    node.inputs.resize(9);
    node.inputs.insert(node.inputs.end(), {cell.dh, cell.P, cell.h});
    node.inputs[1] = cell.W;
    node.inputs[2] = cell.R;
    node.outputs = {node.outputs[0], cell.dW, cell.dR, cell.dB, cell.dP};
  }

  // Another node makes these values from now on.
  void take_over(const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      if (!value.empty()) makers_[value]->outputs[0] += ".replaced";
    }
  }

  // Nodes whose results nobody reads any more run nothing.
  void retire() {
    std::set<std::string> read = outputs_;
    for (auto node = model_.nodes.rbegin(); node != model_.nodes.rend(); ++node) {
      read.erase("");
      const auto is_read = [&](const std::string& value) { return read.count(value) != 0; };
      if (std::any_of(node->outputs.begin(), node->outputs.end(), is_read)) {
        read.insert(node->inputs.begin(), node->inputs.end());
        continue;
      }
      node->op = "Identity";
      node->domain.clear();
      node->inputs = {model_.constants[0].name};
      node->outputs.resize(1);
      node->attributes.clear();
    }
  }

  static constexpr const char* kDomain = "phonograd";

  onnx::Model& model_;
  std::map<std::string, const onnx::Constant*> constants_;
  std::map<std::string, Node*> makers_;
  std::map<std::string, std::vector<Node*>> users_;
  std::set<std::string> outputs_;
};

}  // namespace

void couple_gates(onnx::Model& model) {
  Coupling(model).rewrite();
}

}  // namespace phonograd
