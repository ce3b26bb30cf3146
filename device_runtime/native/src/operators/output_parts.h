// How threads share the sums over the vocabulary in the output layer's second sweep. The vocabulary's parts and their
// order never change, so neither do the bits; what changes is how many pieces a part is cut into.
#pragma once

#include <cstdint>

namespace phonograd {

// Immutable.
class OutputParts {
 public:
  static constexpr int64_t kParts = 24;  // shared evenly by 1, 2, 3, 4, 6, 8 and 12 threads

  // blocks: of the vocabulary; H: columns of the hidden states' gradient; panel: columns of a kernel's panel.
  OutputParts(int64_t blocks, int64_t H, int64_t panel, int threads);

  // One part's sums: columns [first, end) of the hidden states' gradient, and D^T D or not.
  struct Piece {
    int64_t part, first, end;
    bool gram;
  };
  // In the order in which threads take them: whole parts first, and at last pieces so small that no core waits long
  // for a slow one.
  int64_t pieces() const { return whole_ + (kParts - whole_) * (1 + kSlices); }
  Piece piece(int64_t number) const;

  int64_t first_block(int64_t part) const { return blocks_ * part / kParts; }
  int64_t end_block(int64_t part) const { return blocks_ * (part + 1) / kParts; }
  bool is_whole(int64_t part) const { return part < whole_; }
  // From here on blocks are read by several threads, so D is computed before.
  int64_t first_cut_block() const { return first_block(whole_); }

 private:
  static constexpr int64_t kSlices = 6;  // of the columns

  int64_t column(int64_t slice) const;

  int64_t blocks_, H_, panel_;
  int64_t whole_;  // parts, the first ones, that are one piece
};

}  // namespace phonograd
