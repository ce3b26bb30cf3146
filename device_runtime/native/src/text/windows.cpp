#include "text/windows.h"

#include <algorithm>

#include "text/vocabulary.h"

namespace phonograd {
namespace {

constexpr int64_t kMinColumnTokens = 100;

}  // namespace

int64_t evaluation_minibatch(int64_t minibatch, int64_t tokens) {
  return std::max<int64_t>(1, std::min(minibatch, tokens / kMinColumnTokens));
}

Windows::Windows(const std::vector<int64_t>& stream, int64_t minibatch, int64_t bptt)
    : stream_(stream),
      length_(static_cast<int64_t>(stream.size())),
      minibatch_(minibatch),
      bptt_(bptt),
      height_((length_ + minibatch - 1) / minibatch) {}

int64_t Windows::place(int64_t window, int64_t t, int64_t b) const {
  const int64_t row = window * bptt_ + t, at = b * height_ + row;
  return row < height_ && at < length_ ? at : -1;
}

int64_t Windows::fill(int64_t window, int64_t* tokens, int64_t* targets) const {
  int64_t predictions = 0;
  for (int64_t t = 0; t < bptt_; ++t) {
    for (int64_t b = 0; b < minibatch_; ++b) {
      const int64_t at = place(window, t, b);
      *tokens++ = at > 0 ? stream_[static_cast<size_t>(at - 1)] : kEos;
      *targets++ = at >= 0 ? stream_[static_cast<size_t>(at)] : kIgnored;
      predictions += at >= 0;
    }
  }
  return predictions;
}

}  // namespace phonograd
