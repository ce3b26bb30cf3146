#include "text/suggestions.h"

#include <algorithm>

#include "text/text.h"

namespace phonograd {

const float* score_next(Scorer& scorer, const Vocabulary& vocabulary, std::string_view context, int64_t bptt) {
  const size_t line_feed = context.rfind('\n');
  const size_t current = line_feed == std::string_view::npos ? 0 : line_feed + 1;
  std::vector<int64_t> tokens = vocabulary.stream(split_messages(context.substr(0, current)));
  tokens.insert(tokens.begin(), kEos);  // as in training: the first word is predicted from <eos>
  vocabulary.encode(context.substr(current), tokens);
  const int64_t N = static_cast<int64_t>(tokens.size()), V = vocabulary.size();
  const float* last = nullptr;
  scorer.reset();
  for (int64_t at = 0; at < N; at += bptt) {
    const int64_t T = std::min(bptt, N - at);
    last = scorer.logits(tokens.data() + at, T, 1) + (T - 1) * V;
  }
  return last;
}

std::vector<int64_t> suggest(const PrefixIndex& index, const float* scores, std::string_view typed) {
  const PrefixIndex::Range range = index.with_prefix(fold(typed));
  std::vector<int64_t> best;
  const auto before = [&](int64_t one, int64_t other) {
    return scores[one] > scores[other] || (scores[one] == scores[other] && one < other);
  };
  for (const int64_t* id = range.begin; id != range.end; ++id) {
    size_t place = best.size();
    while (place > 0 && before(*id, best[place - 1])) --place;
    if (place == kSuggestions) continue;
    best.insert(best.begin() + static_cast<std::ptrdiff_t>(place), *id);
    if (best.size() > kSuggestions) best.pop_back();
  }
  return best;
}

}  // namespace phonograd
