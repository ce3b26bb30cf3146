// The token stream laid out in minibatch columns and cut into BPTT windows. FORMAT.md, "Windows"; the same as
// device_runtime/text/windows.py's.
#pragma once

#include <cstdint>
#include <vector>

namespace phonograd {

// A target that is padding: outside the loss, outside every count.
constexpr int64_t kIgnored = -1;

// Columns that a text of `tokens` ids is evaluated in: each starts from an empty state, so it must not be short.
int64_t evaluation_minibatch(int64_t minibatch, int64_t tokens);

// All windows of a stream [N], each made when asked for. The stream stays the caller's and must outlive this. Const
// methods are thread-safe; nothing here allocates.
class Windows {
 public:
  // minibatch B and bptt T at least 1.
  Windows(const std::vector<int64_t>& stream, int64_t minibatch, int64_t bptt);

  int64_t count() const { return (height_ + bptt_ - 1) / bptt_; }
  // Place in the stream that row t of column b of a window predicts; -1 where the column has ended.
  int64_t place(int64_t window, int64_t t, int64_t b) const;
  // Write tokens and targets [T,B] of a window; returns the number of targets that count.
  int64_t fill(int64_t window, int64_t* tokens, int64_t* targets) const;

 private:
  const std::vector<int64_t>& stream_;
  int64_t length_, minibatch_, bptt_;
  int64_t height_;  // rows of all windows together, without the last one's padding
};

}  // namespace phonograd
