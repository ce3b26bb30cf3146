// The teacher of an LwF graph, where that is another model than the one that is trained. FORMAT.md, "Loss".
#pragma once

#include <map>
#include <string>

#include "engine/program.h"
#include "formats/manifest.h"
#include "formats/tensor_file.h"
#include "text/output_sample.h"

namespace phonograd {

// Those of a sample whose ids are in [first, end).
OutputSample candidates_within(const OutputSample& sample, int64_t first, int64_t end);

// Its words begin with the student's; the probability of the others goes to <unk>. Read, and never written to.
class Teacher {
 public:
  // folder: its artifacts. words: the student's. sample: of the teacher's words; of none: all. Throws Error: artifacts,
  // vocabulary, weights, usage for a candidate that is none of its words.
  Teacher(const std::string& folder, int64_t words, const OutputSample& sample);

  const TensorFile& file() const { return file_; }
  // Its tensors by name, without the rows of words that the student has not.
  const std::map<std::string, TensorSpec>& tensors() const { return tensors_; }
  // U: <unk>, and those of the sample that the student has not; 0 if it has all words.
  int64_t unknown() const { return static_cast<int64_t>(unknown_.candidates.size()); }
  // Set what a training graph over C of the student's words needs to know of them. Throws Error(artifacts).
  void set_unknown(Program& program, int64_t C) const;

 private:
  Manifest manifest_;
  TensorFile file_;
  std::map<std::string, TensorSpec> tensors_;
  OutputSample unknown_;
};

}  // namespace phonograd
