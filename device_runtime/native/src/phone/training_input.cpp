#include "phone/training_input.h"

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "text/counts.h"
#include "text/text.h"

namespace phonograd::phone {

std::vector<int64_t> read_tokens(const std::string& path, int64_t vocabulary) {
  const std::string data = read_file(path, kMaxTextBytes, Status::text);
  if (data.empty() || data.size() % 4 != 0) {
    throw Error(Status::text, path + ": " + std::to_string(data.size()) +
                                  " bytes, expected little-endian int32 token ids, at least one");
  }
  std::vector<int64_t> ids;
  ids.reserve(data.size() / 4);
  for (size_t at = 0; at < data.size(); at += 4) {
    uint32_t word = 0;
    for (size_t i = 4; i-- > 0;) word = word << 8 | static_cast<unsigned char>(data[at + i]);
    const int64_t id = static_cast<int32_t>(word);
    if (id < 0 || id >= vocabulary) {
      throw Error(Status::text, path + ": token " + std::to_string(at / 4) + " is " + std::to_string(id) +
                                    ", expected an id from 0 to " + std::to_string(vocabulary - 1));
    }
    ids.push_back(id);
  }
  return ids;
}

TrainingText training_text(const Arguments& arguments, const Manifest& manifest, uint64_t seed) {
  if (arguments.has("--tokens")) {
    TrainingText text;
    text.stream = read_tokens(arguments.text("--tokens"), manifest.vocabulary);
    text.user_tokens = static_cast<int64_t>(text.stream.size());
    text.user_unknown_share = unknown_share(text.stream);
    return text;
  }
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  const TextFile user(arguments.text("--user"));
  if (!arguments.has("--rehearsal")) return mix(user.messages(), {}, 1.0, vocabulary, seed);
  const TextFile general(arguments.text("--rehearsal"));
  const double share = arguments.number("--user-share", kDefaultUserShare, 0, 1);
  return mix(user.messages(), general.messages(), share, vocabulary, seed);
}

OutputSample output_sample(const Manifest& manifest, const std::vector<int64_t>& stream, SampleDraw draw) {
  if (draw.drawn == 0) return {};
  manifest.require_sampled();
  const Vocabulary vocabulary = Vocabulary::load(manifest.path("vocab.txt"), manifest.vocabulary);
  return draw_output_sample(stream, load_counts(manifest.path("counts.txt"), vocabulary), draw.drawn, draw.seed);
}

void warn_of_unknown(const std::string& what, double share) {
  if (share <= kWarnUnknownShare) return;
  std::fprintf(
      stderr,
      "phonograd-phone: warning: %s: %.0f %% of the words are unknown to the vocabulary; is it UTF-8, and in the "
      "model's language?\n",
      what.c_str(), 100 * share);
}

}  // namespace phonograd::phone
