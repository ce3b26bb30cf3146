#include "text/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/splitmix64.h"
#include "formats/utf8.h"

namespace phonograd {
namespace {

// The concatenated ids of messages, and where each message begins and ends.
struct Messages {
  struct Range {
    size_t begin, end;
  };
  std::vector<int64_t> ids;
  std::vector<Range> ranges;

  // Append a message and <eos>, cut to at most `most` ids of which the last is <eos>. Returns the number of ids
  // appended.
  int64_t add(const Vocabulary& vocabulary, std::string_view message, int64_t most) {
    const size_t begin = ids.size();
    vocabulary.encode(message, ids);
    ids.resize(std::min(ids.size(), begin + static_cast<size_t>(most - 1)));
    ids.push_back(kEos);
    ranges.push_back({begin, ids.size()});
    return static_cast<int64_t>(ids.size() - begin);
  }
};

constexpr int64_t kNoLimit = int64_t{1} << 62;  // more tokens than any text holds

// Random general messages without repetition, `wanted` tokens in all; the last is cut to fit, ending in <eos>.
void draw(const std::vector<std::string_view>& general, int64_t wanted, const Vocabulary& vocabulary,
          SplitMix64& random, Messages& messages) {
  std::vector<size_t> order(general.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t missing = wanted;
  for (size_t place = 0; place < order.size(); ++place) {
    std::swap(order[place], order[place + random.below(order.size() - place)]);
    missing -= messages.add(vocabulary, general[order[place]], missing);
    if (missing == 0) return;
  }
  throw Error(Status::text, "rehearsal text: " + std::to_string(wanted) + " tokens needed, found " +
                                std::to_string(wanted - missing) + "; give a longer one or a larger `user_share`");
}

}  // namespace

double unknown_share(const std::vector<int64_t>& stream) {
  const auto words = static_cast<int64_t>(stream.size()) - std::count(stream.begin(), stream.end(), kEos);
  const auto unknown = std::count(stream.begin(), stream.end(), kUnk);
  return words == 0 ? 0 : static_cast<double>(unknown) / static_cast<double>(words);
}

double invalid_share(const std::vector<std::string_view>& messages) {
  size_t bytes = 0, invalid = 0;
  for (const std::string_view message : messages) {
    bytes += message.size();
    for (size_t at = 0; at < message.size();) {
      const size_t length = utf8_length(message.substr(at));
      if (length == 0) ++invalid;
      at += std::max<size_t>(length, 1);
    }
  }
  return bytes == 0 ? 0 : static_cast<double>(invalid) / static_cast<double>(bytes);
}

TrainingText mix(const std::vector<std::string_view>& user, const std::vector<std::string_view>& general,
                 double user_share, const Vocabulary& vocabulary, uint64_t seed) {
  if (!(user_share > 0 && user_share <= 1)) {
    char found[32];
    std::snprintf(found, sizeof found, "%g", user_share);
    throw Error(Status::text, std::string("user share ") + found + ": expected a number in (0, 1]");
  }
  Messages messages;
  for (const std::string_view message : user) messages.add(vocabulary, message, kNoLimit);
  TrainingText text;
  text.user_tokens = static_cast<int64_t>(messages.ids.size());
  text.user_unknown_share = unknown_share(messages.ids);
  text.user_invalid_share = invalid_share(user);
  // nearbyint rounds halves to even, as the rule says, in the rounding mode that every program starts in.
  // A tiny share asks for more tokens than fit an integer, and for more than any text has.
  const double exact = static_cast<double>(text.user_tokens) * (1 - user_share) / user_share;
  const int64_t wanted = static_cast<int64_t>(std::nearbyint(std::min(exact, static_cast<double>(kNoLimit))));
  if (wanted == 0) {
    text.stream = std::move(messages.ids);
    return text;
  }
  SplitMix64 random(seed);
  draw(general, wanted, vocabulary, random, messages);
  text.general_tokens = static_cast<int64_t>(messages.ids.size()) - text.user_tokens;
  text.general_unknown_share = unknown_share({messages.ids.begin() + text.user_tokens, messages.ids.end()});
  random.shuffle(messages.ranges);
  text.stream.reserve(messages.ids.size());
  for (const auto& [begin, end] : messages.ranges) {
    const auto ids = messages.ids.begin();
    text.stream.insert(text.stream.end(), ids + static_cast<std::ptrdiff_t>(begin),
                       ids + static_cast<std::ptrdiff_t>(end));
  }
  return text;
}

}  // namespace phonograd
