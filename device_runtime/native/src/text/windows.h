// The token stream laid out in minibatch columns and cut into BPTT windows. FORMAT.md, "Windows".
#pragma once

#include <cstdint>
#include <vector>

namespace phonograd {

// The target of padding: it counts for neither the loss nor anything else.
constexpr int64_t kIgnored = -1;

// The number of columns to evaluate a text of `tokens` ids in. Each starts from zero states, so it must not be short.
int64_t evaluation_minibatch(int64_t minibatch, int64_t tokens);

// All windows of a stream [N], each computed on request. The caller owns the stream, which must outlive this. Const
// methods are thread-safe; nothing allocates.
class Windows {
 public:
  // minibatch B and bptt T at least 1.
  Windows(const std::vector<int64_t>& stream, int64_t minibatch, int64_t bptt);

  int64_t count() const { return (height_ + bptt_ - 1) / bptt_; }
  // Index in the stream of the token that row t of column b of a window predicts; -1 past the column's end.
  int64_t place(int64_t window, int64_t t, int64_t b) const;
  // Write the tokens and targets [T,B] of a window; returns the number of targets that are not padding.
  int64_t fill(int64_t window, int64_t* tokens, int64_t* targets) const;

 private:
  const std::vector<int64_t>& stream_;
  int64_t length_, minibatch_, bptt_;
  int64_t height_;  // rows of all windows together, without the padding of the last
};

}  // namespace phonograd
